"""What a compilation does once for all equal layers: counts, not seconds."""

from __future__ import annotations

import cProfile
import pstats
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layered_folders import write_layers
from mirlo_llm import generate
from mirlo_llm.folders import FORM
from mirlo_llm.generate.checkpoints.packed import read_weights
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.json_file import read_json
from test_packed import write_form

import mirlo
from mirlo.extend.runtime import UnloadedModel

OPERATIONS = 50
"""More operations than a layer has."""


def compile_folder(folder: Path) -> UnloadedModel:
    """Compile a model for a processor that this one need not be."""
    compiled = mirlo.compile(FORM.open(str(folder)), cache=False, target="llvm{cpu=znver4}", jobs=1, load=False)
    assert isinstance(compiled, UnloadedModel)
    return compiled


def compiled_kernels(folder: Path) -> tuple[set[str], int]:
    """Return the functions that the kernels of a model call, and how many calls there are."""
    kernels = compile_folder(folder).artifact.kernels
    return {kernel.symbol for kernel in kernels}, len(kernels)


def test_equal_layers_share_kernels(tmp_path: Path) -> None:
    few, many = (compiled_kernels(write_layers(tmp_path / str(layers), layers)) for layers in (3, 9))
    assert len(few[0]) == len(many[0])
    assert many[1] - few[1] == 6 * (few[1] - compiled_kernels(write_layers(tmp_path / "2", 2))[1])


def read_arrays(folder: Path) -> dict[str, np.ndarray]:
    """Return copies of the tensors of a folder, whose file may be written then."""
    tensors = read_weights(folder / "model.safetensors", read_json(folder / "config.json"))
    return {name: np.array(array) for name, array in tensors.items()}


def unnumbered(kernels: Iterable[Any]) -> list[Any]:
    """Return kernels without the numbers at the ends of their names, which depend on what was tried."""
    return [replace(kernel, symbol=re.sub(r"_\d+$", "", kernel.symbol)) for kernel in kernels]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("form", "experts"), [("", 0), ("", 4), ("gptq 4", 4), ("compressed 8", 0)])
def test_few_layers_stand_for_all(form: str, experts: int, tmp_path: Path) -> None:
    """With `save_ir` the passes run on all layers: the code and the results are the same, also with loops in layers."""
    folder = write_layers(tmp_path / "model", 12, experts)
    if form:
        write_form(folder, form, read_arrays(folder))
    few, all_layers = (
        generate.load(folder, cache=False, **options).executable  # type: ignore[arg-type]
        for options in ({}, {"save_ir": tmp_path / "ir"})
    )
    assert unnumbered(few.artifact.kernels) == unnumbered(all_layers.artifact.kernels)
    assert few.artifact.params == all_layers.artifact.params
    rng, sizes = np.random.default_rng(0), {"batch": 2, "length": 5, "total": 12, "past": 16, "last_rows": 1}
    values: list[np.ndarray] = []
    for spec in few.artifact.inputs:
        shape = [dim if isinstance(dim, int) else sizes[str(dim)] for dim in spec.shape]
        is_cache = len(shape) == 4
        kind = np.int8 if spec.dtype == "i8" else np.int64
        values.append(rng.standard_normal(shape, np.float32) if is_cache else np.ones(shape, kind))
    for one, other in zip(few(*values), all_layers(*values), strict=True):
        assert one.tobytes() == other.tobytes()
    assert any(kernel.symbol.startswith("matmul_u") for kernel in few.artifact.kernels) == bool(form)


@pytest.mark.sample(0)
def test_work_grows_linearly(tmp_path: Path) -> None:
    def calls(layers: int) -> int:
        folder, profile = write_layers(tmp_path / str(layers), layers), cProfile.Profile()
        profile.runcall(compile_folder, folder)
        return pstats.Stats(profile).total_calls  # type: ignore[attr-defined,no-any-return]

    calls(2)
    least = calls(2)  # what each compilation does
    few, many = (calls(layers) - least for layers in (4, 10))
    assert many <= 4.4 * few  # 8 layers more than 2 are 4 times 2


@pytest.mark.sample(0)
def test_what_is_computed_once_for_all_layers(tmp_path: Path) -> None:
    """Rows of profiles are those of kernels; operations of the graph are verified when it is built, opened and done."""

    def calls(layers: int) -> dict[str, int]:
        folder, profile = write_layers(tmp_path / str(layers), layers), cProfile.Profile()
        profile.runcall(compile_folder, folder)
        counts: dict[str, int] = {}
        for (_, _, name), (_, count, *_) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
            counts[name] = counts.get(name, 0) + count
        return counts

    calls(2)
    few, many = calls(12), calls(16)
    assert many["moved_bytes"] == few["moved_bytes"]
    assert many["_verify"] - few["_verify"] <= 3 * 4 * OPERATIONS


def test_code_for_another_machine_is_named(tmp_path: Path) -> None:
    folder, other = write_layers(tmp_path / "model", 1), "llvm{cpu=spacemit-x60}"
    with pytest.raises(ModelFolderError, match=r"model.safetensors: generation needs code for this machine: .*riscv64"):
        generate.load(folder, cache=False, target=other)
