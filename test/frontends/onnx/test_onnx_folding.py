"""Sizes that a model computes from constants are numbers after import, whatever operators compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo

F32, I64 = np.float32, np.int64
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Pow", (F32(64), F32(0.5)), {}),
    ("Pow", (F32(2), I64(3)), {}),
    ("Pow", (I64(2), I64(3)), {}),
    ("Pow", (I64(64), F32(0.5)), {}),
    ("Exp", (F32(2.08),), {}),
    ("Log", (F32(2985),), {}),
    ("Sqrt", (F32(64),), {}),
    ("Reciprocal", (F32(0.125),), {}),
    ("Round", (F32(8.5),), {}),
    ("Round", (F32(7.5),), {}),
    ("Floor", (F32(8.7),), {}),
    ("Ceil", (F32(7.3),), {}),
    ("Sign", (F32(9),), {}),
    ("Sum", (F32(3), F32(4), F32(1)), {}),
    ("Mean", (F32(3), F32(4), F32(17)), {}),
    ("Clip", (F32(9), F32(1), F32(8)), {}),
    ("Clip", (I64(-9), I64(8)), {}),
    ("Mod", (F32(18), F32(10)), {"fmod": 1}),
    ("Mod", (I64(-2), I64(10)), {}),
    ("Mod", (I64(18), I64(10)), {"fmod": 1}),
    ("ReduceMax", (F32([3, 8, 5]),), {}),
    ("ReduceMin", (F32([13, 8, 15]),), {}),
    ("ReduceSum", (F32([3, 4, 1]),), {}),
    ("ReduceProd", (F32([2, 4, 1]),), {}),
    ("ReduceMean", (F32([6, 8, 10]),), {}),
    ("ReduceMean", (I64([6, 8, 10]),), {}),
    ("ArgMax", (F32([1, 2, 9, 3]),), {"axis": 0}),
    ("ArgMin", (F32([9, 2, 1, 3]),), {"axis": 0}),
    ("CumSum", (I64([8]), I64(0)), {}),
    ("Flatten", (I64([[8]]),), {"axis": 2}),
]


def _model(operator: str, values: tuple[Any, ...], attributes: dict[str, Any]) -> onnx.ModelProto:
    """Reshape `x` of n x 24 to [result, -1], the result as ONNX's integer cast gives it."""
    names = [f"c{i}" for i in range(len(values))]
    nodes = [
        helper.make_node(operator, names, ["result"], **attributes),
        helper.make_node("Cast", ["result"], ["number"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["number", "one"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    held = [onnx.numpy_helper.from_array(np.asarray(each), name) for name, each in zip(names, values, strict=True)]
    held += [onnx.numpy_helper.from_array(I64([1]), "one"), onnx.numpy_helper.from_array(I64([-1]), "rest")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8 * 9 * 2 * 3 * 5 * 7])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "folding", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("operator", "values", "attributes"), CASES)
def test_result_of_constants_is_a_number(operator: str, values: tuple[Any, ...], attributes: dict[str, Any]) -> None:
    model = _model(operator, values, attributes)
    x = np.zeros((2, 8 * 9 * 2 * 3 * 5 * 7), np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    compiled = mirlo.compile(model)
    assert compiled.outputs[0].shape[0] == expected.shape[0]
    assert compiled.run({"x": x})["y"].shape == expected.shape
