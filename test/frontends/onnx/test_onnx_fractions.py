"""Sizes that models compute with floats from dims: they stay functions of the inputs' dims."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Nodes:
    """Nodes that compute scalars, and the constants that they read."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: object, dtype: type) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def number(self, operator: str, x: str, value: float) -> str:
        return self.add(operator, x, self.constant(value, np.float32))


def _size(nodes: Nodes, axis: int) -> str:
    dims = nodes.add("Shape", "x")
    return nodes.add("Cast", nodes.add("Gather", dims, nodes.constant(axis, np.int64)), to=FLOAT)


def _model(nodes: Nodes, dims: list[int | str], of_output: list[onnx.NodeProto]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [*nodes.nodes, *of_output],
        "sizes",
        [helper.make_tensor_value_info("x", FLOAT, dims)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        nodes.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _same_padding(kernel: int, stride: int) -> onnx.ModelProto:
    """Return padding as TensorFlow's "same", as timm's models compute it with tensors."""
    nodes = Nodes()
    pads = []
    for axis in (3, 2):
        size = _size(nodes, axis)
        steps = nodes.number("Sub", nodes.add("Ceil", nodes.number("Div", size, stride)), 1)
        wanted = nodes.number("Add", nodes.number("Add", nodes.number("Mul", steps, stride), kernel - 1), 1)
        missing = nodes.add("Clip", nodes.add("Sub", wanted, _size(nodes, axis)), nodes.constant(0, np.float32))
        half = nodes.add("Cast", nodes.number("Div", missing, 2), to=INT64)
        half = nodes.add("Cast", half, to=FLOAT)
        zero = nodes.constant([0], np.int64)
        pads += [nodes.add("Unsqueeze", each, zero) for each in (half, nodes.add("Sub", missing, half))]
    listed = nodes.add("Cast", nodes.add("Concat", *pads, axis=0), to=INT64)
    listed = nodes.add("Concat", listed, nodes.constant([0] * 4, np.int64), axis=0)
    pairs = nodes.add("Reshape", listed, nodes.constant([-1, 2], np.int64))
    ends = (nodes.constant([value], np.int64) for value in (-1, -(2**63) + 1, 0, -1))
    pairs = nodes.add("Transpose", nodes.add("Slice", pairs, *ends), perm=[1, 0])
    listed = nodes.add("Reshape", pairs, nodes.constant([-1], np.int64))
    return _model(nodes, ["batch", 3, "h", "w"], [helper.make_node("Pad", ["x", listed], ["y"])])


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (5, 2), (3, 1), (7, 4), (2, 4), (3, 8)])
def test_same_padding_depends_on_dims_only(kernel: int, stride: int) -> None:
    model = _same_padding(kernel, stride)
    compiled = mirlo.compile(model)
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    assert compiled.outputs[0].shape[:2] == ("batch", 3)
    assert all(set("hw") & set(str(dim)) and "." not in str(dim) for dim in compiled.outputs[0].shape[2:])
    for h, w in ((1, 1), (2, 3), (7, 8), (9, 16), (33, 20)):
        x = np.random.default_rng(h).standard_normal((2, 3, h, w), dtype=np.float32)
        np.testing.assert_array_equal(compiled(x), reference.run(None, {"x": x})[0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(16))
def test_random_arithmetic(seed: int) -> None:
    """Also of what no dim can say, such as quotients by 3, which are left to the call."""
    rng = np.random.default_rng(seed)
    nodes = Nodes()
    value = _size(nodes, 0)
    for _ in range(int(rng.integers(1, 7))):
        operator = str(rng.choice(["Add", "Sub", "Mul", "Div", "Ceil", "Floor", "Max", "Min", "Neg", "Relu", "Clip"]))
        if operator in ("Ceil", "Floor", "Neg", "Relu"):
            value = nodes.add(operator, value)
        elif operator == "Clip":
            value = nodes.add(operator, value, *(nodes.constant(limit, np.float32) for limit in (-2, 20)))
        else:
            numbers = [2, 4, 0.5, 8, 3] if operator == "Div" else [1, 2, 3, 0.25, 5]
            value = nodes.number(operator, value, float(rng.choice(numbers)))
    if rng.random() < 0.5:
        value = nodes.add("Add", value, _size(nodes, 1))
    size = nodes.number("Min", nodes.add("Abs", value), 100)
    small = nodes.add("Cast", nodes.add("Relu", value), to=INT64)
    zero = nodes.constant([0], np.int64)
    shape = nodes.add(
        "Concat", *(nodes.add("Unsqueeze", nodes.add("Cast", each, to=INT64), zero) for each in (size, small)), axis=0
    )
    model = _model(nodes, ["batch", "m"], [helper.make_node("ConstantOfShape", [shape], ["y"])])
    compiled = mirlo.compile(model)
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    for n, m in ((0, 1), (1, 0), (2, 5), (7, 3), (16, 9), (31, 2)):
        x = np.zeros((n, m), np.float32)
        assert compiled(x).shape == reference.run(None, {"x": x})[0].shape, (n, m)
