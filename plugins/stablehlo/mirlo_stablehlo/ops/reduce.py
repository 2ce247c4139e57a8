"""Reductions, also over sliding windows: `reduce`, `reduce_window`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np

from mirlo.extend.frontend import Tensor, UnsupportedOperation, concat, maximum, minimum
from mirlo.extend.frontend import dims as D
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.ops.shape import padded
from mirlo_stablehlo.regions import apply, combiner, is_argument_of_extreme
from mirlo_stablehlo.registry import converter

REDUCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "add": (Tensor.sum, operator.add), "mul": (Tensor.prod, operator.mul), "max": (Tensor.max, maximum),
    "min": (Tensor.min, minimum), "and": (Tensor.all, operator.and_), "or": (Tensor.any, operator.or_),
}  # fmt: skip
"""Reductions of all elements and of two tensors, by combining function."""


@converter("reduce")
def reduce(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `reduce`: a known function to its operator, any other to a tree of elementwise operations."""
    count = len(op.operands) // 2
    block, axes = op.op.regions[0].blocks[0], op.ints("dimensions")
    values, starts = op.operands[:count], op.operands[count:]
    if not axes:
        return apply(op, block, [*_like(values, starts), *values])
    kind = combiner(block) if count == 1 else None
    if kind in REDUCTIONS:
        return [_reduced(kind, values[0], starts[0], axes)]
    position = _position_of_extreme(op, values, starts, axes) if count == 2 else None
    return position or _tree(op, values, starts, axes)


def _reduced(kind: str, x: Tensor, start: Tensor, axes: Sequence[int]) -> Tensor:
    reduction, combine = REDUCTIONS[kind]
    result = reduction(x, axes)
    return result if _is_identity(kind, start) else combine(result, start)


def _is_identity(kind: str, start: Tensor) -> bool:
    """Return whether a start is the identity of the function."""
    constant = start.constant
    if constant is None:
        return False
    number, dtype = constant.reshape(-1)[0], start.dtype
    if kind in ("add", "or"):
        return bool(number == 0)
    if kind in ("mul", "and"):
        return bool(number == 1)
    limits: np.iinfo | None = None if dtype.is_float else np.iinfo(dtype.to_numpy())
    if kind == "max":
        return bool(number == (-np.inf if limits is None else limits.min))
    return bool(number == (np.inf if limits is None else limits.max))


def _like(values: Sequence[Tensor], starts: Sequence[Tensor]) -> list[Tensor]:
    """Return initial values broadcast to the shapes of other tensors."""
    return [
        Tensor(start.builder, value.type, start.value, start.array if start.constant is None else start.constant)
        for value, start in zip(values, starts, strict=True)
    ]


def _position_of_extreme(
    op: StablehloOperation, values: Sequence[Tensor], starts: Sequence[Tensor], axes: Sequence[int]
) -> list[Tensor] | None:
    """Return the largest or smallest element and its index, if the region computes these."""
    choice = is_argument_of_extreme(op.op.regions[0].blocks[0])
    producer = op.op.operands[1].owner
    name = getattr(getattr(producer, "operation", None), "name", "")
    if choice is None or len(axes) != 1 or name not in ("stablehlo.iota", "stablehlo.dynamic_iota"):
        return None
    kind = "max" if choice == "argmax" else "min"
    if int(producer.attributes["iota_dimension"].value) != axes[0] or not _is_identity(kind, starts[0]):
        return None
    x, dtype = values[0], values[1].dtype
    extreme = x.max(axes) if kind == "max" else x.min(axes)
    position = op.position_of_extreme(kind, x, axes[0], False)
    return [extreme, position.cast(dtype)]


def _tree(
    op: StablehloOperation, values: Sequence[Tensor], starts: Sequence[Tensor], axes: Sequence[int]
) -> list[Tensor]:
    """Combine halves of each axis until one element is left; the order of a reduction is not defined."""
    block = op.op.regions[0].blocks[0]
    level = list(values)
    for axis in axes:
        size = level[0].shape[axis]
        if not isinstance(size, int):
            raise UnsupportedOperation(
                f"reduces the dynamic dim {axis} with a function that is not a sum, maximum or the like"
            )
        while size > 1:
            half = size // 2
            first, second = ([value.slice(axis, half * i, half) for value in level] for i in range(2))
            result = apply(op, block, [*first, *second])
            if size % 2:
                rest = [value.slice(axis, size - 1, 1) for value in level]
                result = [concat([a, b], axis) for a, b in zip(result, rest, strict=True)]
            level, size = result, half + size % 2
    if any(value.shape[axis] == 0 for value in level for axis in axes):
        raise UnsupportedOperation("reduces no elements with a function that is not a sum, maximum or the like")
    squeezed = [value.squeeze(*axes) for value in level]
    return apply(op, block, [*_like(squeezed, starts), *squeezed])


@converter("reduce_window")
def reduce_window(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `reduce_window` to pooling, a running sum, or combined slices."""
    count, rank = len(op.operands) // 2, op.type(0).rank
    ones = [1] * rank
    window, strides = op.ints("window_dimensions"), op.ints("window_strides", ones)
    base, dilations = op.ints("base_dilations", ones), op.ints("window_dilations", ones)
    padding = op.ints("padding", [0] * (2 * rank))
    low, high = padding[::2], padding[1::2]
    block = op.op.regions[0].blocks[0]
    kind = combiner(block) if count == 1 else None
    x, start = op.operands[0], op.operands[count]
    if kind is not None and _is_identity(kind, start) and base == ones and dilations == ones:
        result = _running(op, kind, x, window, strides, low, high)
        if result is None and kind in ("max", "add") and x.dtype.is_float:
            result = _pooled(op, kind, x, window, strides, low, high)
        if result is not None:
            return [result]
    if not all(isinstance(dim, int) for dim in x.shape):
        raise UnsupportedOperation("windows over dynamic dims, except for maxima and sums of floats, are not supported")
    values = [
        padded(op, value, begin, low, high, [step - 1 for step in base])
        for value, begin in zip(op.operands[:count], op.operands[count:], strict=True)
    ]
    for axis in range(rank):
        values = _combined(op, values, axis, window[axis], strides[axis], dilations[axis])
    starts = list(op.operands[count:])
    if kind is not None and _is_identity(kind, start):
        return values
    return apply(op, block, [*_like(values, starts), *values])


def _combined(
    op: StablehloOperation, values: list[Tensor], axis: int, window: int, stride: int, dilation: int
) -> list[Tensor]:
    """Combine the elements of windows along one axis, in log2 steps for powers of two."""
    block = op.op.regions[0].blocks[0]
    size = values[0].shape[axis]
    assert isinstance(size, int)
    indices = size - (window - 1) * dilation
    if indices <= 0:
        raise UnsupportedOperation(f"the window of {window} is larger than dim {axis}, {size}")
    total: list[Tensor] | None = None
    covered, span, combined = 0, 1, values
    while window:
        if window & 1:
            begin = covered * dilation
            part = [value.slice(axis, begin, indices) for value in combined]
            total = part if total is None else apply(op, block, [*total, *part])
            covered += span
        window >>= 1
        if window:
            length = combined[0].shape[axis]
            assert isinstance(length, int)
            step = span * dilation
            first, second = ([value.slice(axis, at, length - step) for value in combined] for at in (0, step))
            combined, span = apply(op, block, [*first, *second]), span * 2
    assert total is not None
    if stride == 1:
        return total
    return [value.slice(axis, 0, -(-indices // stride), stride) for value in total]


def _running(
    op: StablehloOperation, kind: str, x: Tensor, window: list[int], strides: list[int], low: list[int], high: list[int]
) -> Tensor | None:
    """Return a running sum or product, if a window covers the whole axis, padded on one side, as JAX writes it."""
    wide = [i for i, size in enumerate(window) if size != 1]
    if len(wide) != 1 or kind not in ("add", "mul") or any(step != 1 for step in strides):
        return None
    axis = wide[0]
    size = x.shape[axis]
    others = [pad for i, pads in enumerate(zip(low, high, strict=True)) if i != axis for pad in pads]
    if size != window[axis] or any(others) or {low[axis], high[axis]} != {0, size - 1}:
        return None
    name = "cumsum" if kind == "add" else "cumprod"
    return op.emit(name, x, axis=axis, reverse=high[axis] != 0)


def _pooled(
    op: StablehloOperation, kind: str, x: Tensor, window: list[int], strides: list[int], low: list[int], high: list[int]
) -> Tensor | None:
    """Return the maximum or sum of windows by pooling."""
    axes = [i for i in range(x.rank) if window[i] != 1 or strides[i] != 1 or low[i] or high[i]]
    rest = [i for i in range(x.rank) if i not in axes]
    if not 1 <= len(axes) <= 3 or any(size < 0 for size in (*low, *high)):
        return None
    if any(low[i] >= window[i] or high[i] >= window[i] for i in axes):
        return None  # windows of padding alone, which pooling does not have
    channels_last = len(rest) == 2 and rest == [0, x.rank - 1]
    order = list(range(x.rank)) if channels_last else [*rest, *axes]
    moved = x.permute(order)
    outer, inner = moved.shape[: len(rest)], moved.shape[len(rest) :]
    value = moved if channels_last else moved.reshape((1, D.product(outer), *inner))
    words: dict[str, object] = {
        "kernel": [window[i] for i in axes],
        "strides": [strides[i] for i in axes],
        "padding": [*(low[i] for i in axes), *(high[i] for i in axes)],
        "data_layout": "N*C" if channels_last else "NC*",
    }
    if kind == "max":
        result = op.emit("max_pool", value, **words)
    else:
        result = op.emit("avg_pool", value, count_include_pad=True, **words)
        elements = float(np.prod([window[i] for i in axes]))
        result = result * elements
    if channels_last:
        return result
    result = result.reshape((*outer, *result.shape[2:]))
    return result.permute([order.index(i) for i in range(x.rank)])
