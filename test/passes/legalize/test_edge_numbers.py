"""Numbers at the edges of types: overflowing sums, cancelling differences, infinities next to zero products."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo

U8, F32, F64 = TensorProto.UINT8, TensorProto.FLOAT, TensorProto.DOUBLE


def computed(node, arrays, constants=(), is_dynamic=False, target="llvm"):
    """Return the result of a node of these inputs, whose dims are numbers or are known in the call."""
    inputs = []
    for name, array in arrays.items():
        dims = [f"{name}{i}" for i in range(array.ndim)] if is_dynamic else array.shape
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims))
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return np.asarray(mirlo.compile(model, target)(*arrays.values()))


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("element", [np.uint8, np.int8, np.int32])
def test_cubic_sums_saturate(element, is_dynamic):
    limits = np.iinfo(element)
    x = np.array([[[[limits.min, limits.max] * 2 + [limits.min] * 2 + [limits.max] * 2]]], element)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="cubic")
    scales = [("scales", np.array([1, 1, 1, 2], np.float32))]
    exact = computed(node, {"x": x.astype(np.float32)}, scales, is_dynamic)
    assert exact.max() > limits.max and exact.min() < limits.min
    result = computed(node, {"x": x}, scales, is_dynamic)
    expected = np.clip(exact.astype(np.float64), limits.min, limits.max)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=1e-6, atol=1)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_gelu_of_negative_elements_does_not_cancel(target):
    x = np.array([-1e-300, -0.5, -1.0, -5.0, -8.2, -8.7, -20.0, -37.0, 0.5, 3.0, 40.0])
    expected = [0.5 * value * math.erfc(-value / math.sqrt(2)) for value in x]
    result = computed(helper.make_node("Gelu", ["x"], ["y"]), {"x": x}, target=target)
    np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_gelu_of_negative_elements_of_f32_does_not_cancel(target):
    """The argument of the exponential is rounded: an error that grows with its magnitude, to 80 units at the end."""
    x = np.concatenate([np.linspace(-12.9, 6.0, 400), [-1e-30, 1e30, -1e30, np.inf, -np.inf]]).astype(np.float32)
    wide = x.astype(np.float64)
    expected = [0.0 if value < -30 else 0.5 * value * math.erfc(-value / math.sqrt(2)) for value in wide]
    result = computed(helper.make_node("Gelu", ["x"], ["y"]), {"x": x}, target=target)
    np.testing.assert_allclose(result, np.array(expected), rtol=1e-5)
    assert np.isnan(computed(helper.make_node("Gelu", ["x"], ["y"]), {"x": np.float32([np.nan])}, target=target)).all()


@pytest.mark.sample(3)
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(
    ("stride", "kernel", "dilation"),
    [(3, 1, 1), (3, 2, 1), (2, 2, 2), (4, 2, 3), (7, 2, 3), (5000, 2, 1), (5000, 2, 3)],
)
def test_transposed_convolutions_are_zero_where_no_tap_contributes(stride, kernel, dilation, is_dynamic):
    x, weight = np.array([[[np.inf, 1.0]]], np.float32), np.ones((1, 1, kernel), np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[stride], dilations=[dilation])
    constants = [("w", weight), ("b", np.float32([2.0]))]
    result = computed(node, {"x": x}, constants, is_dynamic)[0, 0]
    reached = {i * stride + tap * dilation for i in range(2) for tap in range(kernel)}
    phases = {tap * dilation % stride for tap in range(kernel)}
    for position, value in enumerate(result):
        if position % stride not in phases:
            assert value == 2.0, (position, result)
    assert len(result) == max(reached) + 1
