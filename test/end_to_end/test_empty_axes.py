"""Operators that reduce, over axes without elements: every element of the result is written, and nothing traps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from c_compiler import needs_c_compiler, with_c
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.runtime.errors import MirloError

REDUCTIONS = (
    "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
ALONG = ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "ArgMax", "ArgMin")
OTHERS = (
    "CumSum", "TopK", "MeanVarianceNormalization", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "AveragePool",
    "MaxPool", "LpPool", "LRN",
)  # fmt: skip
NOT_COMPARED = ("GlobalMaxPool", "MaxPool")
"""The reference gives other shapes for these where there are no elements."""
SHAPES = ((2, 0, 4), (0, 3, 4), (2, 3, 0))


def _model(operator, dtype, shape):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants, attributes = [], {}
    if operator in REDUCTIONS:
        constants, attributes = [np.array([1])], {"keepdims": 0}
    elif operator in ALONG:
        attributes = {"axis": 1}
    elif operator == "CumSum":
        constants = [np.array(1)]
    elif operator == "TopK":
        constants, attributes = [np.array([0])], {"axis": 1}
    elif operator == "MeanVarianceNormalization":
        attributes = {"axes": [1]}
    elif operator in ("AveragePool", "MaxPool", "LpPool"):
        attributes = {"kernel_shape": [2], "pads": [1, 1]}
    elif operator == "LRN":
        attributes = {"size": 3}
    names = [f"c{i}" for i in range(len(constants))]
    outputs = {"y": TensorProto.INT64 if operator.startswith("Arg") else kind}
    if operator == "TopK":
        outputs["places"] = TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *names], list(outputs), **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, each, None) for name, each in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in zip(names, constants, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _expected(model, x):
    """What the reference computes; None where it fails."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return ReferenceEvaluator(model).run(None, {"x": x})
        except (ValueError, IndexError, RuntimeError, ZeroDivisionError):
            return None


@pytest.mark.parametrize("dtype", [np.float32, np.int32], ids=["f32", "i32"])
@pytest.mark.parametrize("operator", [*REDUCTIONS, *ALONG, *OTHERS])
def test_empty_axis(operator, dtype):
    if dtype is np.int32 and operator not in (*REDUCTIONS, "CumSum", "TopK"):
        pytest.skip("it takes floats")
    for shape in SHAPES:
        x = np.zeros(shape, dtype)
        fixed, dynamic = (_model(operator, dtype, each) for each in (shape, ["n", "m", "k"]))
        expected = _expected(fixed, x)
        for model in (fixed, dynamic):
            try:
                found = list(mirlo.compile(model, cache=False, jobs=1).run({"x": x}).values())
            except MirloError as error:
                assert not getattr(error, "internal", False)
                assert expected is None or dtype is np.int32, error
                continue
            if expected is None or operator in NOT_COMPARED:
                continue
            if operator == "ReduceMean" and dtype is np.int32:
                expected = [np.zeros_like(each) for each in expected]  # as ONNX Runtime: see docs/onnx.md
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


@needs_c_compiler
@pytest.mark.parametrize("target", ["c,llvm"])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax"])
def test_empty_axis_in_c(target, operator):
    x = np.zeros((2, 0, 4), np.int32)
    for shape in (x.shape, ["n", "m", "k"]):
        found = mirlo.compile(_model(operator, np.int32, shape), target, cache=False).run({"x": x})["y"]
        np.testing.assert_array_equal(found, np.full((2, 4), np.iinfo(np.int32).min if operator == "ReduceMax" else 0))


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
