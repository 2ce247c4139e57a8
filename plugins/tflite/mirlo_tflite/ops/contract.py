"""Convolutions and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import CHANNELS_LAST, Tensor, UnsupportedOperation
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter


@converter("conv2d", "conv3d")
def conv(op: TosaOperation) -> Tensor:
    return _conv(op, op.operands[1], "O*I", 1)


@converter("depthwise_conv2d")
def depthwise_conv2d(op: TosaOperation) -> Tensor:
    """Convert `depthwise_conv2d` with several filters per channel, whose results are adjacent."""
    weight = op.operands[1]
    height, width, channels, count = weight.shape
    if not isinstance(channels, int):
        raise UnsupportedOperation("needs a known number of channels")
    return _conv(op, weight.reshape((height, width, 1, channels * count)), "*IO", channels)


def _conv(op: TosaOperation, weight: Tensor, layout: str, groups: int) -> Tensor:
    """Convolve with zero points subtracted first, so that padding is zero."""
    x, before_after = op.operands[0], op.ints("pad")
    count = x.rank - 2
    attributes = {
        "strides": op.ints("stride"), "dilations": op.ints("dilation", (1,) * count),
        "padding": [*before_after[::2], *before_after[1::2]],
        "data_layout": CHANNELS_LAST, "kernel_layout": layout, "groups": groups,
    }  # fmt: skip
    result = op.declared().dtype
    if x.dtype.is_float:
        kind = {} if result is x.dtype else {"out_dtype": result}
        return _with_bias(op, op.emit("conv", x, weight, None, **kind, **attributes))
    points = op.zero_point(3), op.zero_point(4)
    if x.dtype is weight.dtype and points == (0, 0):
        return _with_bias(op, op.emit("conv", x, weight, None, out_dtype=result, **attributes))
    wide = [_centred(each, point, result.name) for each, point in zip((x, weight), points, strict=True)]
    return _with_bias(op, op.emit("conv", *wide, None, **attributes))


def _centred(x: Tensor, zero_point: int, kind: str) -> Tensor:
    wide = x.cast(kind)
    return wide - zero_point if zero_point else wide


def _with_bias(op: TosaOperation, sums: Tensor) -> Tensor:
    """Add a bias with one element, or one for each channel."""
    bias = op.operands[2]
    if bias.array is not None and not bias.array.any():
        return sums
    return sums + bias.cast(sums.dtype)


@converter("transpose_conv2d")
def transpose_conv2d(op: TosaOperation) -> Tensor:
    """Convert `transpose_conv2d`; for integers, convolve elements spaced by zeros."""
    x, weight = op.operands[:2]
    strides, out_pad = op.ints("stride"), op.ints("out_pad")
    if not x.dtype.is_float:
        return _integer_transpose(op, strides, out_pad)
    result_type = op.declared().dtype
    if x.dtype.bits < result_type.bits:
        x, weight = x.cast(result_type), weight.cast(result_type)
    crop = [max(0, -amount) for amount in out_pad]
    result = op.emit(
        "conv_transpose", x, weight.permute((3, 0, 1, 2)), None, strides=strides,
        padding=[*crop[::2], *crop[1::2]], data_layout=CHANNELS_LAST,
    )  # fmt: skip
    grown = [max(0, amount) for amount in out_pad]
    if any(grown):
        result = op.emit("pad", result, pads=[0, grown[0], grown[2], 0, 0, grown[1], grown[3], 0])
    return _with_bias(op, result.cast(result_type))


def _integer_transpose(op: TosaOperation, strides: Sequence[int], out_pad: Sequence[int]) -> Tensor:
    kind = op.declared().dtype.name
    x, weight = (
        _centred(each, op.zero_point(index), kind) for each, index in zip(op.operands[:2], (3, 4), strict=True)
    )
    batch, height, width, channels = x.shape
    # Elements, each with the zeros after it, as dims of their own; after the last ones there are none.
    gaps = strides[0] - 1, strides[1] - 1
    pads = [0, 0, 0, 0, 0, 0, 0, 0, gaps[0], 0, gaps[1], 0]
    apart = op.emit("pad", x.reshape((batch, height, 1, width, 1, channels)), pads=pads)
    whole = apart.reshape((batch, height * strides[0], width * strides[1], channels))
    window = [size for size in weight.shape[1:3] if isinstance(size, int)]
    if len(window) != 2:
        raise UnsupportedOperation("needs a window of a known size")
    reach = [int(size) - 1 for size in window]
    top, left = reach[0] + out_pad[0], reach[1] + out_pad[2]
    bottom, right = reach[0] + out_pad[1] - gaps[0], reach[1] + out_pad[3] - gaps[1]
    around = op.emit("pad", whole, pads=[0, top, left, 0, 0, bottom, right, 0])
    flipped = weight.flip((1, 2))
    return _with_bias(op, op.emit("conv", around, flipped, None, data_layout=CHANNELS_LAST, kernel_layout="O*I"))


@converter("matmul", "matmul_t")
def matmul(op: TosaOperation) -> Tensor:
    """Convert a batch of products; integers have zero points, `matmul_t` has a transposed b."""
    a, b, result = op.operands[0], op.operands[1], op.declared().dtype
    if op.name == "matmul_t":
        b = b.transpose()
    if a.dtype.is_float:
        return a.matmul(b) if result is a.dtype else a.matmul(b, out_dtype=result)
    points = (op.zero_point(2), op.zero_point(3)) if len(op.operands) > 2 else (0, 0)
    if points == (0, 0) and a.dtype is b.dtype:
        return a.matmul(b, out_dtype=result)
    return _centred(a, points[0], result.name) @ _centred(b, points[1], result.name)
