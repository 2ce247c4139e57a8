"""The five benchmark models, whole: their weights are made of seeds where they are run, and are not carried along."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.runtime import artifact as artifacts
from mirlo.runtime.params import ParameterStore

from ..seeds import weight
from .folder import Folder, stored, with_options
from .graphs import write_graph

MODELS = ("mobilenetv2", "resnet50", "vit_base", "bert_base", "gpt2")
SMALLEST = 4096
"""Elements of a parameter that is worth a seed."""
MOST_STORED, STEPS = 1 << 18, (3, 7, 17, 37, 101, 251, 1009)
"""Elements of an output that are carried along; of a larger one, elements at this stride."""
BOUND = 1e-4
"""Largest error, relative to the largest number of an output."""


def add_model(
    folder: Folder, name: str, cache: str | None = None, options: str = "", precision: str | None = None
) -> None:
    """Add a unit of one model: outputs are compared with ONNX Runtime, times are those of whole calls."""
    import mirlo

    from ...models import path

    file = path(name, cache)
    inputs, expected = reference(file)
    executable = mirlo.compile(file, target=with_options(folder.target, options), cache=False, precision=precision)
    arrays: dict[str, np.ndarray] = {}
    sources = []
    for number, spec in enumerate(executable.inputs):
        arrays[f"i{number}"] = inputs[spec.name]
        sources.append({"key": f"i{number}"})
    checks = []
    for number, spec in enumerate(executable.outputs):
        wanted = expected[spec.name].astype(np.float32)
        step = 1 if wanted.size <= MOST_STORED else next(s for s in STEPS if wanted.size <= s * MOST_STORED)
        arrays[f"o{number}"] = wanted if step == 1 else wanted.reshape(-1)[::step]
        bound = BOUND if precision is None else 5e-2
        checks.append(stored(spec.name, [number], [f"o{number}"], bound, "relative", least=1e-30, step=step))
    title = name if precision is None else f"{name} {precision}"
    folder.add(
        executable, title, "models", inputs=tuple(sources), checks=tuple(checks), arrays=arrays, is_measured=True,
        is_latency=True, is_small=False, seconds=240.0, flops=float(sum(k.flops for k in executable.artifact.kernels)),
        weights=seeded_weights(executable, file), peer=write_graph(folder, name, file, precision is not None),
    )  # fmt: skip


def reference(model: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return inputs and the outputs of ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    inputs = {}
    for spec in session.get_inputs():
        if spec.type == "tensor(float)":
            inputs[spec.name] = generator.standard_normal(spec.shape, dtype=np.float32)
        elif spec.name == "attention_mask":
            inputs[spec.name] = (np.arange(spec.shape[1]) < spec.shape[1] * 3 // 4).astype(np.int64)[None]
        else:
            inputs[spec.name] = generator.integers(0, 2 if spec.name == "token_type_ids" else 30000, spec.shape)
    names = [output.name for output in session.get_outputs()]
    return inputs, dict(zip(names, session.run(names, inputs), strict=True))


def seeded_weights(executable: Any, file: Path) -> Callable[[Path], tuple[dict[str, Any], ...]]:
    """Return a function that writes the model without the weights that seeds give, and lists all of them."""

    def write(target: Path) -> tuple[dict[str, Any], ...]:
        artifact, store = executable.artifact, executable._store
        known = {
            dtype: _initializers(file, dtype)
            for dtype in {spec.dtype for spec in artifact.params} if dtype in ("f32", "f16", "bf16")
        }  # fmt: skip
        rows, kept = [], ParameterStore()
        for spec in artifact.params:
            row = {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}
            array = store.get(spec.name)
            initializer = _found(array, known[spec.dtype]) if array.size >= SMALLEST and spec.dtype in known else None
            if initializer is None:
                kept.add(spec.name, array)
            rows.append(row if initializer is None else {**row, **initializer})
        params = tuple(spec for spec in artifact.params if spec.name in kept)
        artifacts.save(target, replace(artifact, params=params), kept)
        return tuple(rows)

    return write


def _initializers(file: Path, dtype: str) -> dict[tuple[int, bytes], list[dict[str, Any]]]:
    """Return the weights of a benchmark model that come from seeds, by what identifies their values in any order."""
    import onnx

    from mirlo.tools.samples import GRAPHS, MARK

    name = file.stem.rpartition("-")[0] or file.stem
    initializers: dict[tuple[int, bytes], list[dict[str, Any]]] = {}
    for tensor in onnx.load(GRAPHS / f"{name}.onnx").graph.initializer:
        if tensor.doc_string.startswith(MARK):
            shape = list(tensor.dims)
            row = {
                "initializer": tensor.name, "seeded": json.loads(tensor.doc_string)["seeded"], "from": shape,
                "axes": list(range(len(shape))), "shape": shape, "dtype": dtype,
            }  # fmt: skip
            initializers.setdefault(_identity(weight(row)), []).append(row)
    return initializers


def _identity(array: np.ndarray) -> tuple[int, bytes]:
    flat = array.reshape(-1).astype(np.float32)
    return flat.size, np.sort(np.partition(flat, min(16, flat.size - 1))[:16]).tobytes()


def _found(array: np.ndarray, known: dict[tuple[int, bytes], list[dict[str, Any]]]) -> dict[str, Any] | None:
    """Return the initializer that a parameter is, and the order of its axes."""
    for row in known.get(_identity(array), ()):
        original = weight(row)
        for axes in itertools.permutations(range(original.ndim)):
            if np.array_equal(original.transpose(axes).reshape(-1), array.reshape(-1)):
                return {**{key: row[key] for key in ("initializer", "seeded", "from")}, "axes": list(axes)}
    return None
