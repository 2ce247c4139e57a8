"""Counts of values."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.operation import AtenOperation
from mirlo.frontends.torch.registry import converter


@converter("aten.histc.default")
def histc(op: AtenOperation, x: Tensor, bins: int = 100, least: float = 0, most: float = 0) -> Tensor:
    """Count the values in equal parts of a range; equal ends stand for those of the data."""
    if not x.dtype.is_float:
        raise UnsupportedOperation(f"counts values of {x.dtype}")
    values = op.wide(op.reshaped(x, (D.product(x.shape),)))
    kind = values.dtype
    if least == most and D.is_certain(lambda: values.shape[0] >= 1):
        begin, end = (op.emit(name, values) for name in ("reduce_min", "reduce_max"))
        is_single = op.apply("equal", begin, end)
        begin = op.choose(is_single, op.apply("subtract", begin, 1), begin, kind)
        end = op.choose(is_single, op.apply("add", end, 1), end, kind)
    else:
        begin, end = op.constant(least, kind), op.constant(most, kind)
    part = op.apply(
        "divide", op.apply("multiply", op.apply("subtract", values, begin), bins), op.apply("subtract", end, begin)
    )
    is_inside = op.apply("logical_and", op.apply("greater_equal", values, begin), op.apply("less_equal", values, end))
    # What is in no part is counted behind the last.
    part = op.choose(is_inside, op.apply("minimum", op.apply("floor", part), bins - 1), bins, kind)
    ones = op.expanded(op.constant(1, kind), values.shape)
    counts = op.expanded(op.constant(0, kind), (bins + 1,))
    result = op.emit("scatter_elements", counts, op.cast(part, "i64"), ones, axis=0, reduction="add")
    return op.cast(op.sliced(result, 0, 0, bins), op.dtype)
