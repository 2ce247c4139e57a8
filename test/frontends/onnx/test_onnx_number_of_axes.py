"""Reductions along a number of axes that only the call knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.dialects.relax.reduce import reductions_of_onnx
from mirlo.frontends.onnx.errors import OnnxImportError


def model_of(operator: str, **attributes: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "axes"], ["y"], name="total", **attributes)],
        "reduction",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "m"]),
            helper.make_tensor_value_info("axes", TensorProto.INT64, ["k"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def assert_like_reference(operator: str, is_noop: bool, lists: list[list[int]]) -> None:
    model = model_of(operator, noop_with_empty_axes=int(is_noop))
    compiled, x = mirlo.compile(model), np.random.default_rng(0).uniform(0.5, 2, (2, 3, 4)).astype(np.float32)
    for axes in lists:
        inputs = {"x": x, "axes": np.array(axes, np.int64)}
        # The reference applies no function to elements if nothing is reduced: that is a reduction of a further axis.
        alone = {"x": x[..., None], "axes": np.array([3])}
        wanted = ReferenceEvaluator(model_of(operator)).run(None, inputs if axes or not is_noop else alone)[0]
        named = {axis % 3 for axis in axes} if axes or is_noop else {0, 1, 2}
        wanted = wanted.reshape([1 if i in named else dim for i, dim in enumerate(x.shape)])
        np.testing.assert_allclose(compiled.run(inputs)["y"], wanted, rtol=1e-5, err_msg=f"{operator} {axes}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("operator", reductions_of_onnx())
def test_any_number_of_axes(operator: str) -> None:
    assert_like_reference(operator, False, [[], [1], [-1, 0], [2, 0, 1]])


@pytest.mark.sample(0)
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceLogSum"])
def test_no_axes_that_reduce_nothing(operator: str) -> None:
    assert_like_reference(operator, True, [[], [2], [0, 1]])


@pytest.mark.parametrize("axes", [[3], [-4], [0, 0], [0, -3], [0, 1, 2, 1]])
def test_what_names_no_axes(axes: list[int]) -> None:
    compiled = mirlo.compile(model_of("ReduceSum"))
    with pytest.raises(mirlo.MirloError, match="input 'axes' must name axes of the input"):
        compiled.run({"x": np.ones((2, 3, 4), np.float32), "axes": np.array(axes)})


def test_axes_that_are_removed_must_be_counted() -> None:
    with pytest.raises(OnnxImportError, match=r"list of k numbers: with keepdims = 0, .* or set keepdims = 1"):
        mirlo.compile(model_of("ReduceSum", keepdims=0))
    counted = mirlo.compile(model_of("ReduceSum", keepdims=0), shapes={"axes": [2]})
    x = np.ones((2, 3, 4), np.float32)
    np.testing.assert_array_equal(counted.run({"x": x, "axes": np.array([0, -1])})["y"], x.sum((0, 2)))


LISTS = ("starts", "ends", "axes", "steps")


def slice_of(known: str | None) -> onnx.ModelProto:
    """Return a Slice whose lists have dynamic lengths, except for one of length two."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    for name in LISTS:
        inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, [2 if name == known else f"of_{name}"]))
    node = helper.make_node("Slice", ["x", *LISTS], ["y"])
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("known", LISTS)
def test_the_lists_of_a_slice_have_one_length(known: str) -> None:
    compiled, x = mirlo.compile(slice_of(known)), np.arange(12, dtype=np.float32).reshape(4, 3)
    lists = {name: np.array(values) for name, values in zip(LISTS, ([1, 0], [4, 3], [0, 1], [1, 2]), strict=True)}
    np.testing.assert_array_equal(compiled.run({"x": x, **lists})["y"], x[1:4, 0:3:2])
    for name in LISTS:
        with pytest.raises(mirlo.MirloError):
            compiled.run({"x": x, **lists, name: np.array([1, 1, 1])})


def test_a_slice_along_axes_of_unknown_number_says_so() -> None:
    model = slice_of(None)
    with pytest.raises(mirlo.MirloError, match=r"\(Slice\): input 'axes' is a list of of_axes numbers: how"):
        mirlo.compile(model)
