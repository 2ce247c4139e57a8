"""Repetition of elements by counts that depend on data; writes and combined slices at positions of a tensor."""

from __future__ import annotations

from mirlo.extend.frontend import Dim, Tensor, concat, where
from mirlo_torch.operation import AtenOperation, axis_of
from mirlo_torch.ops.index import scatter_reduce
from mirlo_torch.registry import converter


@converter("aten.repeat_interleave.Tensor")
def repeat_interleave(op: AtenOperation, repeats: Tensor, *, output_size: Dim | None = None) -> Tensor:
    """Return the position of each element as many times as its count."""
    count = repeats.shape[0]
    if count == 0:
        return op.constant(0, op.dtype).expand(op.shape)
    wide = repeats.cast("i64")
    least = wide.min().reshape((1,))
    op.builder.require_values(least, 1, "repeat_interleave: the least number of repeats")
    ends = wide.cumsum(axis=0)
    total = ends.slice(0, count - 1, 1)
    if output_size is None:
        size = op.builder.bind_result(op, total)
    else:
        size = output_size
        rest = op.operand(size, "i64") - total
        both = concat([rest, -rest], 0)
        op.builder.require_values(both, 2, f"repeat_interleave: the sum of repeats, less {size}, which is declared")
    # Elements begin where others end: the number of ends up to a place is the position of its element.
    room = op.constant(0, op.dtype).expand((size + 1,))
    ones = op.constant(1, op.dtype).expand((count,))
    marks = op.emit("scatter_elements", room, ends, ones.cast(op.dtype), axis=0, reduction="add")
    return marks.cast("i64").cumsum(axis=0).slice(0, 0, size).cast(op.dtype)


@converter("aten.repeat_interleave.self_int")
def repeat_each(
    op: AtenOperation, x: Tensor, repeats: Dim, axis: int | None = None, *, output_size: Dim | None = None
) -> Tensor:
    """Repeat each element along an axis, or each element of the flattened tensor."""
    if axis is None:
        x, axis = x.reshape((x.type.elements,)), 0
    axis = axis_of(axis, x.rank)
    before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    rows = x.expand_dims(axis + 1).expand((*before, size, repeats, *behind))
    return rows.reshape((*before, size * repeats, *behind))


@converter("aten.put.default")
def put(op: AtenOperation, x: Tensor, indices: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Convert writes to the elements of a tensor in row-major order."""
    size, count = x.type.elements, indices.type.elements
    if count == 0:
        return x
    at = indices.reshape((count,))
    at = where(at < 0, at + op.operand(size, at.dtype), at, at.dtype)
    flat, new = x.reshape((size,)), source.reshape((count,))
    if not accumulate:
        return op.emit("scatter_elements", flat, at, new, axis=0).reshape(x.shape)
    result = op.emit("scatter_elements", op.wide(flat), at, op.wide(new), axis=0, reduction="add")
    return result.cast(x.dtype).reshape(x.shape)


@converter("aten.index_reduce.default")
def index_reduce(
    op: AtenOperation, x: Tensor, axis: int, indices: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Convert slices combined at positions along an axis."""
    if not x.rank:
        rows = [each.reshape((1,)) for each in (x, indices, source)]
        return scatter_reduce(op, rows[0], 0, rows[1], rows[2], reduce, include_self=include_self).reshape(())
    axis = axis_of(axis, x.rank)
    if 0 in x.shape or 0 in source.shape:
        return x
    column = indices.reshape((indices.type.elements, *[1] * (x.rank - axis - 1)))
    positions = column.expand(source.shape)
    return scatter_reduce(op, x, axis, positions, source, reduce, include_self=include_self)
