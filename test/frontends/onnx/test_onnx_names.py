"""Names of values and dims in models, which must not clash with those of data-dependent sizes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo

NAMES = (
    "input.1", "/stages.1.0/Where_output_0", "a..b", ".5", "7", "x.", "if", "lambda.1", "a.if.b", "max", "min.2",
    "floordiv", "größe", "a b", "n*2", "None", "y.s1", "_", "::", "\N{SNOWMAN}", "x" * 300 + ".1", "t.0.s1",
)  # fmt: skip


def model_of(name: str, dims: list[str]) -> onnx.ModelProto:
    nodes = [
        helper.make_node("NonZero", ["in"], [name]),
        helper.make_node("Transpose", [name], ["rows"]),
        helper.make_node("Slice", ["rows", "from", "to"], [f"{name}.{name}"]),
        helper.make_node("Cast", [f"{name}.{name}"], ["out"], to=TensorProto.FLOAT),
    ]
    bounds = [helper.make_tensor(key, TensorProto.INT64, [1], [at]) for key, at in (("from", 1), ("to", 2**40))]
    given = helper.make_tensor_value_info("in", TensorProto.FLOAT, dims)
    found = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "names", [given], [found], bounds)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_value_whose_size_data_tells(name: str) -> None:
    model = model_of(name, ["n", "m"])
    x = np.arange(12, dtype=np.float32).reshape(4, 3) % 5 % 3
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"in": x})[0]
    np.testing.assert_array_equal(mirlo.compile(model).run({"in": x})["out"], expected)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name, other",
    [
        ("7", "d_7"),
        ("if", "d_if"),
        ("a b", "a_b"),
        ("a.1", "a_1"),
        ("n", "rows.s.s1"),
        ("n", "rows.s.s2"),
        ("", "in_dim0"),
    ],
)
def test_names_of_dims_that_must_not_become_one(name: str, other: str) -> None:
    """Also not with that of a data-dependent size."""
    x = np.ones((2, 3), np.float32)
    for dims in ([name, other], [other, name]):
        found = mirlo.compile(model_of("rows.s", dims)).run({"in": x})["out"]
        np.testing.assert_array_equal(found, np.stack(np.nonzero(x), 1)[1:])


def test_a_message_says_the_name_in_the_model() -> None:
    nodes = [helper.make_node("Reshape", ["in", "input.1"], ["out.2"])]
    inputs = [
        helper.make_tensor_value_info("in", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("input.1", TensorProto.INT64, [2]),
    ]
    outputs = [helper.make_tensor_value_info("out.2", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "names", inputs, outputs)
    compiled = mirlo.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    with pytest.raises(mirlo.MirloError, match=r"out\.2"):
        compiled.run({"in": np.ones(6, np.float32), "input.1": np.array([4, 2])})
