"""Cases of operators whose sizes are known at run time: here they are numbers, and mean the same."""

from __future__ import annotations

import numpy as np

from mirlo.tools.conformance.case import ANY, FLOATS, INTS, NUMERIC_TYPES, Draw, OperatorCase, case, operator, wide
from mirlo.tools.conformance.networks import halved


@operator("dims_tensor", kinds=("i64",))
def _dims_tensor(draw: Draw) -> OperatorCase:
    return case(dims=[3, 1, 7], expected=np.array([3, 1, 7]))


@operator("steps", kinds=(*FLOATS, *INTS))
def _steps(draw: Draw) -> OperatorCase:
    start, delta = np.array(1, draw.kind.to_numpy()), np.array(3, draw.kind.to_numpy())
    return case(start, delta, shape=[7], expected=1 + 3 * np.arange(7))


@operator("nonzero", kinds=ANY)
def _nonzero(draw: Draw) -> OperatorCase:
    x = np.zeros((4, 5), draw.kind.to_numpy())
    x[[0, 2, 3], [4, 1, 1]] = 1
    return case(x, count=[3], expected=np.stack(np.nonzero(x)))


@operator("slice_bounds", kinds=("i64",))
def _slice_bounds(draw: Draw) -> OperatorCase:
    """Return ONNX's slice x[-3:100, ::, 4:0:-2] of a tensor of these sizes."""
    shape, starts, ends = np.array([5, 6, 7]), np.array([-3, 4]), np.array([100, 0])
    axes, steps = np.array([0, 2]), np.array([1, -2])
    return case(shape, starts, ends, axes, steps, expected=np.array([[2, 0, 4], [3, 6, 2], [1, 1, -2]]))


@operator("slice_at", kinds=ANY)
def _slice_at(draw: Draw) -> OperatorCase:
    x = draw.array(5, 7)
    bounds = np.array([[2, 4], [3, 2], [1, -2]])
    return case(x, bounds, shape=[3, 2], expected=wide(x)[2:5, 4:0:-2])


@operator("slice_dims", kinds=ANY)
def _slice_dims(draw: Draw) -> OperatorCase:
    x = draw.array(5, 7)
    return case(x, begin=[1, 6], shape=[2, 4], strides=[2, -1], expected=wide(x)[1:5:2, 6:2:-1])


@operator("pad_at", kinds=NUMERIC_TYPES)
def _pad_at(draw: Draw) -> OperatorCase:
    x, value = draw.array(3, 4), draw.array(low=1)
    expected = np.pad(wide(x)[1:], [(0, 2), (2, 1)], constant_values=wide(value))
    return case(x, np.array([-1, 2]), value, shape=[4, 7], expected=expected)


@operator("pad_at", kinds=NUMERIC_TYPES)
def _pad_at_by_reflection(draw: Draw) -> OperatorCase:
    x = draw.array(3, 4)
    expected = np.pad(wide(x), [(1, 1), (2, 3)], "reflect")
    return case(x, np.array([1, 2]), None, shape=[5, 9], mode="reflect", expected=expected)


@operator("spread_axes", kinds=ANY)
def _spread_axes(draw: Draw) -> OperatorCase:
    x = draw.array(3, 4)
    return case(x, outer=[3, 1], inner=[1, 4], expected=wide(x)[:, None, None])


@operator("resize_at", kinds=("f32", "f64"))
def _resize_at(draw: Draw) -> OperatorCase:
    """Return a case of twice as many columns, between the others."""
    x = draw.array(2, 3)
    w = wide(x)
    near, far = np.concatenate([w[:, :1], w[:, :-1]], 1), np.concatenate([w[:, 1:], w[:, -1:]], 1)
    expected = np.stack([0.75 * w + 0.25 * near, 0.75 * w + 0.25 * far], 2).reshape(2, 6)
    return case(x, np.array([1.0, 2.0]), None, shape=[2, 6], mode="linear", expected=expected)


@operator("resize_at", kinds=("f32", "f64"))
def _resize_at_antialiased(draw: Draw) -> OperatorCase:
    """Return a case of half as many columns, each from four."""
    x = draw.array(2, 6)
    return case(x, np.array([1.0, 0.5]), None, shape=[2, 3], mode="linear", antialias=True, expected=halved(wide(x)))
