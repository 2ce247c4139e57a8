"""Kernels that differ only in names of symbols, or in the level of a pyramid that they compute, are compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.targets.llvm import emit, units
from mirlo.targets.llvm.units import CompilationUnit

CHANNELS = 16


def _pyramid(levels: int) -> onnx.ModelProto:
    """Return a model with convolutions from each level to the next, and one head of which each level has a copy."""
    rng = np.random.default_rng(0)
    weights = {
        "down": rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 12,
        "head": rng.standard_normal((CHANNELS, CHANNELS, 1, 1)) / 4,
    }
    nodes, outputs, below = [], [], "x"
    for level in range(levels):
        down = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node("Conv", [below, "down"], [f"level{level}"], **down))
        nodes.append(helper.make_node("Relu", [f"level{level}"], [f"relu{level}"]))
        nodes.append(helper.make_node("Conv", [f"relu{level}", "head"], [f"y{level}"], kernel_shape=[1, 1]))
        outputs.append(helper.make_tensor_value_info(f"y{level}", TensorProto.FLOAT, None))
        below = f"relu{level}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, CHANNELS, "height", "width"])
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "pyramid", [x], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def compiled_units(monkeypatch: pytest.MonkeyPatch) -> list[CompilationUnit]:
    """Return a list that receives the compiled units, each kernel in its own."""
    found: list[CompilationUnit] = []
    build = emit.build

    def record(given: Sequence[CompilationUnit], *arguments: Any, **options: Any) -> list[bytes]:
        found.extend(given)
        return build(given, *arguments, **options)

    monkeypatch.setattr(emit, "build", record)
    for limit in ("SMALL", "BUNDLED", "WHOLE_BUNDLE"):
        monkeypatch.setattr(units, limit, 0)
    return found


@pytest.mark.sample(0)
def test_levels_of_a_pyramid_share_kernels(compiled_units: list[CompilationUnit]) -> None:
    model = _pyramid(2)
    compiled: Any = mirlo.compile(model, cache=False, jobs=1)
    # Layouts of the input and the outputs, the convolution between levels and the head.
    assert len(compiled_units) - 1 == 4, [unit.name for unit in compiled_units]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in ((64, 48), (33, 97), (7, 1), (1, 20)):
        x = np.random.default_rng(1).standard_normal((1, CHANNELS, *size), dtype=np.float32)
        for expected, got in zip(session.run(None, {"x": x}), compiled(x), strict=True):
            np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


def test_names_of_symbols_do_not_matter(compiled_units: list[CompilationUnit]) -> None:
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.FLOAT, [name, 24]) for name in ("b", "z", "a")]
    nodes = [helper.make_node("Softmax", [each.name], [f"{each.name}_out"]) for each in inputs]
    outputs = [value(f"{each.name}_out", TensorProto.FLOAT, None) for each in inputs]
    graph = helper.make_graph(nodes, "rows", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    mirlo.compile(model, cache=False, jobs=1)
    assert len(compiled_units) == 2, [unit.name for unit in compiled_units]
