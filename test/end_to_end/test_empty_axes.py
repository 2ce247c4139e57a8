"""Operators over axes without elements: every element of the result is written, and nothing traps.

`mirlo fuzz empty` makes the models; this runs all of its operators once, many to a function.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from c_compiler import with_c
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.runtime.errors import MirloError
from mirlo.tools.fuzz import sizes
from mirlo.tools.fuzz.empty import CASES, COMPUTED, REFUSED, RIGHT, SizedCase, judge_nodes

LOSS = "SoftmaxCrossEntropyLoss"
DECLINED = ("ArgMax", "ArgMin", "Conv", "ConvTranspose", "LayerNormalization", "RMSNormalization", LOSS)
"""Operators without a result over some empty axes, or which are declined for them."""


def _nodes(zero: int, opset: int, dtype: type, is_dynamic: bool) -> list[SizedCase]:
    """Return a node of each operator of an opset; every third of its dims is 0, beginning with `zero`."""
    nodes = []
    for name, case in CASES.items():
        if case.opset != opset or dtype not in case.dtypes:
            continue
        letters = sorted({dim for shape in case.shapes for dim in shape if isinstance(dim, str)})
        first = zero % len(letters)
        sizes = {letter: 0 if i % 3 == first % 3 else 2 + i % 2 for i, letter in enumerate(letters)}
        nodes.append(SizedCase(name, dtype, sizes, is_dynamic, zero))
    return (nodes[zero::6] or nodes) if is_dynamic else nodes  # kernels for any sizes take longer to compile


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "zero, opset, dtype, is_dynamic",
    [
        (0, 18, np.float32, False), (1, 18, np.float32, True), (2, 18, np.float32, False), (4, 18, np.float32, True),
        (1, 18, np.int32, False), (1, 18, np.int32, True), (1, 21, np.float32, False), (2, 21, np.float32, True),
        (0, 23, np.float32, True), (1, 23, np.float32, False),
    ],
)  # fmt: skip
def test_operators_over_empty_axes(zero: int, opset: int, dtype: type, is_dynamic: bool) -> None:
    nodes = _nodes(zero, opset, dtype, is_dynamic)
    while (verdict := judge_nodes(nodes)).state == REFUSED:
        declined = nodes.pop(int(re.findall(r"node 'node(\d+)", verdict.text)[-1]))
        assert declined.name.split(" ")[0] in DECLINED, verdict.text
    assert verdict.state in (RIGHT, COMPUTED), verdict.text


def _reduced(operator: str, shape: tuple[int | str, ...]) -> object:
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "axes"], ["y"], keepdims=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(np.array([1]), "axes")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("target", [with_c("c,llvm")])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax"])
def test_empty_axis_in_c(target: str, operator: str) -> None:
    x = np.zeros((2, 0, 4), np.int32)
    for shape in (x.shape, ["n", "m", "k"]):
        found = mirlo.compile(_reduced(operator, shape), target, cache=False).run({"x": x})["y"]
        np.testing.assert_array_equal(found, np.full((2, 4), np.iinfo(np.int32).min if operator == "ReduceMax" else 0))


@pytest.mark.sample(3)
@pytest.mark.parametrize("operator, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("length", [0, "n"])
def test_recurrent_layer_of_length_0(operator, gates, length):
    shapes = {"x": [length, 2, 3], "w": [1, gates * 4, 3], "r": [1, gates * 4, 4]}
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "w", "r"], ["y", "h"], hidden_size=4)],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yh"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    feeds = {name: np.ones([0 if dim == length and name == "x" else dim for dim in shape], np.float32)
             for name, shape in shapes.items()}  # fmt: skip
    found = mirlo.compile(model, cache=False).run(feeds)
    assert found["y"].shape == (0, 1, 2, 4)
    np.testing.assert_array_equal(found["h"], np.zeros((1, 2, 4)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["llvm", with_c("c,llvm")])
@pytest.mark.parametrize("size", [1e3, 1e5, 1e7])
def test_log_softmax_of_large_numbers(target, size):
    x = (size + np.arange(8)[None] * np.array([[1.0], [0.0]])).astype(np.float32)
    node = helper.make_node("LogSoftmax", ["x"], ["y"], axis=1)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    wide = x.astype(np.float64) - x.max(1, keepdims=True)
    expected = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    found = mirlo.compile(model, target, cache=False).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


WITH_ELEMENTS = ("Einsum", "GlobalAveragePool", "MaxPool")
"""Operators whose results have elements where their inputs have none."""


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", [name for name in sizes.DIMS if name not in WITH_ELEMENTS])
def test_long_dims_of_empty_arrays_cost_nothing(name: str) -> None:
    """A loop over 2^40 rows without elements would have no end."""
    shapes, _ = sizes.DIMS[name]
    model = mirlo.compile(sizes.model_of_dims(name), cache=False)
    for known in ({"n": 1 << 40, "m": 1, "k": 0}, {"n": 1, "m": 1 << 40, "k": 0}):
        feeds = {
            f"x{i}": np.zeros([known[dim] if isinstance(dim, str) else dim for dim in shape], np.float32)
            for i, shape in enumerate(shapes)
        }
        try:
            found = model.run(feeds)
        except MirloError:
            continue  # the result has elements, or dims that are negative
        assert all(array.size < 1 << 20 for array in found.values())
