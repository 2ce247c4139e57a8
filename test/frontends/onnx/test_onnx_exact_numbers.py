"""Numbers that must be exact: limits of functions, results that are truncated."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_models import F32, make_model, node

import mirlo


def test_erf_of_large_numbers_is_one() -> None:
    """What is left of 1 + erf is multiplied with the number: a unit in the last place would show."""
    x = np.float32([-422.5, -4, -3.93, 4, 1e30, np.inf, -np.inf, np.nan])
    model = make_model([node("Erf", "x", "y"), node("Gelu", "x", "z")], {"x": (F32, [8])}, ["y", "z"], opset=20)
    y, z = mirlo.compile(model)(x)
    np.testing.assert_array_equal(y, np.float32([-1, -1, -1, 1, 1, 1, -1, np.nan]))
    np.testing.assert_array_equal(z[[0, 4, 5]], np.float32([0, 1e30, np.inf]))


@pytest.mark.sample(6)
@pytest.mark.parametrize("axes", [None, [1], [0, 2], []])
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_reductions_of_integers_that_leave_them(operator: str, kind: type, axes: list[int] | None) -> None:
    """Roots and logarithms of integers are those of f64, truncated, as ONNX's functions define them."""
    x = np.random.default_rng(3).integers(1, 40, (3, 4, 5)).astype(kind)
    given = {} if axes is None else {"a": np.array(axes, np.int64)}
    proto = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = node(operator, "x a" if given else "x", "y", noop_with_empty_axes=int(axes == []))
    model = make_model([made], {"x": (proto, x.shape)}, ["y"], given, opset=18, output_types={"y": (proto, None)})
    along = {None: (0, 1, 2), (): ()}.get(None if axes is None else tuple(axes), tuple(axes or ()))
    wide = x.astype(np.float64)
    expected = {
        "ReduceL2": lambda: np.sqrt((wide**2).sum(along, keepdims=True)),
        "ReduceLogSum": lambda: np.log(wide.sum(along, keepdims=True)),
        "ReduceLogSumExp": lambda: np.log(np.exp(wide).sum(along, keepdims=True)) if along else wide,
    }[operator]()
    np.testing.assert_array_equal(mirlo.compile(model, cache=False)(x), expected.astype(kind))
