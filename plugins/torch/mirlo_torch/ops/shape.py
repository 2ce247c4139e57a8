"""Reshaping, transposition, broadcasting, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Dim, Tensor, TensorType, concat, stack
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import frames_of
from mirlo_torch.operation import AtenOperation, Ints, Operand, axis_of
from mirlo_torch.registry import converter


@converter(
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default",
    "aten.flatten.using_ints", "aten.unflatten.int", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
    "aten.unsqueeze.default", "aten._reshape_alias.default", "aten._reshape_copy.default",
)  # fmt: skip
def view(op: AtenOperation, x: Tensor, *_: object) -> Tensor:
    """Convert operators that change only the shape."""
    return x.reshape(op.shape)


@converter("aten.expand.default", "aten.expand_as.default")
def expand(op: AtenOperation, x: Tensor, *_: object, **ignored: object) -> Tensor:
    return x.expand(op.shape)


@converter("aten.permute.default")
def permute(op: AtenOperation, x: Tensor, order: Sequence[int]) -> Tensor:
    return x.permute([axis_of(axis, x.rank) for axis in order])


@converter("aten.transpose.int")
def transpose(op: AtenOperation, x: Tensor, one: int, two: int) -> Tensor:
    order = list(range(x.rank))
    if order:
        one, two = one % len(order), two % len(order)
        order[one], order[two] = order[two], order[one]
    return x.permute(order)


@converter("aten.t.default")
def t(op: AtenOperation, x: Tensor) -> Tensor:
    return x.permute(list(range(x.rank))[::-1])


@converter("aten.select.int", "aten.select_copy.int")
def select(op: AtenOperation, x: Tensor, axis: int, index: Dim) -> Tensor:
    axis = axis_of(axis, x.rank)
    at = from_start(index, x.shape[axis])
    learn_offset(op, axis, at)
    return element(x, axis, at)


def element(x: Tensor, axis: int, at: Dim) -> Tensor:
    """Return the slice at one position of an axis, without the axis."""
    return x.slice(axis, at, 1).reshape((*x.shape[:axis], *x.shape[axis + 1 :]))


@converter("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    op: AtenOperation, x: Tensor, axis: int = 0, start: Dim | None = None, end: Dim | None = None, step: int = 1
) -> Tensor:
    """Convert `slice`; the size is that of the trace, unless the trace has a separate symbol for it."""
    axis = axis_of(axis, x.rank)
    size, begin = op.shape[axis], start_of(x.shape[axis], start)
    if D.symbols_of(size) - op.builder.taken:  # a bound is a number of the data, of which the trace knows nothing
        length = (x.shape[axis] if end is None else start_of(x.shape[axis], end)) - begin
        size = D.maximum(D.ceildiv(length, step), 0)
    learn_offset(op, axis, begin)
    return x.slice(axis, begin, size, step)


def learn_offset(op: AtenOperation, axis: int, begin: Dim) -> None:
    """Record the offset of a view in its base; the trace has a symbol for an offset that depends on data."""
    base, offset = op.node.args[0].meta["val"], op.node.meta["val"].storage_offset()
    if isinstance(offset, int) or not D.symbols_of(op.builder.sizes.dim(offset)) - op.builder.taken:
        return
    before, stride = op.builder.sizes.dims((base.storage_offset(), base.stride()[axis]))
    op.builder.sizes.learn(offset, before + begin * stride)


def start_of(size: Dim, start: Dim | None) -> Dim:
    """Return the begin of a slice: negative positions count from the end, others are clamped to the axis."""
    begin: Dim = 0 if start is None else start
    if isinstance(begin, int) and isinstance(size, int):
        return min(max(begin + size if begin < 0 else begin, 0), size)
    if isinstance(begin, int) and begin < 0:
        return D.maximum(size + begin, 0)
    if not D.is_nonnegative(begin):
        begin = D.maximum(from_start(begin, size), 0)
    return begin if D.is_certain(lambda: begin <= size) else D.minimum(begin, size)


def from_start(position: Dim, size: Dim) -> Dim:
    """Return a position as one from the start; only the call knows whether it is negative."""
    return position + size * D.minimum(1, D.maximum(position * -1, 0))


@converter(
    "aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.split.sizes",
    "aten.unsafe_split.Tensor", "aten.unsafe_split_with_sizes.default", "aten.unsafe_chunk.default",
    "aten.split_copy.Tensor", "aten.tensor_split.sections",
    "aten.tensor_split.indices",
)  # fmt: skip
def split(op: AtenOperation, x: Tensor, _: object, axis: int = 0) -> list[Tensor]:
    axis = axis_of(axis, x.rank)
    sizes = [op.type_of(value).shape[axis] for value in op.node.meta["val"]]
    begin: Dim = 0
    result = []
    for size in sizes:
        result.append(x.slice(axis, begin, size))
        begin = begin + size
    return result


@converter("aten.unbind.int")
def unbind(op: AtenOperation, x: Tensor, axis: int = 0) -> list[Tensor]:
    axis = axis_of(axis, x.rank)
    return [element(x, axis, index) for index in range(len(op.node.meta["val"]))]


@converter("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(op: AtenOperation, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Convert `cat`; empty vectors are dropped, whatever the rank of the others."""
    axis = axis_of(axis, len(op.shape))
    operands = [x.cast(op.dtype) for x in tensors if not (x.rank == 1 and x.shape[0] == 0)]
    kept = [x for x in operands if x.shape[axis] != 0]
    if not kept:
        return op.constant(0, op.dtype).expand(op.shape)
    for other in range(kept[0].rank):
        if other != axis:
            sizes = [x.shape[other] for x in kept]
            wanted = next((size for size in sizes if isinstance(size, int)), sizes[0])
            kept = [op.builder.with_dim(x, other, wanted) for x in kept]
    return kept[0] if len(kept) == 1 else concat(kept, axis)


@converter("aten.stack.default")
def stacked(op: AtenOperation, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    return stack([x.cast(op.dtype) for x in tensors], axis_of(axis, len(op.shape)))


@converter("aten.diff.default")
def diff(
    op: AtenOperation, x: Tensor, n: int = 1, axis: int = -1, before: Tensor | None = None, after: Tensor | None = None
) -> Tensor:
    """Convert `diff`: differences of neighbors; for bools, whether they differ."""
    axis = axis_of(axis, x.rank)
    parts = [part.cast(x.dtype) for part in (before, x, after) if part is not None]
    x = parts[0] if len(parts) == 1 else concat(parts, axis)
    for _ in range(n):
        size = x.shape[axis]
        if size == 0:
            break
        high, low = x.slice(axis, 1, size - 1), x.slice(axis, 0, size - 1)
        x = high.not_equals(low) if x.dtype.is_bool else high - low
    return x


@converter("aten.repeat.default", "aten.tile.default")
def repeat(op: AtenOperation, x: Tensor, repeats: Sequence[Dim]) -> Tensor:
    repeats = [1] * (x.rank - len(repeats)) + list(repeats)
    spread = x.reshape([1] * (len(repeats) - x.rank) + list(x.shape))
    pairs = [dim for count, size in zip(repeats, spread.shape, strict=True) for dim in (count, size)]
    apart = spread.reshape([dim for size in spread.shape for dim in (1, size)])
    return apart.expand(pairs).reshape(op.shape)


@converter("aten.flip.default")
def flip(op: AtenOperation, x: Tensor, axes: Sequence[int]) -> Tensor:
    axes = [axis_of(axis, x.rank) for axis in axes]
    return x.flip(axes) if axes and x.rank else x


@converter("aten.roll.default")
def roll(op: AtenOperation, x: Tensor, shifts: Ints, axes: Ints = ()) -> Tensor:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [axes] if isinstance(axes, int) else list(axes)
    if not axes:
        return _rolled(op, x.reshape((x.type.elements,)), shifts[0], 0).reshape(x.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(op, x, shift, axis_of(axis, x.rank))
    return x


def _rolled(op: AtenOperation, x: Tensor, shift: Dim, axis: int) -> Tensor:
    size = x.shape[axis]
    if not x.rank or size == 0:
        return x
    by = shift % size
    if by == 0:
        return x
    end = x.slice(axis, size - by, by)
    return concat([end, x.slice(axis, 0, size - by)], axis)


@converter("aten.constant_pad_nd.default")
def constant_pad(op: AtenOperation, x: Tensor, pads: Sequence[Dim], value: Operand = 0) -> Tensor:
    return padded(op, x, pads, "constant", op.operand(value, x.dtype))


PAD_MODES = {"reflect": "reflect", "reflection": "reflect", "replicate": "edge", "replication": "edge",
             "circular": "wrap", "constant": "constant"}  # fmt: skip


@converter("aten.pad.default")
def pad(
    op: AtenOperation, x: Tensor, pads: Sequence[Dim], mode: str = "constant", value: Operand | None = None
) -> Tensor:
    return padded(op, x, pads, PAD_MODES[mode], op.operand(value or 0, x.dtype))


@converter(*(f"aten.{kind}_pad{n}d.default" for kind in ("reflection", "replication") for n in (1, 2, 3)))
def pad_edges(op: AtenOperation, x: Tensor, pads: Sequence[Dim]) -> Tensor:
    return padded(op, x, pads, PAD_MODES[op.name.split(".")[1].split("_")[0]], op.constant(0, x.dtype))


def padded(op: AtenOperation, x: Tensor, pads: Sequence[Dim], mode: str, value: Tensor) -> Tensor:
    """Return x padded; `pads` are pairs of the last dim, the one before, and so on; negative ones crop."""
    rank = x.rank
    low: list[Dim] = [0] * rank
    high: list[Dim] = [0] * rank
    for number in range(len(pads) // 2):
        low[rank - 1 - number], high[rank - 1 - number] = pads[2 * number], pads[2 * number + 1]
    if all(isinstance(size, int) and size == 0 for size in (*low, *high)):
        return x
    sizes = [size for size in (*low, *high) if isinstance(size, int)]
    constant = value.constant
    first = None if constant is None else constant.reshape(-1)[0]
    exact = first is not None and (x.dtype.is_float or abs(int(first)) < 1 << 24)
    if len(sizes) == 2 * rank and first is not None and exact:
        if mode != "constant" and any(size < 0 for size in sizes):
            return _cropped_and_padded(op, x, sizes, mode)
        return op.emit("pad", x, pads=sizes, mode=mode, value=float(first))
    if mode != "constant":
        value = op.constant(0, x.dtype)
    return op.emit("pad_at", x, op.sizes(tuple(low)), value, shape=op.shape, mode=mode)


def _cropped_and_padded(op: AtenOperation, x: Tensor, sizes: Sequence[int], mode: str) -> Tensor:
    """Return x cropped by the negative sizes, then padded by the positive ones: low sizes, then high ones."""
    for axis in range(x.rank):
        low, high = max(-sizes[axis], 0), max(-sizes[axis + x.rank], 0)
        x = x.slice(axis, low, x.shape[axis] - low - high)
    return op.emit("pad", x, pads=[max(size, 0) for size in sizes], mode=mode, value=0.0)


@converter("aten.diagonal.default")
def diagonal(op: AtenOperation, x: Tensor, offset: int = 0, one: int = 0, two: int = 1) -> Tensor:
    """Convert `diagonal`: a slice with strides of one row and one column."""
    rank = x.rank
    one, two = one % rank, two % rank
    rest = [axis for axis in range(rank) if axis not in (one, two)]
    moved = x.permute([*rest, one, two])
    outer, (rows, cols) = moved.shape[:-2], moved.shape[-2:]
    size = op.shape[-1]
    flat = moved.reshape((*outer, rows * cols))
    if size == 0:
        return flat.slice(len(outer), 0, 0)
    begin = offset if offset >= 0 else -offset * cols
    step = op.fixed(cols, "a number of columns") + 1
    return flat.slice(len(outer), begin, size, step)


@converter("aten.unfold.default")
def unfold(op: AtenOperation, x: Tensor, axis: int, size: int, step: int) -> Tensor:
    axis = axis_of(axis, x.rank)
    if not x.rank:
        return x.reshape(op.shape)
    if not size:
        return op.constant(0, op.dtype).expand(op.shape)
    frames = frames_of(x, axis, op.shape[axis], size, step)
    return frames.permute([*(each for each in range(frames.rank) if each != axis + 1), axis + 1])


@converter("aten.select_scatter.default")
def select_scatter(op: AtenOperation, x: Tensor, source: Tensor, axis: int, index: Dim) -> Tensor:
    axis = axis_of(axis, x.rank)
    size = x.shape[axis]
    at = size + index if isinstance(index, int) and index < 0 else index
    middle = source.cast(op.dtype).reshape((*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return _replaced(op, x, middle, axis, at, 1)


@converter("aten.slice_scatter.default")
def slice_scatter(
    op: AtenOperation,
    x: Tensor,
    source: Tensor,
    axis: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: int = 1,
) -> Tensor:
    axis = axis_of(axis, x.rank)
    begin = start_of(x.shape[axis], start)
    return _replaced(op, x, source.cast(op.dtype), axis, begin, step)


def _replaced(op: AtenOperation, x: Tensor, new: Tensor, axis: int, begin: Dim, step: int) -> Tensor:
    """Return x with every `step`-th element along an axis replaced."""
    count, size = new.shape[axis], x.shape[axis]
    if count == 0:
        return x
    if step == 1:
        parts = [x.slice(axis, 0, begin), new, x.slice(axis, begin + count, size - begin - count)]
        parts = [part for part in parts if part.shape[axis] != 0]
        return parts[0] if len(parts) == 1 else concat(parts, axis)
    order = [axis, *(i for i in range(x.rank) if i != axis)]
    indices = op.positions(TensorType.of((count, 1), "i64"), 0)
    points = indices * step + op.operand(begin, "i64")
    moved = op.emit("scatter_nd", x.permute(order), points, new.permute(order))
    return moved.permute([order.index(i) for i in range(x.rank)])


@converter("aten.diagonal_scatter.default")
def diagonal_scatter(
    op: AtenOperation, x: Tensor, source: Tensor, offset: int = 0, one: int = 0, two: int = 1
) -> Tensor:
    rank = x.rank
    one, two = one % rank, two % rank
    rest = [axis for axis in range(rank) if axis not in (one, two)]
    order = [one, two, *rest]
    moved = x.permute(order)
    new = source.cast(op.dtype).permute([rank - 2, *range(rank - 2)])
    at = op.positions(TensorType.of((new.shape[0], 1), "i64"), 0)
    columns = [at + max(-offset, 0), at + max(offset, 0)]
    points = concat(columns, 1)
    result = op.emit("scatter_nd", moved, points, new)
    return result.permute([order.index(i) for i in range(rank)])


@converter("aten.pixel_shuffle.default")
def pixel_shuffle(op: AtenOperation, x: Tensor, factor: int) -> Tensor:
    *outer, channels, rows, cols = x.shape
    kept = channels // (factor * factor)
    spread = x.reshape((*outer, kept, factor, factor, rows, cols))
    n = len(outer)
    moved = spread.permute([*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return moved.reshape(op.shape)


@converter("aten.pixel_unshuffle.default")
def pixel_unshuffle(op: AtenOperation, x: Tensor, factor: int) -> Tensor:
    *outer, channels, rows, cols = x.shape
    spread = x.reshape((*outer, channels, rows // factor, factor, cols // factor, factor))
    n = len(outer)
    moved = spread.permute([*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return moved.reshape(op.shape)


@converter("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(op: AtenOperation, x: Tensor, groups: int) -> Tensor:
    batch, channels, *rest = x.shape
    spread = x.reshape((batch, groups, channels // groups, *rest))
    return spread.permute([0, 2, 1, *range(3, len(rest) + 3)]).reshape(op.shape)
