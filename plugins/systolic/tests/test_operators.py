"""Single operators on the simulated unit, with the bits of target `llvm`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from mirlo_systolic import simulator
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.testing import placement_of

pytestmark = pytest.mark.skipif(
    bool(simulator.missing_tools()), reason=f"install {', '.join(simulator.missing_tools())}"
)


@pytest.fixture
def rng() -> np.random.Generator:
    """Return the same numbers for each test: of ten million results one is so near to a half that it may differ."""
    return np.random.default_rng(0)


def _model(
    rng: np.random.Generator, nodes: list[onnx.NodeProto], shape: tuple[int, ...], weights: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """Return an int8 model of nodes from `x` to `y`."""
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return mirlo.quantize(model, rng.standard_normal((8, *shape[1:]), dtype=np.float32) * 2, whole=True).model


def _agrees(rng: np.random.Generator, model: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    unit, cpu = (mirlo.compile(model, target, cache=False) for target in ("systolic,llvm", "llvm"))
    assert len(unit.artifact.externals) == 1
    for _ in range(3):
        x = rng.standard_normal(shape, dtype=np.float32) * 3
        np.testing.assert_array_equal(unit(x), cpu(x))


POOLS = [
    ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("MaxPool", {"kernel_shape": [1, 2]}),
    ("AveragePool", {"kernel_shape": [2, 3], "strides": [2, 1]}),
    ("GlobalAveragePool", {}),
]
ACTIVATIONS = ["Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Elu", "LeakyRelu", "Gelu"]


@pytest.mark.parametrize(("operator", "attributes"), POOLS)
def test_pools(rng: np.random.Generator, operator: str, attributes: Mapping[str, object]) -> None:
    shape = (2, 20, 9, 8)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node(operator, ["a"], ["y"], **attributes)]
    model = _model(rng, nodes, shape, {"w": rng.standard_normal((20, 20, 1, 1), dtype=np.float32)})
    assert any(taken.pattern in ("pool", "mean") for taken in placement_of(model, "systolic,llvm").placement.taken)
    _agrees(rng, model, shape)


@pytest.mark.parametrize("operator", ACTIVATIONS)
def test_tables(rng: np.random.Generator, operator: str) -> None:
    shape = (1, 5, 9, 9)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node(operator, ["a"], ["y"])]
    model = _model(rng, nodes, shape, {"w": rng.standard_normal((20, 5, 3, 3), dtype=np.float32)})
    assert [taken.pattern for taken in placement_of(model, "systolic,llvm").placement.taken] == ["conv_table"]
    _agrees(rng, model, shape)


def test_products_with_a_table(rng: np.random.Generator) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    _agrees(rng, _model(rng, nodes, (7, 40), {"w": rng.standard_normal((40, 30), dtype=np.float32)}), (7, 40))


def test_pads_of_averages_stay_with_the_reason(rng: np.random.Generator) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("AveragePool", ["a"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    model = _model(rng, nodes, (1, 4, 8, 8), {"w": rng.standard_normal((4, 4, 1, 1), dtype=np.float32)})
    reasons = [attempt.reason for attempt in placement_of(model, "systolic,llvm").placement.attempts]
    assert any("the unit divides all windows by one number" in reason for reason in reasons)


def test_pixels_that_are_flattened_stay_with_the_reason(rng: np.random.Generator) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Flatten", ["a"], ["y"])]
    model = _model(rng, nodes, (1, 4, 8, 8), {"w": rng.standard_normal((4, 4, 1, 1), dtype=np.float32)})
    reasons = [attempt.reason for attempt in placement_of(model, "systolic,llvm").placement.attempts]
    assert any("a reshape of pixels permutes" in reason for reason in reasons)
    _agrees(rng, model, (1, 4, 8, 8))
