"""What an operator requires of sizes holds at run time: a call whose sizes do not fit is an error that names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from c_compiler import with_c
from onnx_models import F32, I64, make_model, node

import mirlo
from mirlo.runtime.errors import InputError

TARGETS = ["llvm", with_c("c,llvm")]


def _zeros(sizes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return an array of zeros of each of these sizes: of integers for indices `i` and targets `t`."""
    return {name: np.zeros(shape, np.int64 if name in "it" else np.float32) for name, shape in sizes.items()}


def _refused(target: str, model: Any, sizes: Mapping[str, tuple[int, ...]], *texts: str) -> None:
    """Call a model with arrays of these sizes; the error must contain the texts."""
    function = mirlo.compile(model, target)
    with pytest.raises(InputError) as error:
        function.run(_zeros(sizes))
    assert all(text in str(error.value) for text in texts), error.value


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", GATHERS)
def test_gather_from_empty_axis(target: str, operator: str) -> None:
    inputs, sizes = GATHERS[operator]
    model = make_model([node(operator, "x i", "y", name="gather")], inputs, ["y"])
    _refused(target, model, sizes, "gather: axis", "is empty", "k = 4")
    result = mirlo.compile(model, target).run(_zeros({**sizes, "i": (0, *sizes["i"][1:])}))
    assert result["y"].size == 0
