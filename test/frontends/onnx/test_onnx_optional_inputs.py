"""Inputs with a default value: constants, or inputs where `shapes` names them; against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.driver.optional_inputs import default_inputs
from mirlo.frontends.onnx import OnnxImportError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
A = np.ones((3, 2), np.float32)


def model() -> onnx.ModelProto:
    """Return x + (x @ a) @ b, where a and b have default values of 2 rows."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"]), helper.make_node("MatMul", ["xa", "b"], ["xab"]),
        helper.make_node("Add", ["x", "xab"], ["y"]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    inputs = [info("x", 1, ["n", 3]), info("a", 1, [3, "rank"]), info("b", TensorProto.FLOAT, ["rank", 3])]
    defaults = [numpy_helper.from_array(A, "a"), numpy_helper.from_array(A.T.copy(), "b")]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", 1, ["n", 3])], defaults)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.sample(0)
@pytest.mark.parametrize("rank", (0, 1, 2, 5, 16))
def test_inputs_that_are_named(rank: int) -> None:
    random = np.random.default_rng(rank)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((3, rank), (rank, 3)))
    session = onnxruntime.InferenceSession(model().SerializeToString())
    for shapes in ({"a": None, "b": None}, {"a": [3, rank], "b": None}, {"a": [3, "r"], "b": ["r", 3]}):
        executable = mirlo.compile(model(), shapes=shapes)
        assert [spec.name for spec in executable.inputs] == ["x", "a", "b"]
        expected = session.run(None, {"x": X, "a": a, "b": b})[0]
        np.testing.assert_allclose(executable(X, a, b), expected, rtol=1e-5, atol=1e-6)


def test_others_are_constants() -> None:
    executable = mirlo.compile(model())
    assert [spec.name for spec in executable.inputs] == ["x"]
    np.testing.assert_allclose(executable(X), X + X @ A @ A.T, rtol=1e-6)
    one = mirlo.compile(model(), shapes={"a": None})
    np.testing.assert_allclose(one(X, 2 * A), X + 2 * X @ A @ A.T, rtol=1e-6)


def test_declared_shapes_stay_trusted() -> None:
    """A shape of None keeps the model's declarations; a contradicting output is still reported."""
    wrong = model()
    wrong.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
    for shapes in (None, {"x": None}, {"a": None}, {"x": ["n", 3]}):
        with pytest.warns(UserWarning, match="output 'y' is declared"):
            assert mirlo.compile(wrong, shapes=shapes).outputs[0].shape[1] == 3


def test_names_that_are_no_inputs() -> None:
    with pytest.raises(OnnxImportError, match="a shape is given for 'c', which is not an input"):
        mirlo.compile(model(), shapes={"c": None})


def test_defaults_of_inputs(tmp_path: Any) -> None:
    onnx.save(model(), tmp_path / "model.onnx")
    found = default_inputs(tmp_path / "model.onnx")
    assert found.keys() == {"x", "a", "b"} and found["x"] is None
    np.testing.assert_array_equal(found["a"], A)
