"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.frontend import Dim, Tensor, TensorType, UnsupportedOperation, where
from mirlo.extend.frontend import dims as D
from mirlo_torch.bounds import require_positions
from mirlo_torch.operation import AtenOperation, Ints, each_axis
from mirlo_torch.registry import converter

if TYPE_CHECKING:
    import numpy.typing as npt


def _spatial(op: AtenOperation) -> int:
    return next(int(letter) for letter in op.name.split(".")[1] if letter.isdigit())


def _batched(op: AtenOperation, x: Tensor, count: int) -> Tensor:
    return x if x.rank == count + 2 else x.reshape((1, *x.shape))


@converter("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")
def max_pool(
    op: AtenOperation, x: Tensor, kernel: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    count = _spatial(op)
    words = _max_words(op, count, kernel, stride, padding, dilation, ceil_mode)
    return op.emit("max_pool", _batched(op, x, count), **words).reshape(op.shape)


def _max_words(
    op: AtenOperation, count: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> dict[str, object]:
    sizes = each_axis(kernel, count)
    strides = sizes if stride is None or stride == [] or stride == () else each_axis(stride, count)
    return {
        "kernel": sizes, "strides": strides, "padding": each_axis(padding, count) * 2,
        "dilations": each_axis(dilation, count), "ceil_mode": bool(ceil_mode),
    }  # fmt: skip


@converter("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default",
           "aten.max_pool1d_with_indices.default")  # fmt: skip
def max_pool_with_indices(
    op: AtenOperation, x: Tensor, kernel: Ints, stride: Ints = (), padding: Ints = 0, dilation: Ints = 1,
    ceil_mode: bool = False,
) -> list[Tensor]:  # fmt: skip
    """Convert max pooling with the positions of the maxima within their channel."""
    count = _spatial(op)
    words = _max_words(op, count, kernel, stride, padding, dilation, ceil_mode)
    batched = _batched(op, x, count)
    if not op.is_used(1):
        result = op.emit("max_pool", batched, **words)
        return [
            result.reshape(op.result(0).shape),
            op.constant(0, op.result(1).dtype).expand(op.result(1).shape),
        ]
    values, indices = op.emit_all("max_pool_with_indices", batched, **words)
    size = D.product(batched.shape[2:])
    within = indices % op.operand(size, "i64")
    return [values.reshape(op.result(0).shape), within.reshape(op.result(1).shape)]


@converter("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    op: AtenOperation, x: Tensor, kernel: Ints, stride: Ints = (), padding: Ints = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> Tensor:  # fmt: skip
    count = _spatial(op)
    if x.dtype.is_integer:
        raise UnsupportedOperation("averages integers")
    sizes = each_axis(kernel, count)
    strides = sizes if stride is None or stride == [] or stride == () else each_axis(stride, count)
    pads = each_axis(padding, count)
    batched = op.wide(_batched(op, x, count))
    if divisor is not None:
        # Zeros after the last window that is kept, as many as a window in part outside may have.
        after = [pad + (step - 1 if ceil_mode else 0) for pad, step in zip(pads, strides, strict=True)]
        batched = op.emit("pad", batched, pads=[0, 0, *pads, 0, 0, *after], mode="constant", value=0.0)
        pads, ceil_mode = [0] * count, False
    result = op.emit(
            "avg_pool", batched, kernel=sizes, strides=strides, padding=pads * 2, ceil_mode=bool(ceil_mode),
            count_include_pad=bool(count_include_pad),
        )  # fmt: skip
    if divisor is not None:
        for axis, size in enumerate(op.shape[-count:], 2):
            result = result.slice(axis, 0, size)
        result = result * (float(np.prod(sizes)) / divisor)
    return result.reshape(op.shape).cast(op.dtype)


@converter(
    "aten.adaptive_avg_pool1d.default", "aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool3d.default",
    "aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default",
)  # fmt: skip
def adaptive_avg_pool(op: AtenOperation, x: Tensor, _: object) -> Tensor:
    """Convert adaptive pooling: equal windows are pooled, others are a product with a matrix."""
    count = _spatial(op)
    y = op.wide(x)
    shape = op.shape
    axes = list(range(x.rank - count, x.rank))
    if all(shape[axis] == 1 for axis in axes):
        return y.mean(axes, keepdims=True).cast(op.dtype)
    sizes = [(op.fixed(x.shape[axis], "a size"), op.fixed(shape[axis], "a size")) for axis in axes]
    if all(after and before % after == 0 for before, after in sizes):
        steps = [before // after for before, after in sizes]
        result = op.emit("avg_pool", _batched(op, y, count), kernel=steps, strides=steps)
        return result.reshape(shape).cast(op.dtype)
    for axis, (before, after) in zip(axes, sizes, strict=True):
        matrix = np.zeros((before, after))
        for at in range(after):
            begin, end = at * before // after, -(-(at + 1) * before // after)
            matrix[begin:end, at] = 1 / (end - begin)
        order = [i for i in range(x.rank) if i != axis] + [axis]
        moved = y.permute(order) @ op.constant(matrix, y.dtype, matrix.shape)
        y = moved.permute([order.index(i) for i in range(x.rank)])
    return y.cast(op.dtype)


@converter("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default", "aten.adaptive_max_pool1d.default")
def adaptive_max_pool(op: AtenOperation, x: Tensor, _: object) -> list[Tensor]:
    """Convert adaptive max pooling with positions; windows of different sizes are gathered."""
    count = _spatial(op)
    shape = op.result(0).shape
    axes = list(range(x.rank - count, x.rank))
    sizes = [(op.fixed(x.shape[axis], "a size"), op.fixed(shape[axis], "a size")) for axis in axes]
    if 0 in shape:
        return [op.constant(0, op.result(i).dtype).expand(shape) for i in (0, 1)]
    if all(before % after == 0 for before, after in sizes):
        steps = [before // after for before, after in sizes]
        return max_pool_with_indices(op, x, steps, steps)
    windows = _windows(sizes)
    outer = x.shape[: x.rank - count]
    flat = x.reshape((*outer, D.product(x.shape[x.rank - count :])))
    indices = op.constant(windows, TensorType.of((), "i64").dtype, windows.shape)
    rows = flat.gather(indices, axis=flat.rank - 1)
    last = rows.rank - 1
    position = op.position_of_extreme("max", rows, last, True)
    if x.dtype.is_float:  # the last NaN wins
        nans = rows.isnan().flip([last]).cast("i8")
        behind = windows.shape[1] - 1 - nans.argmax(last, keepdims=True)
        some = nans.max(last, keepdims=True).cast("bool")
        position = where(some, behind, position.cast(behind.dtype), behind.dtype)
    table = indices.expand(rows.shape)
    results = [each.gather_elements(position, axis=last) for each in (rows, table)]
    return [each.reshape(shape).cast(op.result(i).dtype) for i, each in enumerate(results)]


def _windows(sizes: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return the positions [windows, elements] in a channel of adaptive pooling's windows.

    Shorter windows repeat their first position at the end.
    """
    table = np.zeros((1, 1), np.int64)
    for before, after in sizes:
        begins = np.arange(after) * before // after
        ends = -(-(np.arange(after) + 1) * before // after)
        steps = np.arange((ends - begins).max())
        rows = np.where(begins[:, None] + steps < ends[:, None], begins[:, None] + steps, -1)
        joined = np.where((table[:, None, :, None] < 0) | (rows[None, :, None, :] < 0), -1,
                          table[:, None, :, None] * before + rows[None, :, None, :])  # fmt: skip
        table = joined.reshape(table.shape[0] * after, -1)
    return np.where(table < 0, table[:, :1], table)


@converter("aten.max_unpool2d.default", "aten.max_unpool3d.default")
def max_unpool(op: AtenOperation, x: Tensor, indices: Tensor, sizes: Sequence[Dim], *_: object) -> Tensor:
    """Convert `max_unpool`: put each value at its position in the channel; other elements are 0."""
    spatial = len(sizes)
    lead, places = x.shape[: x.rank - spatial], D.product(op.shape[x.rank - spatial :])
    require_positions(op, indices, places)
    rows = (D.product(lead), D.product(x.shape[x.rank - spatial :]))
    room = op.constant(0, op.dtype).expand((rows[0], places))
    values, at = x.reshape(rows), indices.reshape(rows)
    return op.emit("scatter_elements", room, at, values, axis=1, reduction="none").reshape(op.shape)
