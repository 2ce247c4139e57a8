"""Inputs that decide shapes at run time, where the model declares the shapes: right values, and errors for others."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.frontends.onnx import OnnxImportError
from mirlo.runtime.errors import InputError, UnmetAssumption

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
X = np.arange(12, dtype=np.float32).reshape(3, 2, 2)


def model_of(
    operator: str, x: Any, length: int | None, shape: list[Any], opset: int = 18, **attributes: Any
) -> onnx.ModelProto:
    """One node with a data input and a list of integers, whose output has a declared shape."""
    node = helper.make_node(operator, ["x", "k"], ["y"], **attributes)
    given = [
        helper.make_tensor_value_info("x", F32, list(np.shape(x))),
        helper.make_tensor_value_info("k", I64, [] if length is None else [length]),
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", F32, shape)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def run(executable: Any, k: Any) -> np.ndarray:
    return executable(X, np.array(k, np.int64))


def test_axes_that_the_declared_shape_leaves_open() -> None:
    """Two axes have the declared size: both are compiled, and the input says which it is."""
    executable = mirlo.compile(model_of("ReduceSum", X, 1, [3, 2], keepdims=0))
    for axis in (1, 2, -1, -2):
        np.testing.assert_array_equal(run(executable, [axis]), X.sum(axis))
    for axis in (0, 3, -3):
        with pytest.raises(UnmetAssumption, match=r"'y' \(ReduceSum\): input 'axes' names other axes"):
            run(executable, [axis])


def test_several_axes() -> None:
    executable = mirlo.compile(model_of("ReduceMax", X, 2, [1, 2, 1]))
    for axes in ([0, 2], [2, 0], [-1, 0]):
        np.testing.assert_array_equal(run(executable, axes), X.max((0, 2), keepdims=True))
    with pytest.raises(UnmetAssumption, match="names other axes"):
        run(executable, [0, 1])


def test_shapes() -> None:
    executable = mirlo.compile(model_of("Reshape", X, 2, [3, 4]))
    for shape in ([3, 4], [3, -1], [-1, 4], [0, 4], [0, -1]):
        np.testing.assert_array_equal(run(executable, shape), X.reshape(3, 4))
    for shape in ([4, 3], [3, 0], [6, 2]):
        with pytest.raises(UnmetAssumption, match=r"\(Reshape\): input 'shape' is another"):
            run(executable, shape)


def test_dims_of_one() -> None:
    executable = mirlo.compile(model_of("Unsqueeze", X, 1, [3, 1, 2, 2]))
    for axis in (1, -3):
        np.testing.assert_array_equal(run(executable, [axis]), X[:, None])
    with pytest.raises(UnmetAssumption, match="names other axes"):
        run(executable, [2])


def test_expansion_and_repetition() -> None:
    executable = mirlo.compile(model_of("Expand", X, 4, [5, 3, 2, 2]))
    for shape in ([5, 3, 2, 2], [5, 1, 2, 1]):
        np.testing.assert_array_equal(run(executable, shape), np.broadcast_to(X, (5, 3, 2, 2)))
    with pytest.raises(UnmetAssumption, match="is another"):
        run(executable, [1, 3, 2, 2])
    executable = mirlo.compile(model_of("Tile", X, 3, [3, 4, 2]))
    np.testing.assert_array_equal(run(executable, [1, 2, 1]), np.tile(X, (1, 2, 1)))
    with pytest.raises(UnmetAssumption, match="'repeats' is another"):
        run(executable, [1, 1, 2])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_padding(mode: str) -> None:
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    executable = mirlo.compile(model_of("Pad", x, 4, [5, 7], opset=19, mode=mode))
    for before, after in (((1, 2), (1, 0)), ((0, 0), (2, 2)), ((2, 1), (0, 1))):
        found = executable(x, np.array([*before, *after]))
        np.testing.assert_array_equal(found, np.pad(x, tuple(zip(before, after, strict=True)), mode))
    with pytest.raises(UnmetAssumption, match="'pads' adds another number of elements"):
        executable(x, np.array([1, 1, 1, 2]))


def resize_model(scales: bool) -> onnx.ModelProto:
    names = ["x", "", "k"] if scales else ["x", "", "", "k"]
    node = helper.make_node("Resize", names, ["y"], mode="linear")
    given = [
        helper.make_tensor_value_info("x", F32, [1, 1, 2, 4]),
        helper.make_tensor_value_info("k", F32 if scales else I64, [4]),
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", F32, [1, 1, 4, 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_resizing() -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    sizes, scales = np.array([1, 1, 4, 3]), np.array([1, 1, 2, 0.75], np.float32)
    wanted = ReferenceEvaluator(resize_model(False)).run(None, {"x": x, "k": sizes})[0]
    by_sizes, by_scales = (mirlo.compile(resize_model(kind)) for kind in (False, True))
    np.testing.assert_allclose(by_sizes(x, sizes), wanted, rtol=1e-6)
    np.testing.assert_allclose(by_scales(x, scales), wanted, rtol=1e-6)
    with pytest.raises(UnmetAssumption, match="'sizes' is another"):
        by_sizes(x, np.array([1, 1, 4, 4]))


@pytest.mark.parametrize(("start", "limit", "delta"), [(1.0, 7.0, 2.0), (1.0, 6.5, 2.0), (3.0, -3.0, -2.0)])
def test_ranges(start: float, limit: float, delta: float) -> None:
    node = helper.make_node("Range", ["a", "b", "c"], ["y"])
    given = [helper.make_tensor_value_info(name, F32, []) for name in "abc"]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", F32, [3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    executable = mirlo.compile(model)
    bounds = [np.float32(number) for number in (start, limit, delta)]
    np.testing.assert_array_equal(executable(*bounds), np.arange(start, limit, delta, dtype=np.float32))
    with pytest.raises(UnmetAssumption, match="another number of elements"):
        executable(bounds[0], np.float32(limit + delta), bounds[2])


def test_without_a_declared_shape_the_sizes_are_those_of_the_data() -> None:
    sums = mirlo.compile(model_of("ReduceSum", X, 1, ["a", "b", "c"]))
    for axis in (0, 1, -1):
        found = sums(X, np.array([axis]))
        np.testing.assert_allclose(found, X.sum(axis, keepdims=True))
    with pytest.raises(InputError, match="input 'axes' must name axes of the input"):
        sums(X, np.array([3]))


def test_a_declared_shape_that_no_axes_make() -> None:
    sums = mirlo.compile(model_of("ReduceSum", X, 1, [7, 7], keepdims=0))
    np.testing.assert_array_equal(sums(X, np.array([1])), X.sum(1))


def test_sizes_of_parts_that_are_not_as_many_as_the_parts() -> None:
    made = helper.make_node("Split", ["x", "k"], ["y", "z"], axis=2)
    given = [helper.make_tensor_value_info("x", F32, [3, 2, 2]), helper.make_tensor_value_info("k", I64, [1])]
    outputs = [helper.make_tensor_value_info(name, F32, [3, 2, 1]) for name in "yz"]
    model = helper.make_model(helper.make_graph([made], "g", given, outputs), ir_version=9)
    with pytest.raises(OnnxImportError, match="must have the 2 numbers that the declared shape takes, got i64"):
        mirlo.compile(model)


WRONG: dict[str, tuple[str, int | None, list[int], list[int], dict[str, Any]]] = {
    "Reshape": ("Reshape", 2, [3, 4], [4, 3], {}),
    "Reshape of another size": ("Reshape", 2, [3, 5], [2, 6], {}),
    "Expand": ("Expand", 4, [5, 3, 2, 2], [2, 3, 2, 2], {}),
    "TopK": ("TopK", 1, [3, 2, 1], [2], {}),
    "Tile": ("Tile", 3, [3, 4, 2], [2, 1, 1], {}),
    "Pad": ("Pad", 6, [4, 2, 2], [0, 1, 0, 0, 0, 1], {}),
    "ReduceSum": ("ReduceSum", 1, [3, 1, 2], [0], {}),
    "Unsqueeze": ("Unsqueeze", 1, [3, 1, 2, 2], [3], {}),
}
"""Operator, elements of its list of integers, the declared shape, the list of a call, attributes."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_sessions_go_on_without_a_declared_shape_that_is_wrong(
    name: str, between: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """ONNX Runtime warns, and computes what the nodes say."""
    operator, length, shape, numbers, attributes = WRONG[name]
    model = model_of(operator, X, length, shape, **attributes)
    if operator == "TopK":
        model.graph.node[0].output.append("places")
    if between:
        model.graph.value_info.append(helper.make_tensor_value_info("between", F32, shape))
        model.graph.node[0].output[0] = "between"
        model.graph.node.append(helper.make_node("Neg", ["between"], ["y"]))
        model.graph.output[0].type.tensor_type.ClearField("shape")
    feeds = {"x": X, "k": np.array(numbers, np.int64)}
    expected = ReferenceEvaluator(model).run(["y"], feeds)[0]
    session = mirlo.InferenceSession(model.SerializeToString(), cache=False)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(["y"], feeds)[0], expected)
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    if name != "Reshape of another size":  # refused when it is imported: the number of elements is known
        assert len(warned) == 1 and f"({operator})" in warned[0] and "compiled anew" in warned[0], warned


def ways(x: np.ndarray) -> dict[str, tuple[list[int], dict[str, Any], np.ndarray]]:
    """Return the list of integers, the attributes and the result of operators, by name."""
    return {
        "Tile": ([1, 2], {}, np.tile(x, (1, 2))),
        "Pad": ([0, 1, 0, 1], {}, np.pad(x, ((0, 0), (1, 1)))),
        "Expand": ([2, 1, 4], {}, np.broadcast_to(x, (2, 3, 4))),
        "Reshape": ([-1, 6], {}, x.reshape(2, 6)),
        "ReduceSum": ([1], {"keepdims": 0}, x.sum(1)),
        "ReduceMax": ([0], {"keepdims": 1}, x.max(0, keepdims=True)),
        "Unsqueeze": ([1], {}, x[:, None]),
        "Squeeze": ([0], {}, x),
        "Split": ([1, 2], {"axis": 0}, x[:1]),
    }


@pytest.mark.parametrize("is_wrong", [False, True], ids=["right", "wrong"])
@pytest.mark.parametrize("dims", [(3, 4), ("n", 4), ("n", "m")], ids=str)
@pytest.mark.parametrize("operator", ways(np.ones((3, 4), np.float32)))
@pytest.mark.sample(12)
def test_declared_numbers(operator: str, dims: tuple[Any, ...], is_wrong: bool) -> None:
    """A declared shape never decides where the input may have another: the call computes what the operator makes.

    One that is wrong is ignored if that is known, or the call ends with an error that says so, after which a session
    goes on without it.
    """
    x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    numbers, attributes, expected = ways(x)[operator]
    if operator == "Squeeze":
        x, dims = x[None], (1, *dims)
    shape = list(expected.shape)
    model = model_of(operator, x, len(numbers), [shape[0] + 1, *shape[1:]] if is_wrong else shape, 18, **attributes)
    for declared, dim in zip(model.graph.input[0].type.tensor_type.shape.dim, dims, strict=True):
        if isinstance(dim, str):
            declared.dim_param = dim
    if operator == "Split":
        model.graph.node[0].output.append("z")
        model.graph.output.append(helper.make_tensor_value_info("z", F32, [2 + is_wrong, 4]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a declared shape that is wrong
        executable, session = mirlo.compile(model), mirlo.InferenceSession(model)
    feed = {"x": x, "k": np.array(numbers, np.int64)}
    try:
        np.testing.assert_array_equal(executable.run(feed)["y"], expected)
    except UnmetAssumption as error:
        assert is_wrong and "contradicts the shape that the model declares" in str(error)
    np.testing.assert_array_equal(session.run(["y"], feed)[0], expected)
