"""Reads and writes at positions; sorting and the largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirlo.extend.frontend import (
    Dim,
    Tensor,
    TensorType,
    UnsupportedOperation,
    broadcast_shape,
    maximum,
    minimum,
    stack,
    where,
)
from mirlo.extend.frontend import dims as D
from mirlo_torch.bounds import require_none, require_positions
from mirlo_torch.operation import AtenOperation, Operand, axis_of
from mirlo_torch.registry import converter


@converter("aten.embedding.default")
def embedding(op: AtenOperation, weight: Tensor, indices: Tensor, *_: object) -> Tensor:
    require_positions(op, indices, weight.shape[0])
    return weight.gather(indices, axis=0)


@converter("aten.index_select.default", "aten.index_select_backward.default")
def index_select(op: AtenOperation, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    if not x.rank:
        require_positions(op, indices, 1)
        return x
    flat = indices.reshape((indices.type.elements,))
    require_positions(op, flat, x.shape[axis_of(axis, x.rank)])
    return x.gather(flat, axis=axis_of(axis, x.rank))


@converter("aten.gather.default", "aten.take_along_dim.default")
def gather(op: AtenOperation, x: Tensor, axis: Any, indices: Any, **ignored: object) -> Tensor:
    if "take_along" in op.name:
        axis, indices = indices, axis
        if axis is None:
            flat = x.reshape((x.type.elements,))
            return flat.gather(indices.reshape((indices.type.elements,)), axis=0)
        axis = axis_of(axis, x.rank)
        indices = indices % op.operand(x.shape[axis], indices.dtype)  # as PyTorch wraps them
        outer = broadcast_shape([_without(x, axis), _without(indices, axis)])
        x = x.expand((*outer[:axis], x.shape[axis], *outer[axis + 1 :]))
        indices = indices.expand((*outer[:axis], indices.shape[axis], *outer[axis + 1 :]))
    if 0 in indices.shape:
        return op.constant(0, op.dtype).expand(op.shape)
    if not x.rank or not indices.rank:
        x, indices = (each if each.rank else each.reshape((1,)) for each in (x, indices))
        require_positions(op, indices, x.shape[0])
        return x.gather(indices, axis=0).reshape(op.shape)
    axis = axis_of(axis, x.rank)
    require_positions(op, indices, x.shape[axis])
    for other in range(x.rank):
        if other != axis:
            x = x.slice(other, 0, indices.shape[other])
    return x.gather_elements(indices, axis=axis)


def _without(x: Tensor, axis: int) -> tuple[Dim, ...]:
    return (*x.shape[:axis], 1, *x.shape[axis + 1 :])


@converter("aten.take.default")
def take(op: AtenOperation, x: Tensor, indices: Tensor) -> Tensor:
    require_positions(op, indices, x.type.elements, wraps=True)
    return x.reshape((x.type.elements,)).gather(indices, axis=0)


REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}


@converter("aten.scatter.src", "aten.scatter.value", "aten.scatter.reduce", "aten.scatter.value_reduce",
           "aten.scatter_add.default")  # fmt: skip
def scatter(
    op: AtenOperation, x: Tensor, axis: int, indices: Tensor, source: Operand, *, reduce: str | None = None
) -> Tensor:
    kind = "add" if "scatter_add" in op.name else REDUCTIONS[reduce] if reduce else "none"
    _require_along(op, x, axis, indices)
    return _scattered(op, x, axis, indices, source, kind)


def _require_along(op: AtenOperation, x: Tensor, axis: int, indices: Tensor, wraps: bool = False) -> None:
    """Check positions on an axis of x; a tensor without dims counts as one element."""
    require_positions(op, indices, x.shape[axis_of(axis, x.rank)] if x.rank else 1, wraps)


@converter("aten.scatter_reduce.two")
def scatter_reduce(
    op: AtenOperation, x: Tensor, axis: int, indices: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if 0 in indices.shape:
        return x
    _require_along(op, x, axis, indices)
    kind, start = REDUCTIONS.get(reduce), x
    if not include_self:
        start = _scattered(op, x, axis, indices, _identity(op, reduce, x), "none")
    if kind is not None:
        return _scattered(op, start, axis, indices, source, kind)
    total = _scattered(op, op.wide(start), axis, indices, op.wide(source), "add")
    counts = op.constant(1, total.dtype).expand(x.shape)
    if not include_self:
        counts = _scattered(op, counts, axis, indices, 0, "none")
    counts = maximum(_scattered(op, counts, axis, indices, 1, "add"), 1)
    return (total / counts if op.dtype.is_float else total // counts).cast(op.dtype)


def _identity(op: AtenOperation, reduce: str, x: Tensor) -> Operand:
    import numpy as np

    kind = x.dtype
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if kind.is_bool:
        return reduce == "amin"
    if kind.is_float:
        return float("-inf" if reduce == "amax" else "inf")
    limits = np.iinfo(kind.to_numpy())
    return int(limits.min if reduce == "amax" else limits.max)


def _scattered(op: AtenOperation, x: Tensor, axis: int, indices: Tensor, source: Operand, kind: str) -> Tensor:
    """Return x with updates at positions along an axis; 16-bit floats are combined in f32."""
    if 0 in indices.shape:
        return x
    updates = source if isinstance(source, Tensor) else op.operand(source, x.dtype).expand(indices.shape)
    if not x.rank:
        rows = [each.reshape((1,)) for each in (x, indices, updates)]
        return _scattered(op, rows[0], 0, rows[1], rows[2], kind).reshape(())
    if not indices.rank:
        indices = indices.reshape((1,))
        updates = updates.reshape((1,))
    for other, size in enumerate(indices.shape):
        updates = updates.slice(other, 0, size)
    return _combined(op, "scatter_elements", x, indices, updates, kind, axis=axis_of(axis, x.rank))


def _combined(
    op: AtenOperation, operator: str, x: Tensor, indices: Tensor, updates: Tensor, kind: str, **attributes: int
) -> Tensor:
    """Return x with updates at positions; 16-bit floats are combined in f32, bools as numbers."""
    start, new = x, updates
    if x.dtype.is_bool and kind != "none":
        start, new = x.cast("i8"), updates.cast("i8")
        kind = {"add": "max", "mul": "min"}.get(kind, kind)
    elif kind in ("add", "mul"):
        start, new = op.wide(x), op.wide(updates)
    return op.emit(operator, start, indices, new, reduction=kind, **attributes).cast(x.dtype)


@converter("aten.index_add.default")
def index_add(
    op: AtenOperation, x: Tensor, axis: int, indices: Tensor, source: Tensor, *, alpha: Operand = 1
) -> Tensor:
    new = source if alpha == 1 else source * alpha
    return _along(op, x, axis, indices, new, "add")


@converter("aten.index_copy.default")
def index_copy(op: AtenOperation, x: Tensor, axis: int, indices: Tensor, source: Tensor) -> Tensor:
    return _along(op, x, axis, indices, source, "none")


@converter("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(op: AtenOperation, x: Tensor, axis: int, indices: Tensor, value: Operand) -> Tensor:
    axis = axis_of(axis, x.rank)
    if not x.rank:
        return op.operand(value, op.dtype)
    shape = (*x.shape[:axis], indices.type.elements, *x.shape[axis + 1 :])
    return _along(op, x, axis, indices, op.operand(value, op.dtype).expand(shape), "none")


def _along(op: AtenOperation, x: Tensor, axis: int, indices: Tensor, new: Tensor, kind: str) -> Tensor:
    """Return x with slices combined at positions along an axis; along the first one they are rows."""
    if not x.rank:
        x, new = x.reshape((1,)), new.reshape((1,))
    axis = axis_of(axis, x.rank)
    _require_along(op, x, axis, indices, wraps="index_fill" in op.name)
    count = indices.type.elements
    if count == 0 or 0 in x.shape:
        return x.reshape(op.shape)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    new = new if new.rank == x.rank else new.reshape(shape)
    for other, size in enumerate(shape):
        new = op.builder.with_dim(new, other, size)
    if not axis:
        return _combined(op, "scatter_nd", x, indices.reshape((count, 1)), new, kind).reshape(op.shape)
    column = indices.reshape((count, *[1] * (x.rank - axis - 1)))
    return _scattered(op, x, axis, column.expand(shape), new, kind).reshape(op.shape)


@converter("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(op: AtenOperation, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Convert advanced indexing: the dims of the indices are at the first index, or in front if indices are apart."""
    x, positions = _positions(op, x, indices)
    axes = [axis for axis, each in enumerate(positions) if each is not None]
    index_tensors = [each for each in positions if each is not None]
    if 0 in op.shape:
        return op.constant(0, op.dtype).expand(op.shape)
    if len(axes) == 1:
        return x.gather(index_tensors[0], axis=axes[0])
    shape = broadcast_shape([each.shape for each in index_tensors])
    rest = [axis for axis in range(x.rank) if axis not in axes]
    points = _points(op, index_tensors, shape)
    result = op.emit("gather_nd", x.permute([*axes, *rest]), points)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return result
    count, before = len(shape), axes[0]
    order = [*range(count, count + before), *range(count), *range(count + before, result.rank)]
    return result.permute(order)


def _positions(op: AtenOperation, x: Tensor, indices: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor | None]]:
    """Return indices as positions; a mask becomes the positions of its true elements."""
    positions: list[Tensor | None] = []
    for each in indices:
        if each is None or not (each.dtype.is_bool or each.dtype.name == "u8"):
            if each is not None and "unsafe" not in op.name:
                require_positions(op, each, x.shape[len(positions)], wraps=True)
            positions.append(None if each is None else each.cast("i64"))
            continue
        flags = each.cast("bool")
        if not flags.rank:
            raise UnsupportedOperation("indexes by one flag")
        rows = nonzero_rows(op, flags)
        positions.extend(rows.slice(0, at, 1).reshape((rows.shape[1],)) for at in range(flags.rank))
    if not any(each is not None for each in positions):
        raise UnsupportedOperation("has no indices")
    return x, positions


def nonzero_rows(op: AtenOperation, flags: Tensor) -> Tensor:
    """Return one row of positions for each dim, of the nonzero elements."""
    total = flags.cast("i64").sum()
    count = op.builder.bind_result(op, total)
    return op.emit("nonzero", flags, count=(count,))


def _points(op: AtenOperation, index_tensors: Sequence[Tensor], shape: tuple[Dim, ...]) -> Tensor:
    """Return positions along several axes as coordinates in the last dim."""
    columns = [each.expand(shape) for each in index_tensors]
    return stack(columns, len(shape))


@converter("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    op: AtenOperation, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    if not accumulate and len(indices) == 1 and indices[0] is not None and indices[0].dtype.is_bool:
        flags = indices[0]
        if not values.rank or values.type.elements == 1:
            mask = flags.reshape((*flags.shape, *[1] * (x.rank - flags.rank)))
            return where(mask, values.reshape(()), x, op.dtype)
    x, positions = _positions(op, x, indices)
    axes = [axis for axis, each in enumerate(positions) if each is not None]
    index_tensors = [each for each in positions if each is not None]
    shape = broadcast_shape([each.shape for each in index_tensors])
    rest = [axis for axis in range(x.rank) if axis not in axes]
    if 0 in shape or 0 in x.shape:
        return x
    points = _points(op, index_tensors, shape)
    order = [*axes, *rest]
    inner = tuple(x.shape[axis] for axis in rest)
    new = values.cast(op.dtype)
    if axes == list(range(axes[0], axes[0] + len(axes))) and axes[0]:
        before = tuple(x.shape[: axes[0]])
        whole = new.expand((*before, *shape, *inner[len(before) :]))
        n, m = len(before), len(shape)
        new = whole.permute([*range(n, n + m), *range(n), *range(n + m, whole.rank)])
    else:
        new = new.expand((*shape, *inner))
    kind = "add" if accumulate else "none"
    result = _combined(op, "scatter_nd", x.permute(order), points, new, kind)
    return result.permute([order.index(i) for i in range(x.rank)]).cast(op.dtype)


@converter("aten.nonzero.default", "aten.argwhere.default")
def nonzero(op: AtenOperation, x: Tensor) -> Tensor:
    if not x.rank:
        count = op.builder.bind_result(op, x.cast("bool").cast("i64").reshape((1,)))
        return op.constant(0, op.dtype).expand((count, 0))
    rows = nonzero_rows(op, x.cast("bool"))
    return rows.permute([1, 0])


@converter("aten.nonzero_static.default")
def nonzero_static(op: AtenOperation, x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Convert `nonzero_static`: each nonzero element writes its position to a row; others to a row that is cut off."""
    count = D.product(x.shape)
    if not x.rank or count == 0:
        return op.constant(fill_value, op.dtype).expand(op.shape)
    flags = x.cast("bool").reshape((count,))
    order = flags.cast("i64").cumsum(axis=0) - 1
    rows = minimum(where(flags, order, size, order.dtype), size)
    places = op.positions(rows.type, 0)
    flat_positions = op.emit(
        "scatter_nd", op.constant(-1, op.dtype).expand((size + 1,)), rows.reshape((count, 1)), places
    )
    flat_positions = flat_positions.slice(0, 0, size)
    columns, rest = [], flat_positions
    for dim in reversed(x.shape):
        columns.append(rest % dim)
        rest = rest // dim
    result = stack(columns[::-1], 1)
    return where((flat_positions < 0).reshape((size, 1)), fill_value, result, op.dtype)


@converter("aten.masked_select.default")
def masked_select(op: AtenOperation, x: Tensor, mask: Tensor) -> Tensor:
    shape = broadcast_shape([x.shape, mask.shape])
    flat = [each.expand(shape).reshape((D.product(shape),)) for each in (x, mask)]
    rows = nonzero_rows(op, flat[1])
    return flat[0].gather(rows.reshape((rows.shape[1],)), axis=0)


@converter("aten.masked_scatter.default")
def masked_scatter(op: AtenOperation, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Convert `masked_scatter`: the n-th element under the mask becomes the n-th element of the source."""
    shape = op.shape
    size = D.product(shape)
    if size == 0:
        return x.expand(shape)
    flags = mask.expand(shape).reshape((size,))
    counted = flags.cast("i64")
    elements = op.operand(source.type.elements, "i64")
    require_none(op, counted.sum() > elements, f"{op.name}: {source.type.elements} elements for more that are set")
    if source.type.elements == 0:
        return x.expand(shape)
    at = counted.cumsum(axis=0) - 1
    last = op.operand(source.type.elements - 1, "i64")
    at = minimum(maximum(at, 0), last)
    taken = source.reshape((source.type.elements,)).gather(at, axis=0)
    return where(flags.reshape(shape), taken.reshape(shape), x.expand(shape), op.dtype)


@converter("aten.sort.default", "aten.sort.stable")
def sort(op: AtenOperation, x: Tensor, *args: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    if op.name.endswith("stable"):
        args = args[1:] if len(args) == 3 else args
    axis = args[0] if args else dim
    descending = args[1] if len(args) > 1 else descending
    zero = op.constant(0, TensorType.of((), "i64").dtype, x.shape)
    if not x.rank:
        return [x, zero]
    order = op.sorted_order(x, axis_of(axis, x.rank), bool(descending))
    result = x.gather_elements(order, axis=axis_of(axis, x.rank))
    return [result, order]


@converter("aten.argsort.default", "aten.argsort.stable")
def argsort(
    op: AtenOperation, x: Tensor, *args: Any, stable: Any = None, dim: int = -1, descending: bool = False
) -> Tensor:
    axis = args[0] if args else dim
    descending = args[1] if len(args) > 1 else descending
    if not x.rank:
        return op.constant(0, op.dtype)
    return op.sorted_order(x, axis_of(axis, x.rank), bool(descending))


@converter("aten.topk.default")
def topk(
    op: AtenOperation, x: Tensor, k: Dim, axis: int = -1, largest: bool = True, ordered: bool = True
) -> list[Tensor]:
    """Convert `topk`, for which NaN is the largest."""
    if not x.rank:
        return [x, op.constant(0, TensorType.of((), "i64").dtype)]
    axis = axis_of(axis, x.rank)
    if x.dtype.is_float:
        order = op.sorted_order(x, axis, bool(largest)).slice(axis, 0, k)
        return [x.gather_elements(order, axis=axis), order]
    return op.emit_all("topk", x, k=op.fixed(k, "a count"), axis=axis, largest=bool(largest), sorted=True)


@converter("aten.one_hot.default")
def one_hot(op: AtenOperation, x: Tensor, classes: int = -1) -> Tensor:
    count = op.shape[-1]
    require_positions(op, x, count)
    return x.reshape((*x.shape, 1)).equals(op.positions(TensorType.of((count,), "i64"), 0)).cast(op.dtype)


@converter("aten.kthvalue.default")
def kthvalue(op: AtenOperation, x: Tensor, k: Dim, axis: int = -1, keepdim: bool = False) -> list[Tensor]:
    return _ranked(op, x, op.operand(k - 1, "i64"), axis, keepdim)


@converter("aten.median.dim", "aten.nanmedian.dim")
def median_along(op: AtenOperation, x: Tensor, axis: int, keepdim: bool = False) -> list[Tensor]:
    """Convert `median`: the lower of two middle elements; NaN, the largest, is the result unless ignored."""
    return _ranked(op, x, _middle(op, x, axis), axis, keepdim)


@converter("aten.median.default", "aten.nanmedian.default")
def median(op: AtenOperation, x: Tensor) -> Tensor:
    flat = x.reshape((x.type.elements,))
    if flat.shape[0] == 0:
        raise UnsupportedOperation("of no elements")
    return _ranked(op, flat, _middle(op, flat, 0), 0, False)[0].reshape(())


def _middle(op: AtenOperation, x: Tensor, axis: int) -> Tensor:
    """Return the rank of the median along an axis: that of the last NaN if NaN is not ignored."""
    axis = axis_of(axis, x.rank)
    size: Dim = x.shape[axis] if x.rank else 1
    if not x.dtype.is_float or not x.rank:
        return op.operand((size - 1) // 2, "i64")
    nans = x.isnan().cast("i64")
    count = nans.sum(axis, keepdims=True)
    total = op.operand(size, "i64")
    if "nanmedian" in op.name:
        kept = total - count
        return maximum(kept - 1 >> 1, 0)
    last = total - count  # the first NaN among the sorted elements
    return where(count > 0, last, op.operand((size - 1) // 2, "i64"), count.dtype)


def _ranked(op: AtenOperation, x: Tensor, rank: Tensor, axis: int, keepdim: bool) -> list[Tensor]:
    """Return the element with a rank along an axis, and its position."""
    zero = op.constant(0, rank.dtype)
    if not x.rank:
        return [x, zero]
    axis = axis_of(axis, x.rank)
    order = op.sorted_order(x, axis, False)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    at = rank.expand(shape)
    position = order.gather_elements(at, axis=axis)
    value = x.gather_elements(position, axis=axis)
    kept = shape if keepdim else (*x.shape[:axis], *x.shape[axis + 1 :])
    return [value.reshape(kept), position.reshape(kept)]


@converter("aten.searchsorted.Tensor", "aten.bucketize.Tensor")
def searchsorted(op: AtenOperation, first: Tensor, second: Tensor, *, right: bool = False, side: str | None = None,
                 sorter: Tensor | None = None, out_int32: bool = False) -> Tensor:  # fmt: skip
    """Convert `searchsorted`: the number of elements of a sorted row that are below each value."""
    sequence, values = (first, second) if "search" in op.name else (second, first)
    if sorter is not None:
        sequence = sequence.gather_elements(sorter, axis=sequence.rank - 1)
    rows = sequence if sequence.rank == 1 else sequence.reshape((*sequence.shape[:-1], 1, sequence.shape[-1]))
    row, value = op.promoted(rows, values.reshape((*values.shape, 1)))
    after = right or side == "right"
    below = row <= value if after else row < value
    if value.dtype.is_float:  # NaN is the largest
        both = row.isnan() & value.isnan()
        lower = ~row.isnan() & value.isnan()
        below = below | lower
        if after:
            below = below | both
    total = below.cast("i64").sum(below.rank - 1)
    return total.cast(op.dtype)
