"""Running maxima, minima and logarithms of sums: prefix scans along an axis in steps of doubled length."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from mirlo.extend.frontend import Tensor, concat, maximum, minimum, where
from mirlo_torch.operation import AtenOperation, axis_of
from mirlo_torch.registry import converter

Combine = Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]
"""Takes the values of two neighbouring ranges, the earlier first, and returns those of both together."""


def scanned(op: AtenOperation, values: Sequence[Tensor], axis: int, combine: Combine) -> list[Tensor]:
    """Return the prefix scan of an associative function along an axis."""
    result = list(values)
    size = op.fixed(result[0].shape[axis], "an axis whose size")
    step = 1
    while step < size:
        before = [x.slice(axis, 0, size - step) for x in result]
        after = [x.slice(axis, step, size - step) for x in result]
        heads = [x.slice(axis, 0, step) for x in result]
        result = [concat([head, tail], axis) for head, tail in zip(heads, combine(before, after), strict=True)]
        step *= 2
    return result


@converter("aten.cummax.default", "aten.cummin.default")
def running_extreme(op: AtenOperation, x: Tensor, axis: int) -> list[Tensor]:
    """Convert `cummax` and `cummin`: the position is the last among equal elements; NaN propagates."""
    kind = op.result(1).dtype
    if not x.rank:
        return [x, op.constant(0, kind)]
    axis = axis_of(axis, x.rank)
    wins = operator.ge if "max" in op.name else operator.le

    def combine(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[Tensor]:
        later = wins(after[0], before[0])
        if x.dtype.is_float:
            later = later | after[0].isnan()
        return [where(later, new, old, new.dtype) for old, new in zip(before, after, strict=True)]

    wide = x.cast("i8") if x.dtype.is_bool else x
    indices = op.positions(x.type.with_dtype(kind), axis)
    value, position = scanned(op, [wide, indices], axis, combine)
    return [value.cast(x.dtype), position]


@converter("aten.logcumsumexp.default")
def logcumsumexp(op: AtenOperation, x: Tensor, axis: int) -> Tensor:
    if not x.rank:
        return x
    y = op.wide(x.cast(op.dtype))

    def combine(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[Tensor]:
        high, low = maximum(before[0], after[0]), minimum(before[0], after[0])
        apart = (low - high).exp()
        total = high + apart.log1p()
        return [where(high.isinf(), high, total, y.dtype)]

    (result,) = scanned(op, [y], axis_of(axis, x.rank), combine)
    return result.cast(op.dtype)
