"""Bags of embeddings: rows of a table, combined by bag."""

from __future__ import annotations

from mirlo.extend.frontend import Dim, Tensor, UnsupportedOperation, maximum, where
from mirlo_torch.bounds import require_none, require_positions
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter

SUM, MEAN, MAX = range(3)
"""The modes of ATen's operator."""


@converter("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    op: AtenOperation, table: Tensor, indices: Tensor, offsets: Tensor, _: object = False, mode: int = SUM,
    sparse: bool = False, weights: Tensor | None = None, include_last_offset: bool = False, padding_index: int = -1,
) -> list[Tensor | None]:  # fmt: skip
    """Convert the sum, the mean or the maximum of the rows of each bag; an empty bag gives zeros."""
    if any(op.is_used(index) for index in (1, 2, 3)):
        raise UnsupportedOperation("gives the bags of its rows, which only gradients need")
    bags, kind = op.result(0).shape[0], op.result(0).dtype
    count = indices.shape[0]
    if count == 0 or bags == 0:
        return [op.constant(0, kind).expand(op.result(0).shape), None, None, None]
    require_positions(op, indices, table.shape[0])
    begins = offsets.cast("i64").slice(0, 0, bags)
    _require_offsets(op, offsets, count)
    positions = op.positions(begins.type.with_shape((count, 1)), 0)
    begun = begins.reshape((1, bags)) <= positions
    numbers = begun.cast("i64").sum(1)
    bag = (numbers - 1).reshape((count, 1))
    rows = op.wide(table.gather(indices, axis=0))
    wide = rows.dtype
    if weights is not None:
        rows = rows * weights.cast(wide).reshape((count, 1))
    kept = op.constant(1, wide).expand((count, 1))
    if padding_index >= 0:
        is_kept = indices.not_equals(padding_index).reshape((count, 1))
        rows = where(is_kept, rows, float("-inf") if mode == MAX else 0, wide)
        kept = is_kept.cast(wide)
    total = _combined(op, rows, bag, (bags, rows.shape[1]), "max" if mode == MAX else "add")
    counts = _combined(op, kept, bag, (bags, 1), "add")
    if mode == MEAN:
        total = total / maximum(counts, 1)
    elif mode == MAX:
        total = where(counts.equals(0), 0, total, wide)
    return [total.cast(kind), None, None, None]


def _require_offsets(op: AtenOperation, offsets: Tensor, count: Dim) -> None:
    """Require that the first bag begins with the first row, and that the last one begins, or ends, within the rows."""
    (listed,) = offsets.shape
    ends = offsets.cast("i64")
    first, last = (ends.slice(0, at, 1).reshape(()) for at in (0, listed - 1))
    wrong = first.not_equals(0) | (last > op.operand(count, "i64"))
    require_none(op, wrong, f"{op.name}: offsets that do not begin with 0, or exceed {count} rows")


def _combined(op: AtenOperation, rows: Tensor, bag: Tensor, shape: tuple[Dim, ...], reduction: str) -> Tensor:
    """Return rows combined by the number of their bag."""
    start = op.constant(float("-inf") if reduction == "max" else 0, rows.dtype)
    room = start.expand(shape)
    return op.emit("scatter_nd", room, bag, rows, reduction=reduction)
