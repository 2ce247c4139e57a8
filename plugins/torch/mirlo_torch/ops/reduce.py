"""Reductions, positions of extremes, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mirlo.extend.frontend import Dim, Tensor, TensorType, UnsupportedOperation, maximum, where
from mirlo.extend.frontend import dims as D
from mirlo_torch.operation import AtenOperation, Axes, axis_of
from mirlo_torch.registry import converter

Reduction = Callable[..., Tensor]
"""A method of tensors that reduces them over axes: `Tensor.sum`."""


def axes_of(axes: Axes, rank: int) -> list[int]:
    """Return the axes of a reduction; an empty list means all."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return list(range(rank))
    return sorted({axis_of(axis, rank) for axis in ([axes] if isinstance(axes, int) else axes)})


def reduced(op: AtenOperation, how: Reduction, x: Tensor, axes: Axes, keepdim: bool = False) -> Tensor:
    """Return a reduction in the element type of x, 16-bit floats computed in f32."""
    if not x.rank:
        return x
    wide = op.wide(x)
    return how(wide, axes_of(axes, x.rank), keepdims=keepdim).cast(x.dtype)


def count_of(x: Tensor, axes: Axes) -> Dim:
    """Return the number of elements that are reduced."""
    return D.product([x.shape[axis] for axis in axes_of(axes, x.rank)] if x.rank else [])


@converter("aten.sum.default", "aten.sum.dim_IntList")
def sum_(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False, **ignored: object) -> Tensor:
    return reduced(op, Tensor.sum, x.cast(op.dtype), axes, keepdim)


@converter("aten.mean.default", "aten.mean.dim")
def mean(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False, **ignored: object) -> Tensor:
    return reduced(op, Tensor.mean, x.cast(op.dtype), axes, keepdim)


@converter("aten.prod.default", "aten.prod.dim_int")
def prod(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False, **ignored: object) -> Tensor:
    return reduced(op, Tensor.prod, x.cast(op.dtype), axes, keepdim)


@converter("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def extreme(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False) -> Tensor:
    return _extreme(op, "max" if "max" in op.name else "min", x, axes, keepdim)


def _extreme(op: AtenOperation, kind: str, x: Tensor, axes: Axes, keepdim: bool) -> Tensor:
    if not x.rank:
        return x
    if 0 in [x.shape[axis] for axis in axes_of(axes, x.rank)]:
        raise UnsupportedOperation(f"computes what PyTorch refuses: {op.name} of no elements")
    if x.dtype.is_bool:
        name = "reduce_any" if kind == "max" else "reduce_all"
        return op.emit(name, x, axes=axes_of(axes, x.rank), keepdims=keepdim)
    return op.emit(f"reduce_{kind}", x, axes=axes_of(axes, x.rank), keepdims=keepdim)


@converter("aten.max.dim", "aten.min.dim")
def extreme_along(op: AtenOperation, x: Tensor, axis: int, keepdim: bool = False) -> list[Tensor]:
    kind = "max" if "max" in op.name else "min"
    if not x.rank:
        return [x, op.constant(0, TensorType.of((), "i64").dtype)]
    axis = axis_of(axis, x.rank)
    return [_extreme(op, kind, x, axis, keepdim), op.position_of_extreme(kind, x, axis, keepdim).cast("i64")]


@converter("aten.argmax.default", "aten.argmin.default")
def argmax(op: AtenOperation, x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    kind = "max" if "max" in op.name else "min"
    if not x.rank:
        return op.constant(0, op.dtype)
    if axis is None:
        flat = x.reshape((x.type.elements,))
        return op.position_of_extreme(kind, flat, 0, False).cast(op.dtype).reshape(op.shape)
    return op.position_of_extreme(kind, x, axis_of(axis, x.rank), keepdim).cast(op.dtype)


@converter("aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims")
def any_(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False) -> Tensor:
    """Convert `any` and `all`, whose result for u8 is u8."""
    name = "reduce_any" if ".any." in op.name else "reduce_all"
    flags = x.cast("bool")
    empty = isinstance(axes, (list, tuple)) and not axes and op.name.endswith("dims")
    if x.rank and not empty:
        flags = op.emit(name, flags, axes=axes_of(axes, x.rank), keepdims=keepdim)
    return flags.cast(op.dtype)


@converter(
    "aten.var.correction", "aten.std.correction", "aten.var.dim", "aten.std.dim", "aten.var.default", "aten.std.default"
)
def var(
    op: AtenOperation, x: Tensor, axes: Axes = None, unbiased: float | bool | None = None, keep: bool = False, *,
    correction: float | None = None, keepdim: bool = False,
) -> Tensor:  # fmt: skip
    variance, _ = _spreads(op, x, axes, unbiased, keep, correction, keepdim)
    return variance.cast(op.dtype)


@converter("aten.var_mean.correction", "aten.std_mean.correction", "aten.var_mean.dim", "aten.std_mean.dim",
           "aten.var_mean.default", "aten.std_mean.default")  # fmt: skip
def var_mean(
    op: AtenOperation, x: Tensor, axes: Axes = None, unbiased: float | bool | None = None, keep: bool = False, *,
    correction: float | None = None, keepdim: bool = False,
) -> list[Tensor]:  # fmt: skip
    return [each.cast(x.dtype) for each in _spreads(op, x, axes, unbiased, keep, correction, keepdim)]


def _spreads(
    op: AtenOperation,
    x: Tensor,
    axes: Axes,
    unbiased: float | bool | None,
    keep: bool,
    correction: float | None,
    keepdim: bool,
) -> tuple[Tensor, Tensor]:
    """Return the variance or standard deviation, and the mean, for the arguments of an overload."""
    overload = op.name.rpartition(".")[2]
    if overload == "default":
        axes, correction = None, int(axes is not False)
    elif overload == "dim":
        correction, keepdim = int(unbiased is not False), keep
    variance, average = _moments(op, x, axes, 1 if correction is None else correction, keepdim)
    return (variance.sqrt() if ".std" in op.name else variance), average


def _moments(op: AtenOperation, x: Tensor, axes: Axes, correction: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return variance and mean, computed in f32 for 16-bit floats."""
    y = op.wide(x)
    kind, places = y.dtype, axes_of(axes, x.rank)
    center = y.mean(places, keepdims=True) if x.rank else y
    apart = y - center
    squares = apart * apart
    total = squares.sum(places, keepdims=keepdim) if x.rank else squares
    count = count_of(x, axes)
    if isinstance(count, int):
        divisor = max(count - correction, 0)
        result = total / float(divisor)
    else:
        rest = op.operand(count, kind) - float(correction)
        result = total / maximum(rest, 0.0)
    squeezed = [dim for axis, dim in enumerate(x.shape) if axis not in places]
    average = center if keepdim else center.reshape(squeezed if x.rank else ())
    return result, average


@converter("aten.logsumexp.default")
def logsumexp(op: AtenOperation, x: Tensor, axes: Axes, keepdim: bool = False) -> Tensor:
    y = op.wide(x.cast(op.dtype))
    kind, places = y.dtype, axes_of(axes, x.rank)
    if not x.rank:
        return y.cast(op.dtype)
    most = y.max(places, keepdims=True)
    most = where(most.isinf(), 0, most, kind)
    total = (y - most).exp().sum(places, keepdims=True)
    result = total.log() + most
    return result.reshape(op.shape).cast(op.dtype)


@converter("aten.cumsum.default", "aten.cumprod.default")
def running(op: AtenOperation, x: Tensor, axis: int, **ignored: object) -> Tensor:
    y = op.wide(x.cast(op.dtype))
    if not x.rank:
        return y.cast(op.dtype)
    name = op.name.split(".")[1]
    return op.emit(name, y, axis=axis_of(axis, x.rank)).cast(op.dtype)


@converter("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(op: AtenOperation, x: Tensor, axes: Axes = None) -> Tensor:
    return reduced(op, Tensor.sum, x.cast("bool").cast("i64"), axes)


@converter("aten.linalg_vector_norm.default")
def vector_norm(
    op: AtenOperation, x: Tensor, order: float = 2, axes: Axes = None, keepdim: bool = False, **ignored: object
) -> Tensor:
    return _norm(op, op.wide(x.cast(op.dtype)), order, axes, keepdim).cast(op.dtype)


@converter("aten._pdist_forward.default")
def pdist(op: AtenOperation, x: Tensor, order: float = 2.0) -> Tensor:
    """Convert the distances of all pairs of rows."""
    count = op.fixed(x.shape[0], "a number of rows")
    if op.shape[0] == 0:
        return op.constant(0, op.dtype).expand(op.shape)
    index = TensorType.of((), "i64").dtype
    one, other = (op.wide(x).gather(op.constant(rows, index, rows.shape), axis=0) for rows in np.triu_indices(count, 1))
    return _norm(op, one - other, order, [1], False).cast(op.dtype)


def _norm(op: AtenOperation, y: Tensor, order: float, axes: Axes, keepdim: bool) -> Tensor:
    kind = y.dtype
    size = abs(y)
    if order == 0:
        result = reduced(op, Tensor.sum, y.not_equals(0).cast(kind), axes, keepdim)
    elif math.isinf(order):
        result = _extreme(op, "max" if order > 0 else "min", size, axes, keepdim)
    elif order == 1:
        result = reduced(op, Tensor.sum, size, axes, keepdim)
    elif order == 2:
        result = reduced(op, Tensor.sum, y * y, axes, keepdim).sqrt()
    else:
        total = reduced(op, Tensor.sum, size ** float(order), axes, keepdim)
        result = total ** (1.0 / order)
    return result


@converter("aten._is_all_true.default", "aten._is_any_true.default")
def all_or_any(op: AtenOperation, x: Tensor) -> Tensor:
    if not x.rank:
        return x
    return x.all() if "all" in op.name else x.any()
