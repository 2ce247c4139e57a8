"""Reductions of columns with the elementwise work around them: how many kernels they are, and what these compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo

SHAPES = ((4, 6, 5, 8), (2, 3, 3, 40), (1, 1, 1, 8), (0, 3, 3, 8), (3, 2, 0, 8))
TARGETS = ("llvm", "llvm{cpu=x86-64-v2}", "c")
Node = tuple[str, Sequence[str], str]
NORMALIZED: tuple[Node, ...] = (
    ("ReduceMean", ["x", "axes"], "mean"), ("Sub", ["x", "mean"], "centered"), ("Mul", ["centered"] * 2, "square"),
    ("ReduceMean", ["square", "axes"], "variance"), ("Add", ["variance", "scalar"], "positive"),
    ("Sqrt", ["positive"], "deviation"), ("Reciprocal", ["deviation"], "scale"), ("Mul", ["centered", "scale"], "unit"),
    ("Relu", ["unit"], "y"),
)  # fmt: skip
GRADIENTS: tuple[Node, ...] = (
    ("Greater", ["z", "scalar"], "mask"), ("Where", ["mask", "x", "scalar"], "g"), ("Sub", ["w", "m"], "centered"),
    ("Mul", ["g", "centered"], "product"), ("ReduceSum", ["product", "axes"], "by_scale"),
    ("ReduceSum", ["g", "axes"], "by_shift"), ("Mul", ["centered", "by_scale"], "first"),
    ("Sub", ["g", "first"], "second"), ("Sub", ["second", "by_shift"], "y"),
)  # fmt: skip


def model_of(nodes: Sequence[Node], shapes: dict[str, tuple[int, ...]], results: Sequence[str]) -> onnx.ModelProto:
    """Return a model with these inputs, the axes of N, H and W, and a number."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    values = [
        numpy_helper.from_array(np.array([0, 1, 2]), "axes"),
        numpy_helper.from_array(np.float32(0.125), "scalar"),
    ]
    graph = helper.make_graph(
        [helper.make_node(operator, list(operands), [result]) for operator, operands, result in nodes],
        "columns", inputs, [helper.make_empty_tensor_value_info(name) for name in results], values,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "Sub": np.subtract, "Mul": np.multiply, "Add": np.add, "Sqrt": np.sqrt, "Reciprocal": np.reciprocal,
    "Greater": np.greater, "Where": np.where, "Relu": lambda x: np.maximum(x, 0),
    "ReduceMean": lambda x, axes: x.mean(tuple(axes), keepdims=True),
    "ReduceSum": lambda x, axes: x.sum(tuple(axes), keepdims=True),
    "ReduceMax": lambda x, axes: x.max(tuple(axes), keepdims=True),
}  # fmt: skip


def expected(nodes: Sequence[Node], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return all values of a model, computed in f64."""
    values = {name: array.astype(np.float64) for name, array in arrays.items()}
    values |= {"axes": np.array([0, 1, 2]), "scalar": np.float64(0.125)}
    with np.errstate(all="ignore"):
        for operator, operands, result in nodes:
            values[result] = FUNCTIONS[operator](*(values[name] for name in operands))
    return values


def run(nodes: Sequence[Node], shapes: dict[str, tuple[int, ...]], results: Sequence[str], target: str) -> int:
    """Compile a model, prove its kernels and compare its results; return how many kernels it has."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    compiled = mirlo.compile(model_of(nodes, shapes, results), target, verify=True, cache=False)
    outputs = compiled(*arrays.values())
    with np.errstate(all="ignore"):
        values = expected(nodes, arrays)
    for name, output in zip(results, outputs if isinstance(outputs, tuple) else (outputs,), strict=True):
        np.testing.assert_allclose(np.asarray(output), values[name], rtol=1e-4, atol=1e-4)
    return len(compiled.artifact.kernels)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_norm_over_images_is_three_kernels(shape: tuple[int, ...], target: str) -> None:
    """The mean, the variance, and the normalized images."""
    assert run(NORMALIZED, {"x": shape}, ["y"], target) <= 3


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_a_norm_are_two_kernels(shape: tuple[int, ...], target: str) -> None:
    """Both sums, then the gradients of the images."""
    shapes = {"x": shape, "z": shape, "w": shape, "m": (1, 1, 1, shape[3])}
    most = 5 if 0 in shape else 2  # nothing is moved where there are no elements
    assert run(GRADIENTS, shapes, ["y", "by_scale", "by_shift"], target) <= most


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(200))
def test_random_maps_and_reductions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = SHAPES[int(rng.integers(0, 3))]
    shapes = {"x": shape, "w": shape, "m": (1, 1, 1, shape[3])}
    values, nodes = list(shapes), []
    for number in range(int(rng.integers(3, 12))):
        operator = ("Sub", "Mul", "Add", "Relu", "ReduceMean", "ReduceSum", "ReduceMax")[int(rng.integers(0, 7))]
        first, second = (values[int(rng.integers(0, len(values)))] for _ in range(2))
        operands = [first] if operator == "Relu" else [first, "axes"] if "Reduce" in operator else [first, second]
        if "Reduce" in operator and first == "m":
            continue
        nodes.append((operator, operands, f"t{number}"))
        values.append(f"t{number}")
    read = {name for _, operands, _ in nodes for name in operands}
    run(nodes, shapes, [name for _, _, name in nodes if name not in read], TARGETS[seed % len(TARGETS)])
