"""Dynamic sizes that no memory holds: an error that names the node and the sizes, and nothing is written."""

from __future__ import annotations

import numpy as np
import pytest
from c_compiler import with_c
from devices import needs_vulkan
from onnx import TensorProto, helper

import mirlo
from mirlo.passes.memory.extents import MAX_BYTES
from mirlo.runtime import memory
from mirlo.runtime.errors import ArtifactError, InputError, OutOfMemoryError
from mirlo.targets.spirv.vulkan import DeviceError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.ones((3, 4), np.float32)


def _model(nodes, inputs, output=FLOAT):
    values = [helper.make_tensor_value_info(*each) for each in inputs]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", output, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _sizes(*numbers):
    return np.array(numbers, np.int64)


OPERATORS = {
    "Expand": (["x", "s"], [("x", FLOAT, [1]), ("s", INT64, [2])], {"x": np.ones(1, np.float32)}),
    "Tile": (["x", "s"], [("x", FLOAT, [3, 4]), ("s", INT64, [2])], {"x": X}),
    "Pad": (["x", "s"], [("x", FLOAT, [3, 4]), ("s", INT64, [4])], {"x": X}),
    "ConstantOfShape": (["s"], [("s", INT64, [3])], {}),
    "Range": (
        ["a", "s", "d"], [("a", INT64, []), ("s", INT64, []), ("d", INT64, [])], {"a": np.array(0), "d": np.array(1)},
    ),
    "OneHot": (
        ["x", "s", "v"], [("x", INT64, [3]), ("s", INT64, [1]), ("v", FLOAT, [2])],
        {"x": _sizes(1, 2, 3), "v": np.array([0, 1], np.float32)},
    ),
    "Resize": (["x", "", "s"], [("x", FLOAT, [1, 1, 3, 4]), ("s", FLOAT, [4])], {"x": X[None, None]}),
}  # fmt: skip
HOSTILE = {
    "Expand": [_sizes(2**32, 2**30), _sizes(2**33, 2**31), _sizes(2**62, 1), _sizes(2**63 - 1, 2**63 - 1)],
    "Tile": [_sizes(2**60, 1), _sizes(2**62, 2**62), _sizes(1, 2**62), _sizes(-(2**63), 1)],
    "Pad": [_sizes(0, 0, 2**61, 0), _sizes(2**62, 0, 2**62, 2**62), _sizes(2**63 - 1, 0, 2**63 - 1, 0)],
    "ConstantOfShape": [_sizes(2**31, 2**31, 4), _sizes(2**62, 4, 1), _sizes(2**21, 2**21, 1), _sizes(-1, 3, 2)],
    "Range": [np.array(2**61), np.array(2**63 - 1)],
    "OneHot": [_sizes(2**61), _sizes(2**62)],
    "Resize": [np.array([1, 1, each, each], np.float32) for each in (1e9, 1e30, np.nan, np.inf)],
}
USUAL = {
    "Expand": _sizes(3, 2), "Tile": _sizes(3, 2), "Pad": _sizes(1, 0, 0, 1), "ConstantOfShape": _sizes(1, 2, 3),
    "Range": np.array(5), "OneHot": _sizes(5), "Resize": np.array([1, 1, 2, 2], np.float32),
}  # fmt: skip


@pytest.mark.sample(10)
@pytest.mark.parametrize("target", ["llvm", with_c("c"), with_c("c,llvm"), pytest.param("spirv", marks=needs_vulkan())])
@pytest.mark.parametrize("operator", OPERATORS)
def test_size_of_data_overflows(operator, target):
    names, inputs, feeds = OPERATORS[operator]
    node = helper.make_node(operator, names, ["y"])
    function = mirlo.compile(_model([node], inputs, INT64 if operator == "Range" else FLOAT), target)
    for sizes in HOSTILE[operator]:
        with pytest.raises((InputError, OutOfMemoryError, DeviceError)) as error:
            function.run({**feeds, "s": sizes})
        assert operator in str(error.value) or isinstance(error.value, (OutOfMemoryError, DeviceError))
    assert function.run({**feeds, "s": USUAL[operator]})["y"].size


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("n", ["n", 3])
@pytest.mark.parametrize("given", ["constant", "input"])
def test_padding_reads_inside(mode: str, n: str | int, given: str) -> None:
    """A reflection that is wider than the axis is repeated, as numpy does."""
    inputs = [("x", FLOAT, [n]), *([("p", INT64, [2])] if given == "input" else [])]
    model = _model([helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)], inputs)
    model.opset_import[0].version = 19
    if given == "constant":
        model.graph.initializer.append(helper.make_tensor("p", INT64, [2], [5, 4]))
    function = mirlo.compile(model)
    for size in (9, 3, 2, 1) if n == "n" else (3,):
        x = np.arange(size, dtype=np.float32)
        feeds = {"x": x, **({"p": _sizes(5, 4)} if given == "input" else {})}
        np.testing.assert_array_equal(function.run(feeds)["y"], np.pad(x, (5, 4), mode=mode))
    if given == "input":
        found = function.run({"x": np.arange(3, dtype=np.float32), "p": _sizes(-(2**31), 2**31 - 1)})["y"]
        assert found.shape == (2,) and np.isin(found, (0, 1, 2)).all()


def test_sizes_are_named():
    names, inputs, feeds = OPERATORS["Expand"]
    function = mirlo.compile(_model([helper.make_node("Expand", names, ["y"], name="grow")], inputs))
    with pytest.raises(InputError, match=r"grow: f32\[.*\] is larger than any memory, where .* = 4294967296, .* = 3"):
        function.run({**feeds, "s": _sizes(2**32, 3 * 2**30)})


def test_product_that_is_never_in_memory():
    """A sum over [2^32, 2^32] elements would have 0 iterations, and leave its result as it was."""
    nodes = [helper.make_node("Expand", ["x", "s"], ["e"]), helper.make_node("ReduceSum", ["e"], ["y"])]
    function = mirlo.compile(_model(nodes, OPERATORS["Expand"][1]))
    with pytest.raises(InputError, match="= 4294967296"):
        function.run({"x": np.ones(1, np.float32), "s": _sizes(2**32, 2**32)})


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [2**22, 2**31, 2**32, 2**40])
def test_sizes_of_inputs_overflow(size):
    """Dims may be any number in arrays without elements."""
    node = helper.make_node("Gemm", ["a", "b"], ["y"], transB=1)
    function = mirlo.compile(_model([node], [("a", FLOAT, ["n", "k"]), ("b", FLOAT, ["m", "k"])]))
    empty = np.empty((size, 0), np.float32)
    assert size * size * 4 > MAX_BYTES or size == 2**22
    with pytest.raises(ArtifactError if size == 2**22 else InputError, match=r"no memory for output|n = \d+"):
        function(empty, empty)
    assert function(np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)).shape == (2, 4)


def test_negative_dim():
    """A window that is larger than the image."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[5])
    function = mirlo.compile(_model([node], [("x", FLOAT, [1, 2, "n"])]))
    assert function(np.ones((1, 2, 9), np.float32)).shape == (1, 2, 5)
    with pytest.raises(InputError, match=r"window of 5 does not fit .*, where n = 3"):
        function(np.ones((1, 2, 3), np.float32))


def test_large_allocations_are_compared_with_what_is_available(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 29)
    names, inputs, feeds = OPERATORS["Expand"]
    function = mirlo.compile(_model([helper.make_node("Expand", names, ["y"])], inputs))
    with pytest.raises(OutOfMemoryError, match="1073741824 bytes are needed at once, and 536870912 are available"):
        function.run({**feeds, "s": _sizes(2**14, 2**14)})


@pytest.mark.parametrize("target", ["c,llvm", "onnx,llvm"])
def test_tensors_in_parts_for_others(target):
    """What a part computes inside is checked before the part is called."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("ReduceSum", ["c"], ["y"], keepdims=0),
    ]
    model = _model(nodes, [("a", FLOAT, ["n", 1, "k"]), ("b", FLOAT, [1, "m", "k"])])
    function = mirlo.compile(model, target)
    big = np.empty((2**32, 1, 0), np.float32)
    with pytest.raises(InputError, match="n = 4294967296"):
        function(big, big.reshape(1, 2**32, 0))
    assert function(np.ones((2, 1, 3), np.float32), np.ones((1, 4, 3), np.float32)) == 48


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", [2**63 - 1, 2**61, -(2**63) + 1, -(2**63), 2])
def test_slices_with_extreme_steps(step):
    """A step beyond the size takes one element: the length of the slice must not overflow."""
    node = helper.make_node("Slice", ["x", "s", "e", "a", "d"], ["y"], name="sliced")
    inputs = [("x", FLOAT, ["n", 4]), *((name, INT64, [1]) for name in "sead")]
    function = mirlo.compile(_model([node], inputs), cache=False)
    start, end = (0, 3) if step > 0 else (2, -(2**63))
    found = function.run({"x": X, "s": _sizes(start), "e": _sizes(end), "a": _sizes(0), "d": _sizes(step)})["y"]
    np.testing.assert_array_equal(found, X[0:3:2] if step == 2 else X[start : start + 1])
