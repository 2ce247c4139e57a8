"""Reductions, positions of extremes, running sums."""

from __future__ import annotations

import math

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.operation import AtenOperation, Axes, axis_of
from mirlo.frontends.torch.registry import converter


def axes_of(axes: Axes, rank: int) -> list[int]:
    """Return the axes of a reduction; none stands for all."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return list(range(rank))
    return sorted({axis_of(axis, rank) for axis in ([axes] if isinstance(axes, int) else axes)})


def reduced(op: AtenOperation, name: str, x: Tensor, axes: Axes, keepdim: bool = False) -> Tensor:
    """Return a reduction in the element type of x, 16-bit floats computed in f32."""
    if not x.rank:
        return x
    wide = op.wide(x)
    result = op.emit(name, wide, axes=axes_of(axes, x.rank), keepdims=keepdim)
    return op.cast(result, x.dtype)


def count_of(x: Tensor, axes: Axes) -> Dim:
    """Return the number of elements that a reduction takes."""
    return D.product([x.shape[axis] for axis in axes_of(axes, x.rank)] if x.rank else [])


@converter("aten.sum.default", "aten.sum.dim_IntList")
def sum_(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False, **ignored: object) -> Tensor:
    return reduced(op, "reduce_sum", op.cast(x, op.dtype), axes, keepdim)


@converter("aten.mean.default", "aten.mean.dim")
def mean(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False, **ignored: object) -> Tensor:
    return reduced(op, "reduce_mean", op.cast(x, op.dtype), axes, keepdim)


@converter("aten.prod.default", "aten.prod.dim_int")
def prod(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False, **ignored: object) -> Tensor:
    return reduced(op, "reduce_prod", op.cast(x, op.dtype), axes, keepdim)


@converter("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def extreme(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False) -> Tensor:
    return _extreme(op, "max" if "max" in op.name else "min", x, axes, keepdim)


def _extreme(op: AtenOperation, kind: str, x: Tensor, axes: Axes, keepdim: bool) -> Tensor:
    if not x.rank:
        return x
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
    return [_extreme(op, kind, x, axis, keepdim), op.cast(op.position_of_extreme(kind, x, axis, keepdim), "i64")]


@converter("aten.argmax.default", "aten.argmin.default")
def argmax(op: AtenOperation, x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    kind = "max" if "max" in op.name else "min"
    if not x.rank:
        return op.constant(0, op.dtype)
    if axis is None:
        flat = op.reshaped(x, (x.type.elements,))
        return op.reshaped(op.cast(op.position_of_extreme(kind, flat, 0, False), op.dtype), op.shape)
    return op.cast(op.position_of_extreme(kind, x, axis_of(axis, x.rank), keepdim), op.dtype)


@converter("aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims")
def any_(op: AtenOperation, x: Tensor, axes: Axes = None, keepdim: bool = False) -> Tensor:
    """Convert `any` and `all`, whose result for u8 is u8."""
    name = "reduce_any" if ".any." in op.name else "reduce_all"
    flags = op.cast(x, "bool")
    empty = isinstance(axes, (list, tuple)) and not axes and op.name.endswith("dims")
    if x.rank and not empty:
        flags = op.emit(name, flags, axes=axes_of(axes, x.rank), keepdims=keepdim)
    return op.cast(flags, op.dtype)


@converter(
    "aten.var.correction", "aten.std.correction", "aten.var.dim", "aten.std.dim", "aten.var.default", "aten.std.default"
)
def var(
    op: AtenOperation, x: Tensor, axes: Axes = None, given: float | bool | None = None, keep: bool = False, *,
    correction: float | None = None, keepdim: bool = False,
) -> Tensor:  # fmt: skip
    variance, _ = _spreads(op, x, axes, given, keep, correction, keepdim)
    return op.cast(variance, op.dtype)


@converter("aten.var_mean.correction", "aten.std_mean.correction", "aten.var_mean.dim", "aten.std_mean.dim",
           "aten.var_mean.default", "aten.std_mean.default")  # fmt: skip
def var_mean(
    op: AtenOperation, x: Tensor, axes: Axes = None, given: float | bool | None = None, keep: bool = False, *,
    correction: float | None = None, keepdim: bool = False,
) -> list[Tensor]:  # fmt: skip
    return [op.cast(each, x.dtype) for each in _spreads(op, x, axes, given, keep, correction, keepdim)]


def _spreads(
    op: AtenOperation,
    x: Tensor,
    axes: Axes,
    given: float | bool | None,
    keep: bool,
    correction: float | None,
    keepdim: bool,
) -> tuple[Tensor, Tensor]:
    """Return the variance, or the standard deviation, and the mean, by the arguments of an overload."""
    overload = op.name.rpartition(".")[2]
    if overload == "default":
        axes, correction = None, int(axes is not False)
    elif overload == "dim":
        correction, keepdim = int(given is not False), keep
    variance, average = _moments(op, x, axes, 1 if correction is None else correction, keepdim)
    return (op.apply("sqrt", variance) if ".std" in op.name else variance), average


def _moments(op: AtenOperation, x: Tensor, axes: Axes, correction: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return variance and mean, of 16-bit floats in f32."""
    y = op.wide(x)
    kind, places = y.dtype, axes_of(axes, x.rank)
    center = op.emit("reduce_mean", y, axes=places, keepdims=True) if x.rank else y
    apart = op.apply("subtract", y, center)
    squares = op.apply("multiply", apart, apart)
    total = op.emit("reduce_sum", squares, axes=places, keepdims=keepdim) if x.rank else squares
    count = count_of(x, axes)
    if isinstance(count, int):
        divisor = max(count - correction, 0)
        result = op.apply("divide", total, float(divisor))
    else:
        rest = op.apply("subtract", op.operand(count, kind), float(correction))
        result = op.apply("divide", total, op.apply("maximum", rest, 0.0))
    squeezed = [dim for axis, dim in enumerate(x.shape) if axis not in places]
    average = center if keepdim else op.reshaped(center, squeezed if x.rank else ())
    return result, average


@converter("aten.logsumexp.default")
def logsumexp(op: AtenOperation, x: Tensor, axes: Axes, keepdim: bool = False) -> Tensor:
    y = op.wide(op.cast(x, op.dtype))
    kind, places = y.dtype, axes_of(axes, x.rank)
    if not x.rank:
        return op.cast(y, op.dtype)
    most = op.emit("reduce_max", y, axes=places, keepdims=True)
    most = op.choose(op.apply("isinf", most), 0, most, kind)
    total = op.emit("reduce_sum", op.apply("exp", op.apply("subtract", y, most)), axes=places, keepdims=True)
    result = op.apply("add", op.apply("log", total), most)
    return op.cast(op.reshaped(result, op.shape), op.dtype)


@converter("aten.cumsum.default", "aten.cumprod.default")
def running(op: AtenOperation, x: Tensor, axis: int, **ignored: object) -> Tensor:
    y = op.wide(op.cast(x, op.dtype))
    if not x.rank:
        return op.cast(y, op.dtype)
    name = op.name.split(".")[1]
    return op.cast(op.emit(name, y, axis=axis_of(axis, x.rank)), op.dtype)


@converter("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(op: AtenOperation, x: Tensor, axes: Axes = None) -> Tensor:
    return reduced(op, "reduce_sum", op.cast(op.cast(x, "bool"), "i64"), axes)


@converter("aten.linalg_vector_norm.default")
def vector_norm(
    op: AtenOperation, x: Tensor, order: float = 2, axes: Axes = None, keepdim: bool = False, **ignored: object
) -> Tensor:
    return op.cast(_norm(op, op.wide(op.cast(x, op.dtype)), order, axes, keepdim), op.dtype)


@converter("aten._pdist_forward.default")
def pdist(op: AtenOperation, x: Tensor, order: float = 2.0) -> Tensor:
    """Convert the distances of all pairs of rows."""
    count = op.fixed(x.shape[0], "a number of rows")
    if op.shape[0] == 0:
        return op.expanded(op.constant(0, op.dtype), op.shape)
    index = TensorType.of((), "i64").dtype
    one, other = (
        op.emit("gather", op.wide(x), op.constant(rows, index, rows.shape), axis=0)
        for rows in np.triu_indices(count, 1)
    )
    return op.cast(_norm(op, op.apply("subtract", one, other), order, [1], False), op.dtype)


def _norm(op: AtenOperation, y: Tensor, order: float, axes: Axes, keepdim: bool) -> Tensor:
    kind = y.dtype
    size = op.apply("abs", y)
    if order == 0:
        result = reduced(op, "reduce_sum", op.cast(op.apply("not_equal", y, 0), kind), axes, keepdim)
    elif math.isinf(order):
        result = _extreme(op, "max" if order > 0 else "min", size, axes, keepdim)
    elif order == 1:
        result = reduced(op, "reduce_sum", size, axes, keepdim)
    elif order == 2:
        result = op.apply("sqrt", reduced(op, "reduce_sum", op.apply("multiply", y, y), axes, keepdim))
    else:
        total = reduced(op, "reduce_sum", op.apply("power", size, float(order)), axes, keepdim)
        result = op.apply("power", total, 1.0 / order)
    return result


@converter("aten._is_all_true.default", "aten._is_any_true.default")
def all_or_any(op: AtenOperation, x: Tensor) -> Tensor:
    return op.emit("reduce_all" if "all" in op.name else "reduce_any", x) if x.rank else x
