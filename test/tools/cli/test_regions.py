"""The parts of a model with the code generators that compute them: equal in all commands and in saved models."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler
from commands import mirlo, output_of
from onnx import TensorProto, helper, numpy_helper

import mirlo as package
from mirlo.runtime.artifact import load, save
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.external import ExternalArtifact
from mirlo.runtime.regions import RegionDescription, described_regions


def _model() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy")
    graph = helper.make_graph(nodes, "regions", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(_model(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def _table(text: str) -> list[list[str]]:
    """Return the rows of the table of regions, cells apart."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("regions:"))
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[start + 1 : start + 3]]
    return rows[: next((i for i, row in enumerate(rows) if row[0] == "main"), 1) + 1]


@pytest.mark.sample(0)
@needs_c_compiler
def test_commands_print_the_same(path: Path, tmp_path: Path) -> None:
    saved = tmp_path / "model.mirlo"
    compiled = output_of(mirlo("compile", path, "--target", "c,llvm", "-o", saved, "--report"))
    rows = _table(compiled)
    assert [row[:5] for row in rows] == [
        ["c_region_0", "c", "2", "100.0 %", "c"],
        ["main", "llvm", "0", "0.0 %", "llvm"],
    ]
    assert rows[1][5].startswith(package.compile(_model(), cache=False).artifact.metadata["triple"])
    assert _table(output_of(mirlo("info", saved))) == rows
    assert _table(output_of(mirlo("run", saved))) == rows
    assert _table(output_of(mirlo("run", path, "--target", "c,llvm"))) == rows
    explained = _table(output_of(mirlo("explain", path, "--target", "c,llvm")))
    assert explained == rows


def test_a_library_says_what_it_needs(path: Path, tmp_path: Path) -> None:
    text = output_of(
        mirlo("compile", path, "--emit", "object", "-o", tmp_path / "out", "--target", "llvm{cpu=haswell}")
    )
    assert _table(text) == [
        ["main", "llvm{cpu=haswell}", "2", "100.0 %", "llvm", "x86_64-unknown-linux-gnu with x86-64-v3"]
    ]


def test_devices() -> None:
    artifact = package.compile(_model(), "nvvm{chip=sm_90a}", cache=False).artifact
    (region,) = described_regions(artifact)
    assert (region.name, region.target, region.loader) == ("main", "nvvm{chip=sm_90a}", "cuda")
    assert region.needs[:2] == ("NVIDIA GPU sm_90a", "NVIDIA's driver (libcuda.so.1)")
    assert bool(artifact.arena_bytes) == any("of its memory for a call" in need for need in region.needs)


def test_older_files_and_damaged_ones(tmp_path: Path) -> None:
    executable = package.compile(_model(), cache=False)
    executable.save(tmp_path / "model.mirlo")
    artifact, store = load(tmp_path / "model.mirlo")
    assert described_regions(artifact) == described_regions(executable.artifact)
    artifact.metadata["regions"][0]["share"] = 7
    save(tmp_path / "damaged.mirlo", artifact, store)
    with pytest.raises(ArtifactError, match="share': expected a number from 0 to 1, found 7"):
        load(tmp_path / "damaged.mirlo")
    del artifact.metadata["regions"]
    main = RegionDescription("main", "llvm", "llvm")
    assert described_regions(artifact) == (main,)
    external = ExternalArtifact("form", ("part0", "part1"), target="other")
    others = (RegionDescription("part0", "other", "form"), RegionDescription("part1", "other", "form"))
    assert described_regions(replace(artifact, externals=(external,))) == (*others, main)
