"""Counts of values."""

from __future__ import annotations

from mirlo.extend.frontend import Tensor, UnsupportedOperation, minimum, where
from mirlo.extend.frontend import dims as D
from mirlo_torch.bounds import require_none
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter


@converter("aten.histc.default")
def histc(op: AtenOperation, x: Tensor, bins: int = 100, least: float = 0, most: float = 0) -> Tensor:
    """Count the values in equal parts of a range; equal ends mean the range of the data."""
    if not x.dtype.is_float:
        raise UnsupportedOperation(f"counts values of {x.dtype}")
    values = op.wide(x.reshape((D.product(x.shape),)))
    kind = values.dtype
    if least == most and D.is_certain(lambda: values.shape[0] >= 1):
        begin, end = (op.emit(name, values) for name in ("reduce_min", "reduce_max"))
        width = end - begin
        infinite = width.isnan() | (width >= float("inf"))
        require_none(op, infinite, f"{op.name}: values of which the least or the largest is not finite")
        is_single = begin.equals(end)
        begin = where(is_single, begin - 1, begin, kind)
        end = where(is_single, end + 1, end, kind)
    else:
        begin, end = op.constant(least, kind), op.constant(most, kind)
    part = (values - begin) * bins / (end - begin)
    is_inside = (values >= begin) & (values <= end)
    # What is in no part is counted after the last.
    part = where(is_inside, minimum(part.floor(), bins - 1), bins, kind)
    ones = op.constant(1, kind).expand(values.shape)
    counts = op.constant(0, kind).expand((bins + 1,))
    result = op.emit("scatter_elements", counts, part.cast("i64"), ones, axis=0, reduction="add")
    return result.slice(0, 0, bins).cast(op.dtype)
