"""Loops whose types only an iteration determines: of variables without initial types, of rows of computed sizes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo.runtime.errors import InputError

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model_of(has_limit: bool, has_condition: bool, collects: bool) -> onnx.ModelProto:
    """Return a model that adds its input to a sum until that is large, and carries the last product of both."""
    make, info = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [
            make("Add", ["v", "x"], ["w"]),
            make("Mul", ["w", "x"], ["product"]),
            make("ReduceSum", ["w"], ["sum"], keepdims=0),
            make("Less", ["sum", "most"], ["few"]),
            make("Cast", ["i"], ["number"], to=F32),
        ],
        "body",
        [info("i", I64, []), info("was", BOOL, []), info("v", F32, None), info("undefined", F32, None)],
        [info("few", BOOL, []), info("w", F32, None), info("product", F32, None)]
        + ([info("number", F32, None)] if collects else []),
    )
    outputs = ["y", "p", *(["numbers"] if collects else [])]
    inputs = ["limit" if has_limit else "", "starts" if has_condition else "", "x", "nothing"]
    held = {"most": np.float32(20), "nothing": np.float32(0)}
    graph = helper.make_graph(
        [make("Loop", inputs, outputs, body=body)],
        "g",
        [info("x", F32, ["n", 2])]
        + ([info("limit", I64, [])] if has_limit else [])
        + ([info("starts", BOOL, [])] if has_condition else []),
        [info(name, F32, None) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("collects", [False, True])
@pytest.mark.parametrize("has_condition", [False, True])
@pytest.mark.parametrize("has_limit", [False, True])
def test_a_variable_that_an_iteration_defines(has_limit: bool, has_condition: bool, collects: bool) -> None:
    model = model_of(has_limit, has_condition, collects)
    compiled, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    given: dict[str, np.ndarray] = {"starts": np.array(True)} if has_condition else {}
    for rows, value, limit in ((1, 1.0, 1), (1, 1.0, 3), (3, 0.5, 100), (2, 30.0, 5)):
        inputs = {
            "x": np.full((rows, 2), value, np.float32),
            **given,
            **({"limit": np.array(limit)} if has_limit else {}),
        }
        for found, expected in zip(compiled.run(inputs).values(), oracle.run(None, inputs), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_loop_without_iterations_leaves_it_undefined() -> None:
    compiled = mirlo.compile(model_of(has_limit=True, has_condition=True, collects=False))
    x = np.ones((1, 2), np.float32)
    for starts, limit in ((False, 3), (True, 0)):
        with pytest.raises(InputError, match="the loop has no iteration, but 'nothing' is f32"):
            compiled.run({"x": x, "starts": np.array(starts), "limit": np.array(limit)})


def test_scalars_and_tensors_of_one_element() -> None:
    """The flag is a scalar in one branch, a vector in the other; the loop carries it as it was before."""
    make, info = helper.make_node, helper.make_tensor_value_info
    true = helper.make_tensor("true", BOOL, [], [1])
    zero = helper.make_tensor("zero", BOOL, [1], [0])
    branches = {
        "then_branch": helper.make_graph([make("Constant", [], ["t"], value=true)], "t", [], [info("t", BOOL, None)]),
        "else_branch": helper.make_graph(
            [make("Constant", [], ["o"], value=zero), make("Or", ["flag", "o"], ["e"])],
            "e",
            [],
            [info("e", BOOL, None)],
        ),
    }
    body = helper.make_graph(
        [
            make("Add", ["v", "step"], ["w"]), make("Greater", ["w", "most"], ["is_large"]),
            make("If", ["is_large"], ["next"], **branches), make("Not", ["next"], ["more"]),
        ],
        "body",
        [info("i", I64, []), info("was", BOOL, []), info("v", F32, []), info("flag", BOOL, [])],
        [info("more", BOOL, []), info("w", F32, []), info("next", BOOL, [])],
    )  # fmt: skip
    graph = helper.make_graph(
        [make("Loop", ["", "", "x", "false"], ["y", "f"], body=body), make("Reshape", ["f", "one"], ["g"])],
        "g",
        [info("x", F32, []), info("step", F32, [])],
        [info("y", F32, []), info("g", BOOL, [1])],
        [
            onnx.numpy_helper.from_array(np.asarray(value), name)
            for name, value in {"most": np.float32(10), "false": np.array(False), "one": np.array([1])}.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    compiled, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    for x, step in ((0.0, 1.0), (0.0, 20.0), (9.0, 0.25)):
        inputs = {"x": np.array(x, np.float32), "step": np.array(step, np.float32)}
        for found, expected in zip(compiled.run(inputs).values(), oracle.run(None, inputs), strict=True):
            assert found.tolist() == expected.tolist()


def model_of_rows(has_limit: bool, factor: int) -> onnx.ModelProto:
    """Return a model that collects, in iteration i, the first k + factor * i elements of its input."""
    make, info = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [
            make("Mul", ["i", "factor"], ["more"]), make("Add", ["k", "more"], ["end"]),
            make("Slice", ["x", "zero", "end"], ["part"]), make("Cast", ["i"], ["number"], to=F32),
            make("Mul", ["part", "number"], ["row"]), make("Less", ["i", "last"], ["goes_on"]),
        ],
        "body",
        [info("i", I64, []), info("was", BOOL, [])],
        [info("goes_on", BOOL, []), info("row", F32, ["any"])],
    )  # fmt: skip
    graph = helper.make_graph(
        [make("Loop", ["limit" if has_limit else "", ""], ["rows"], body=body)],
        "g",
        [info("x", F32, ["n"]), info("k", I64, [1])] + ([info("limit", I64, [])] if has_limit else []),
        [info("rows", F32, None)],
        [
            onnx.numpy_helper.from_array(np.asarray(value, np.int64), name)
            for name, value in {"zero": [0], "factor": factor, "last": 4}.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("has_limit", [False, True])
def test_rows_of_sizes_that_an_iteration_computes(has_limit: bool) -> None:
    model = model_of_rows(has_limit, 0)
    compiled, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    for n, k, limit in ((8, 3, 3), (2, 7, 9), (5, 0, 1)):
        inputs = {"x": np.arange(n, dtype=np.float32), "k": np.array([k])}
        inputs |= {"limit": np.array(limit)} if has_limit else {}
        (found,), (expected,) = compiled.run(inputs).values(), oracle.run(None, inputs)
        assert found.shape == expected.shape and found.tolist() == expected.tolist()


@pytest.mark.parametrize("has_limit", [False, True])
def test_rows_of_other_sizes_are_refused_by_the_call(has_limit: bool) -> None:
    compiled = mirlo.compile(model_of_rows(has_limit, 1))
    inputs = {"x": np.arange(9, dtype=np.float32), "k": np.array([2])}
    with pytest.raises(InputError, match="what the loop carries as f32|which other nodes need"):
        compiled.run(inputs | ({"limit": np.array(3)} if has_limit else {}))
