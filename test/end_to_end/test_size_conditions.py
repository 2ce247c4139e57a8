"""What an operator requires of sizes holds at run time: a call whose sizes do not fit is an error that names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from c_compiler import with_c
from onnx_models import BOOL, F32, I64, make_model, node

import mirlo
from mirlo.runtime.errors import InputError

TARGETS = ["llvm", with_c("c"), with_c("c,llvm")]


def _zeros(sizes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return an array of zeros of each of these sizes: of integers for indices `i` and targets `t`."""
    return {name: np.zeros(shape, np.int64 if name in "it" else np.float32) for name, shape in sizes.items()}


def _refused(target: str, model: Any, sizes: Mapping[str, tuple[int, ...]], *texts: str) -> None:
    """Call a model with arrays of these sizes; the error must contain the texts."""
    function = mirlo.compile(model, target)
    with pytest.raises(InputError) as error:
        function.run(_zeros(sizes))
    assert all(text in str(error.value) for text in texts), error.value


@pytest.mark.sample(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max"])
@pytest.mark.parametrize("rows", [2, "rows"])
def test_scatter_beyond_other_axes(target: str, reduction: str, rows: int | str) -> None:
    model = make_model(
        [node("ScatterElements", "x i u", "y", axis=1, reduction=reduction, name="scatter")],
        {"x": (F32, [rows, 3]), "i": (I64, ["n", "m"]), "u": (F32, ["n", "m"])}, ["y"],
    )  # fmt: skip
    large = (100000, 2)
    _refused(target, model, {"x": (2, 3), "i": large, "u": large}, "scatter: dim 0 of indices", "n = 100000")


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("loss", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_targets_of_other_sizes(target: str, loss: str, reduction: str) -> None:
    model = make_model(
        [node(loss, "x t", "y", reduction=reduction)],
        {"x": (F32, ["n", "c", "d"]), "t": (I64, ["m", "e"])}, ["y"],
    )  # fmt: skip
    _refused(target, model, {"x": (3, 5, 6), "t": (200000, 6)}, "200000")


GATHERS = {
    "Gather": ({"x": (F32, ["n", "m"]), "i": (I64, ["k"])}, {"x": (0, 3), "i": (4,)}),
    "GatherElements": ({"x": (F32, ["n", "m"]), "i": (I64, ["k", "p"])}, {"x": (0, 3), "i": (4, 3)}),
    "GatherND": ({"x": (F32, ["n", "m"]), "i": (I64, ["k", 2])}, {"x": (3, 0), "i": (4, 2)}),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", GATHERS)
def test_gather_from_empty_axis(target: str, operator: str) -> None:
    inputs, sizes = GATHERS[operator]
    model = make_model([node(operator, "x i", "y", name="gather")], inputs, ["y"])
    _refused(target, model, sizes, "gather: axis", "is empty", "k = 4")
    result = mirlo.compile(model, target).run(_zeros({**sizes, "i": (0, *sizes["i"][1:])}))
    assert result["y"].size == 0


SAMPLED = {
    "GridSample": ({"x": (F32, ["n", 2, "h", "w"]), "g": (F32, ["n", "p", "q", 2])}, {"g": (1, 3, 3, 2)}, {}),
    "RoiAlign": (
        {"x": (F32, ["n", 2, "h", "w"]), "r": (F32, ["k", 4]), "i": (I64, ["k"])}, {"r": (3, 4), "i": (3,)}, {},
    ),
    "DeformConv": (
        {"x": (F32, ["n", 2, "h", "w"]), "k": (F32, [1, 2, 1, 1]), "o": (F32, ["n", 2, "p", "q"])},
        {"k": (1, 2, 1, 1), "o": (1, 2, 2, 6)},
        {"pads": [1, 1, 1, 1]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", SAMPLED)
def test_samples_of_empty_images(operator: str) -> None:
    inputs, sizes, attributes = SAMPLED[operator]
    model = make_model([node(operator, " ".join(inputs), "y", name="sample", **attributes)], inputs, ["y"], opset=20)
    _refused("llvm", model, {"x": (1, 2, 0, 4), **sizes}, "sample: axis 2 of the operand", "is empty", "h = 0")


def test_reflected_samples_of_one_column() -> None:
    """The period of the reflection is 0: each position is the only one."""
    inputs = {"x": (F32, ["n", "c", "h", "w"]), "g": (F32, ["n", "p", "q", 2])}
    model = make_model(
        [node("GridSample", "x g", "y", padding_mode="reflection", align_corners=1)], inputs, ["y"], opset=20
    )
    x, grid = np.array([[[[3], [5]]]], np.float32), np.array([[[[9, -1], [-9, 1]]]], np.float32)
    np.testing.assert_array_equal(mirlo.compile(model).run({"x": x, "g": grid})["y"], [[[[3, 5]]]])


@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("given", ["input", "constant"])
def test_condition_longer_than_axis(axis: int | None, given: str) -> None:
    """What of a condition is longer than the axis selects nothing, as in ONNX Runtime."""
    chosen, attributes = np.array([True, False, True, True, True, False, True]), {} if axis is None else {"axis": axis}
    inputs = {"x": (F32, ["n", "m"]), **({"c": (BOOL, ["k"])} if given == "input" else {})}
    model = make_model(
        [node("Compress", "x c", "y", **attributes)], inputs, ["y"], {} if given == "input" else {"c": chosen}
    )
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for array in (x, x[:2], x[:1], x[:0]):
        feeds = {"x": array, **({"c": chosen} if given == "input" else {})}
        size = array.size if axis is None else len(array)
        np.testing.assert_array_equal(
            mirlo.compile(model).run(feeds)["y"], np.compress(chosen[:size], array, axis=axis)
        )


@pytest.mark.parametrize("target", ["llvm", with_c("c")])
def test_slice_of_an_axis_that_is_not_there(target: str) -> None:
    inputs = {"x": (F32, ["n", "m"]), **{name: (I64, [1]) for name in "sea"}}
    function = mirlo.compile(make_model([node("Slice", "x s e a", "y", name="part")], inputs, ["y"]), target)
    for axis in (1 << 40, -(1 << 40), 2, -3):
        feeds = {"s": 0, "e": 2, "a": axis}
        with pytest.raises(InputError, match="Slice"):
            function.run({"x": np.zeros((3, 4), np.float32), **{k: np.array([v]) for k, v in feeds.items()}})


@pytest.mark.parametrize("shapes", [((0, 3), (5, 3)), ((0, 3), (1, 7)), ((5, 0), (5, 7)), ((2, 1, 0), (3, 4))])
def test_shapes_without_elements_broadcast_or_not(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    inputs = {name: (F32, [f"{name}{i}" for i in range(len(shape))]) for name, shape in zip("xz", shapes, strict=True)}
    function = mirlo.compile(make_model([node("Add", "x z", "y", name="sum")], inputs, ["y"]))
    with pytest.raises(InputError, match="sum: a tensor of shape .* does not broadcast to"):
        function(*(np.zeros(shape, np.float32) for shape in shapes))
    assert function(*(np.zeros((0,) * len(shape), np.float32) for shape in shapes)).size == 0


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMax"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_memory_of_axes_as_an_input(operator: str, keepdims: int) -> None:
    """A reduction needs memory in proportion to its operand, whatever the axes are."""
    inputs = {"x": (F32, ["n", "m"]), "a": (I64, [1])}
    function = mirlo.compile(make_model([node(operator, "x a", "y", keepdims=keepdims)], inputs, ["y"]))
    x = np.arange(1 << 20, dtype=np.float32).reshape(1, -1) % 7
    for array in (x, x.T, x[:, :0], x[:0]):
        for axis in (0, 1):
            if array.size or operator == "ReduceSum":
                expected = getattr(array, operator[6:].lower())(axis, keepdims=bool(keepdims))
                np.testing.assert_array_equal(function.run({"x": array, "a": np.array([axis])})["y"], expected)


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_of_data_are_shown(target: str) -> None:
    """What data determine is checked where it is known, and in the branch that is taken only."""
    inputs = {"x": (F32, ["n", 3]), "c": (BOOL, ["k"]), "i": (I64, ["r"])}
    nodes = [node("Compress", "x c", "p", axis=0), node("Gather", "p i", "y", name="pick")]
    function = mirlo.compile(make_model(nodes, inputs, ["y"]), target)
    feeds = {"x": np.ones((2, 3), np.float32), "c": np.zeros(2, bool), "i": np.zeros(4, np.int64)}
    with pytest.raises(InputError, match=r"pick: axis 0 of .* is empty, where .* = 0, r = 4"):
        function.run(feeds)
    assert function.run({**feeds, "c": np.ones(2, bool)})["y"].shape == (4, 3)
    assert function.run({**feeds, "i": np.zeros(0, np.int64)})["y"].shape == (0, 3)
