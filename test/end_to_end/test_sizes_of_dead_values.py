"""Values of which only the size is read: how many elements data select, and nothing that they are."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo

NODES = {
    "nonzero": [("NonZero", ["x"], ["n"], {})],
    "compress": [("Compress", ["x", "c"], ["n"], {"axis": 1})],
    "flat compress": [("Compress", ["x", "c"], ["n"], {})],
    "unique": [("Unique", ["x"], ["n"], {})],
    "gather": [
        ("NonZero", ["x"], ["a"], {}), ("Transpose", ["a"], ["b"], {}), ("GatherND", ["x", "b"], ["n"], {}),
    ],
    "behind others": [("NonZero", ["x"], ["a"], {}), ("Cast", ["a"], ["b"], {"to": 1}), ("Relu", ["b"], ["n"], {})],
}  # fmt: skip
RANKS = {"nonzero": 2, "compress": 2, "behind others": 2}
X = np.array([[0, 1, 2], [3, 0, 0]], np.float32)
C = np.array([True, False, True])


def model(form: str, reader: str, is_dynamic: bool) -> ModelProto:
    shapes = (["a", "b"], ["k"]) if is_dynamic else ([2, 3], [3])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes[0])]
    if any("c" in taken for _, taken, _, _ in NODES[form]):
        inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, shapes[1]))
    nodes = [helper.make_node(name, taken, made, **attributes) for name, taken, made, attributes in NODES[form]]
    output = helper.make_tensor_value_info("y", TensorProto.INT64, [RANKS.get(form, 1)] if reader == "Shape" else [])
    graph = helper.make_graph([*nodes, helper.make_node(reader, ["n"], ["y"])], "g", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.sample(6)
@pytest.mark.parametrize("form", NODES)
@pytest.mark.parametrize("reader", ["Size", "Shape"])
@pytest.mark.parametrize("is_dynamic", [True, False])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_sizes(target: str, is_dynamic: bool, reader: str, form: str) -> None:
    made = model(form, reader, is_dynamic)
    feeds = {value.name: array for value, array in zip(made.graph.input, (X, C), strict=False)}
    (expected,) = ReferenceEvaluator(made).run(None, feeds)
    np.testing.assert_array_equal(mirlo.compile(made, target, cache=False)(*feeds.values()), expected)
