"""Pooling over windows."""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import CHANNELS_LAST, Tensor, UnsupportedOperation, where
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.ops.quantize import rescaled
from mirlo_tflite.registry import converter


@converter("max_pool2d", "max_pool2d_adaptive")
def max_pool2d(op: TosaOperation) -> Tensor:
    """Convert `max_pool2d`; if NaN is ignored, a window of NaN alone gives the smallest value."""
    x = op.operands[0]
    if op.ignores_nan:
        wide = x.cast("f32") if x.dtype.bits == 8 else x  # not every type of 8 bits has infinities
        pooled = op.emit("max_pool", where(wide.isnan(), -np.inf, wide), **_window(op))
        return pooled.cast(x.dtype, saturate=True) if x.dtype.bits == 8 else pooled
    return op.emit("max_pool", x, **_window(op))


@converter("avg_pool2d", "avg_pool2d_adaptive")
def avg_pool2d(op: TosaOperation) -> Tensor:
    """Convert `avg_pool2d`, which does not count padding; sums of integers are scaled by a rounded reciprocal."""
    x = op.operands[0]
    if x.dtype.is_float:
        return op.emit("avg_pool", x, **_window(op))
    window = _window(op)
    channels = x.shape[-1]
    if not isinstance(channels, int):
        raise UnsupportedOperation("needs a known number of channels")
    ones = op.constant(np.ones((), np.int8), "i8", (*_sizes(op, "kernel"), 1, channels))
    attributes = {name: value for name, value in window.items() if name != "kernel"}
    wide = [x, ones] if x.dtype.bits == 8 else [x.cast("i32"), ones.cast("i32")]
    out = {"out_dtype": "i32"} if x.dtype.bits == 8 else {}
    sums = op.emit("conv", *wide, None, kernel_layout="*IO", groups=channels, **out, **attributes)
    counts = _counts(op)
    scale = [_reciprocal(int(count)) for count in counts.reshape(-1)]
    multiplier, shift = (np.array(part, np.int64) for part in zip(*scale, strict=True))
    if first := op.zero_point(1):
        sums = sums - sums.like(first * counts)
    multiplier, shift = (part.reshape(counts.shape) for part in (multiplier, shift))
    if len(set(scale)) == 1:
        multiplier, shift = (np.array(part, np.int64) for part in scale[0])
    return rescaled(sums, multiplier, shift, x.dtype.name, zero_point=op.zero_point(2))


def _counts(op: TosaOperation) -> np.ndarray:
    """Return the number of elements of each window, [height, width, 1], or one number."""
    (top, bottom, left, right), kernel, stride = (_sizes(op, name) for name in ("pad", "kernel", "stride"))
    if not any((top, bottom, left, right)):
        return np.array(kernel[0] * kernel[1], np.int64)
    sides = []
    for size, before, extent, step, end in zip(op.type(0).shape[1:3], (top, left), kernel, stride, (bottom, right),
                                               strict=True):  # fmt: skip
        if not isinstance(size, int):
            raise UnsupportedOperation("has padding, which needs a known height and width")
        starts = np.arange((size + before + end - extent) // step + 1) * step - before
        sides.append(np.minimum(starts + extent, size) - np.maximum(starts, 0))
    result: np.ndarray = np.multiply.outer(sides[0], sides[1])[..., None].astype(np.int64)
    return result


def _reciprocal(count: int) -> tuple[int, int]:
    """Return TOSA's multiplier and shift for the division by a number."""
    bits = (count - 1).bit_length()
    return ((1 << 30) + 1 << bits) // count, 30 + bits


def _sizes(op: TosaOperation, name: str) -> list[int]:
    """Return the sizes of windows, strides or padding: attributes, or the last operands of adaptive operations."""
    if not op.name.endswith("_adaptive"):
        return op.ints(name)
    return op.numbers(len(op.operands) - 3 + ("kernel", "stride", "pad").index(name), f"a {name} that is known")


def _window(op: TosaOperation) -> dict[str, object]:
    pad = _sizes(op, "pad")
    return {
        "kernel": _sizes(op, "kernel"), "strides": _sizes(op, "stride"),
        "padding": [pad[0], pad[2], pad[1], pad[3]], "data_layout": CHANNELS_LAST,
    }  # fmt: skip
