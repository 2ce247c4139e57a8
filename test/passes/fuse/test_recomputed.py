"""What is computed twice in one kernel and compared with itself: an element and the extreme of its row."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mirlo

SHAPES = (((6, 300), 1), ((40, 6), 0), ((3, 40, 6), 1), ((37,), 0))
SIZES = "mnk"


def model_of(operator: str, shape: tuple[int, ...], axis: int, is_dynamic: bool) -> onnx.ModelProto:
    """Return a model of an operator on a sum with a product, which machines round once or twice."""
    attributes = {} if operator == "Hardmax" else {"keepdims": 0}
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["product"]),
        helper.make_node("Add", ["product", "c"], ["sum"]),
        helper.make_node(operator, ["sum"], ["y"], axis=axis, **attributes),
    ]
    dims = list(SIZES[: len(shape)]) if is_dynamic else list(shape)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "abc"]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


CASES = list(itertools.product(("ArgMax", "ArgMin", "Hardmax"), SHAPES, (False, True), (0, 2)))


@pytest.mark.sample(8)
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(("operator", "place", "is_dynamic", "opt_level"), CASES)
def test_each_row_has_an_extreme(
    operator: str, place: tuple[tuple[int, ...], int], is_dynamic: bool, opt_level: int, target: str
) -> None:
    shape, axis = place
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    compiled = mirlo.compile(model_of(operator, shape, axis, is_dynamic), target, opt_level=opt_level)
    result = np.asarray(compiled(*arrays))
    if operator == "Hardmax":
        assert np.all(result.sum(axis) == 1)
        result = result.argmax(axis)
    total = arrays[0].astype(np.float64) * arrays[1] + arrays[2]
    assert np.all((result >= 0) & (result < shape[axis]))
    extreme = total.min(axis) if operator == "ArgMin" else total.max(axis)
    found = np.take_along_axis(total, np.expand_dims(result, axis), axis).squeeze(axis)
    np.testing.assert_allclose(found, extreme, rtol=1e-6, atol=1e-6)


@pytest.mark.sample(8)
@pytest.mark.parametrize(("operator", "place", "is_dynamic"), [case[:3] for case in CASES if not case[3]])
def test_operands_that_are_kept_have_schedules_on_gpus(
    operator: str, place: tuple[tuple[int, ...], int], is_dynamic: bool
) -> None:
    """Elements that threads of a block exchange are not in the memory of a result of other threads."""
    shape, axis = place
    mirlo.compile(model_of(operator, shape, axis, is_dynamic), "spirv", load=False)
