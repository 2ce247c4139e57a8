"""Reads and writes at computed positions: `gather`, `scatter`, dynamic slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.extend.frontend import (
    Dim,
    Tensor,
    TensorType,
    UnsupportedOperation,
    concat,
    maximum,
    minimum,
    stablehlo,
    stack,
    where,
)
from mirlo.extend.frontend import dims as D
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.regions import combiner
from mirlo_stablehlo.registry import converter


@converter("dynamic_slice")
def dynamic_slice(op: StablehloOperation) -> Tensor:
    """Convert `dynamic_slice`; the start is clamped so that the slice is within the tensor."""
    x, sizes = op.operands[0], op.ints("slice_sizes")
    begins = _begins(op, op.operands[1:], x.shape, sizes)
    known = begins.known_sizes
    if known is not None:
        return x.part(known, sizes)
    length, ones = op.sizes(tuple(sizes)), op.sizes((1,) * len(sizes))
    bounds = stack([begins, length, ones], 0)
    return op.emit("slice_at", x, bounds, shape=tuple(sizes))


def _begins(op: StablehloOperation, starts: Sequence[Tensor], shape: Sequence[Dim], sizes: Sequence[Dim]) -> Tensor:
    """Return the clamped start indices of a slice, a vector of i64."""
    room = [dim - size for dim, size in zip(shape, sizes, strict=True)]
    known_starts = [start.known_sizes for start in starts]
    known = [sizes_[0] for sizes_ in known_starts if sizes_ is not None]
    if len(known) == len(starts):
        return op.sizes(tuple(D.minimum(D.maximum(at, 0), most) for at, most in zip(known, room, strict=True)))
    parts = [start.cast("i64").reshape((1,)) for start in starts]
    joined = concat(parts, 0) if len(parts) > 1 else parts[0]
    return _within(op, joined, room)


def _within(op: StablehloOperation, at: Tensor, room: Sequence[Dim]) -> Tensor:
    """Clamp the coordinates in the last dim to 0 to `room`."""
    zero = op.constant(0, at.dtype)
    return minimum(maximum(at, zero), _row(op, room, at.type))


def _row(op: StablehloOperation, values: Sequence[Dim], like: TensorType) -> Tensor:
    """Return a vector of sizes as a tensor that broadcasts to a type."""
    sizes = op.sizes(tuple(values), like.dtype.name)
    return sizes.expand(like.shape)


@converter("dynamic_update_slice")
def dynamic_update_slice(op: StablehloOperation) -> Tensor:
    """Convert `dynamic_update_slice` to a scatter along the axes on which the update is smaller."""
    x, update = op.operands[:2]
    axes = [i for i, (dim, size) in enumerate(zip(x.shape, update.shape, strict=True)) if dim != size]
    if not axes:
        return update
    if 0 in update.shape:
        return x
    begins = _begins(
        op, [op.operands[2 + i] for i in axes], [x.shape[i] for i in axes], [update.shape[i] for i in axes]
    )
    points = _grid(op, begins, [update.shape[i] for i in axes])
    rest = [i for i in range(x.rank) if i not in axes]
    order = [*axes, *rest]
    moved, new = x.permute(order), update.permute(order)
    result = op.emit("scatter_nd", moved, points, new)
    return result.permute([order.index(i) for i in range(len(order))])


def _grid(op: StablehloOperation, begins: Tensor, sizes: Sequence[Dim]) -> Tensor:
    """Return the coordinates of all points of a box: [*sizes, coordinates]."""
    shape = (*sizes, len(sizes))
    total = begins.expand(shape)
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        steps = op.positions(TensorType.of(shape, "i64"), axis)
        unit = op.constant(np.eye(len(sizes), dtype=np.int64)[axis], steps.dtype)
        along = steps * Tensor(op.builder, steps.type, array=unit.array)
        total = total + along
    return total


@converter("gather", "dynamic_gather")
def gather(op: StablehloOperation) -> Tensor:
    """Convert `gather`: start indices are clamped; windows of several elements become one index per element."""
    numbers = stablehlo().GatherDimensionNumbers(op.op.attributes["dimension_numbers"])
    x = op.operands[0]
    sizes: Sequence[Dim] = op.ints("slice_sizes") if op.name == "gather" else op.dims(2)
    form = _Windows(
        op, x, op.operands[1], numbers.index_vector_dim, list(numbers.start_index_map),
        list(numbers.operand_batching_dims), list(numbers.start_indices_batching_dims),
        list(numbers.collapsed_slice_dims), sizes,
    )  # fmt: skip
    return form.gathered(list(numbers.offset_dims))


class _Windows:
    """The windows in a tensor that `gather` and `scatter` address."""

    def __init__(
        self, op: StablehloOperation, x: Tensor, indices: Tensor, vector_dim: int, index_map: list[int],
        batching: list[int], index_batching: list[int], dropped: list[int], sizes: Sequence[Dim],
    ) -> None:  # fmt: skip
        self.op, self.x, self.sizes = op, x, sizes
        self.dropped = [*dropped, *batching]
        """Dims of x that are not among those of a window."""
        self.indexed = [*batching, *index_map]
        """Dims of x that have coordinates."""
        self.points = self._points(indices, vector_dim, batching, index_batching, index_map)
        """Where windows begin: [*outer, coordinates], i64."""

    @property
    def outer(self) -> tuple[Dim, ...]:
        """Return the dims of the indices, without the dim of the coordinates."""
        return self.points.shape[:-1]

    @property
    def window(self) -> list[int]:
        """Return the dims of x that are dims of a window."""
        return [i for i in range(self.x.rank) if i not in self.dropped]

    def _points(
        self, indices: Tensor, vector_dim: int, batching: list[int], index_batching: list[int], index_map: list[int]
    ) -> Tensor:
        op = self.op
        wide = indices
        if indices.dtype.name != "i64":
            wide = indices.cast("i64")
        if vector_dim == indices.rank:
            wide = wide.expand_dims(vector_dim)
        elif vector_dim != indices.rank - 1:
            order = [i for i in range(indices.rank) if i != vector_dim] + [vector_dim]
            wide = wide.permute(order)
        if not batching:
            return wide
        columns = []
        for axis in index_batching:
            at = axis - (axis > vector_dim)
            shape = TensorType.of((*wide.shape[:-1], 1), "i64")
            columns.append(op.positions(shape, at))
        return concat([*columns, *([wide] if index_map else [])], -1)

    def _spread(self, points: Tensor) -> tuple[Tensor, list[int]]:
        """Return the index of each element along indexed dims, and the spans: [*outer, *spans, coordinates]."""
        op = self.op
        spans = [axis for axis in self.window if axis in self.indexed and self.sizes[axis] != 1]
        if not spans:
            return points, []
        count = len(self.indexed)
        shape = (*self.outer, *(self.sizes[axis] for axis in spans), count)
        inner = points.reshape((*self.outer, *[1] * len(spans), count))
        total = inner.expand(shape)
        for number, axis in enumerate(spans):
            steps = op.positions(total.type, len(self.outer) + number)
            unit = np.eye(count, dtype=np.int64)[self.indexed.index(axis)]
            along = steps * Tensor(op.builder, total.type, array=unit)
            total = total + along
        return total, spans

    def gathered(self, offset_dims: list[int]) -> Tensor:
        """Return the windows."""
        op, x = self.op, self.x
        room = [x.shape[axis] - self.sizes[axis] for axis in self.indexed]
        whole = [axis for axis in range(x.rank) if axis not in self.indexed]
        if any(x.shape[axis] != self.sizes[axis] for axis in whole):
            shape = tuple(self.sizes[axis] if axis in whole else dim for axis, dim in enumerate(x.shape))
            x = x.part([0] * x.rank, shape)
        if 0 in x.shape:
            raise UnsupportedOperation("reads elements of an empty tensor")
        points = _within(op, self.points, room)
        if len(self.indexed) == 1 and self.sizes[self.indexed[0]] == 1:
            return self._taken(x, points, offset_dims)
        points, spans = self._spread(points)
        moved = x.permute([*self.indexed, *whole])
        result = op.emit("gather_nd", moved, points)
        # The dims: outer, spans, those of x that are whole. Windows of one element have none yet.
        held = [*spans, *whole]
        return self._arranged(result, held, offset_dims)

    def _taken(self, x: Tensor, points: Tensor, offset_dims: list[int]) -> Tensor:
        """Return slices along one axis, as an embedding does."""
        axis = self.indexed[0]
        indices = points.reshape(self.outer)
        result = x.gather(indices, axis=axis)
        count = len(self.outer)
        # The outer dims are where the axis was: they go to the front.
        order = [*range(axis, axis + count), *range(axis), *range(axis + count, result.rank)]
        held = [i for i in range(x.rank) if i != axis]
        return self._arranged(result.permute(order), held, offset_dims)

    def _arranged(self, windows: Tensor, held: list[int], offset_dims: list[int]) -> Tensor:
        """Return windows with their dims in the positions that the result declares."""
        count = len(self.outer)
        ones = [axis for axis in self.window if axis not in held]
        if ones:
            windows = windows.expand_dims(*[windows.rank + i for i in range(len(ones))])
            held = [*held, *ones]
        inner = [count + held.index(axis) for axis in self.window]
        order: list[int] = []
        outer = iter(range(count))
        rest = iter(inner)
        for position in range(count + len(inner)):
            order.append(next(rest) if position in offset_dims else next(outer))
        return windows.permute(order)


@converter("scatter")
def scatter(op: StablehloOperation) -> Tensor:
    """Convert `scatter`: windows that do not fit are written to an extra row that is cut off afterwards."""
    if len(op.operands) != 3:
        raise UnsupportedOperation("of several tensors at once")
    numbers = stablehlo().ScatterDimensionNumbers(op.op.attributes["scatter_dimension_numbers"])
    kind = combiner(op.op.regions[0].blocks[0])
    x, indices, updates = op.operands
    if kind is None or (x.dtype.is_bool and kind != "new"):
        raise UnsupportedOperation(
            "combines elements by another function than +, *, maximum and minimum, or replaces them"
        )
    inserted, batching = list(numbers.inserted_window_dims), list(numbers.input_batching_dims)
    windows = list(numbers.update_window_dims)
    kept = [i for i in range(x.rank) if i not in inserted + batching]
    sizes: list[Dim] = [1] * x.rank
    for axis, position in zip(kept, windows, strict=True):
        sizes[axis] = updates.shape[position]
    form = _Windows(
        op, x, indices, numbers.index_vector_dim, list(numbers.scattered_dims_to_operand_dims), batching,
        list(numbers.scatter_indices_batching_dims), inserted, sizes,
    )  # fmt: skip
    if 0 in updates.shape or 0 in x.shape:
        return x
    return _scattered(op, form, updates, windows, {"new": "none"}.get(kind, kind))


def _scattered(op: StablehloOperation, form: _Windows, updates: Tensor, windows: list[int], reduction: str) -> Tensor:
    x, sizes = form.x, form.sizes
    whole = [axis for axis in range(x.rank) if axis not in form.indexed]
    partial = [axis for axis in whole if sizes[axis] != x.shape[axis]]
    if partial:
        raise UnsupportedOperation(f"updates a part of dim {partial[0]} without a position for it")
    if not form.indexed:
        raise UnsupportedOperation("has no positions")
    room = [x.shape[axis] - sizes[axis] for axis in form.indexed]
    points, fits = form.points, _fits(op, form.points, room)
    points, spans = form._spread(points)
    # The first coordinate of what does not fit is one beyond the tensor, where there is a row for it.
    order = [*form.indexed, *whole]
    moved = x.permute(order)
    if fits is not None:
        points = _redirected(op, points, fits, len(form.outer), x.shape[form.indexed[0]])
        moved = concat([moved, moved[:1]], 0)
    new = _arranged_updates(op, form, updates, windows, [*spans, *whole])
    result = op.emit("scatter_nd", moved, points, new, reduction=reduction)
    if fits is not None:
        result = result[: x.shape[form.indexed[0]]]
    return result.permute([order.index(i) for i in range(len(order))])


def _fits(op: StablehloOperation, points: Tensor, room: Sequence[Dim]) -> Tensor | None:
    """Return which windows are within the tensor; None if all are."""
    known = points.constant
    if known is not None and all(isinstance(size, int) for size in room):
        most = np.array(room)
        if np.all((known >= 0) & (known <= most)):
            return None
    below = points <= _row(op, room, points.type)
    above = points >= 0
    both = below & above
    return both.all(-1, keepdims=True)


def _redirected(op: StablehloOperation, points: Tensor, fits: Tensor, outer: int, beyond: Dim) -> Tensor:
    """Return indices, with those of windows that do not fit moved to the row `beyond`."""
    count = points.shape[-1]
    assert isinstance(count, int)
    spread = points.rank - 1 - outer
    flags = fits.reshape((*fits.shape[:-1], *[1] * spread, 1)) if spread else fits
    flags = flags.expand(points.shape)
    there = op.sizes((beyond, *[0] * (count - 1))).expand(points.shape)
    return where(flags, points, there)


def _arranged_updates(
    op: StablehloOperation, form: _Windows, updates: Tensor, windows: list[int], held: list[int]
) -> Tensor:
    """Return updates with the outer dims first, then the window dims, without window dims of size 1."""
    outer = [i for i in range(updates.rank) if i not in windows]
    position = dict(zip(form.window, windows, strict=True))
    ones = [position[axis] for axis in form.window if axis not in held]
    moved = updates.permute([*outer, *(position[axis] for axis in held), *ones])
    if not ones:
        return moved
    rank = updates.rank
    return moved.squeeze(*list(range(rank - len(ones), rank)))


@converter("torch_index_select")
def torch_index_select(op: StablehloOperation) -> Tensor:
    if op.integer("batch_dims", 0):
        raise UnsupportedOperation("with batch dims")
    x, indices = op.operands
    return x.gather(indices, axis=op.integer("dim"))
