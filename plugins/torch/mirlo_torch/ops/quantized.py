"""Quantized programs of torchao: `quantized_decomposed`, integers and scales between ordinary operators."""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import DType, Tensor, UnsupportedOperation, maximum, minimum, where
from mirlo.extend.library import range_with_zero, zero_point
from mirlo_torch.operation import AtenOperation, Operand, axis_of
from mirlo_torch.registry import converter

STORED = ("i8", "u8", "i16", "u16")
"""Element types of quantized tensors."""
_OPS = "quantized_decomposed"


@converter(f"{_OPS}.quantize_per_tensor.default", f"{_OPS}.quantize_per_tensor.tensor")
def quantize_per_tensor(
    op: AtenOperation, x: Tensor, scale: Operand, zero: Operand, least: int, most: int, *_: object, **ignored: object
) -> Tensor:
    return _quantized(op, x, _scalar(op, scale, x.dtype), _scalar(op, zero, op.dtype), 0, least, most)


@converter(f"{_OPS}.quantize_per_channel.default")
def quantize_per_channel(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, least: int, most: int, *_: object
) -> Tensor:
    scale, zero = scales.cast(x.dtype), zeros.cast(op.dtype)
    return _quantized(op, x, scale, zero, axis_of(axis, x.rank), least, most)


def _quantized(op: AtenOperation, x: Tensor, scale: Tensor, zero: Tensor, axis: int, least: int, most: int) -> Tensor:
    """Return the integers of a quantized tensor, clamped to bounds that may be tighter than its type's."""
    if op.dtype.name not in STORED:
        raise UnsupportedOperation(f"quantizes to {op.dtype}")
    result = op.emit("quantize", x, scale, zero, axis=axis, dtype=op.dtype)
    limits = np.iinfo(op.dtype.to_numpy())
    if least > limits.min:
        result = maximum(result, least)
    return minimum(result, most) if most < limits.max else result


@converter(f"{_OPS}.dequantize_per_tensor.default", f"{_OPS}.dequantize_per_tensor.tensor")
def dequantize_per_tensor(
    op: AtenOperation, x: Tensor, scale: Operand, zero: Operand, *_: object, **ignored: object
) -> Tensor:
    kind = x.dtype
    return _dequantized(op, x, _scalar(op, scale, op.dtype), _scalar(op, zero, kind), 0)


@converter(f"{_OPS}.dequantize_per_channel.default")
def dequantize_per_channel(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: object, **ignored: object
) -> Tensor:
    zero = None if zeros is None else zeros.cast(x.dtype)
    return _dequantized(op, x, scales.cast(op.dtype), zero, axis_of(axis, x.rank))


@converter(f"{_OPS}.dequantize_per_channel_group.default")
def dequantize_per_channel_group(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor | None, least: int, most: int, _: object, group: int,
    *__: object,
) -> Tensor:  # fmt: skip
    zero = None if zeros is None else zeros.cast(x.dtype)
    return _dequantized(op, x, scales.cast(op.dtype), zero, x.rank - 1, group)


def _dequantized(op: AtenOperation, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, block: int = 0) -> Tensor:
    if x.dtype.name not in (*STORED, "i32"):
        raise UnsupportedOperation(f"dequantizes {x.dtype}")
    words = {"axis": axis, "dtype": op.dtype}
    if block:
        words["block"] = block
    return op.emit("dequantize", x, scale, zero, **words)


def _scalar(op: AtenOperation, value: Operand, kind: DType) -> Tensor:
    """Return a number, or a tensor of one element, as a tensor without dims."""
    return op.operand(value, kind).reshape(())


@converter(f"{_OPS}.convert_element_type.no_fuse")
def convert_element_type(op: AtenOperation, x: Tensor, _: object) -> Tensor:
    return x.cast(op.dtype)


@converter(f"{_OPS}.choose_qparams.tensor", f"{_OPS}.choose_qparams_symmetric.tensor")
def choose_qparams(op: AtenOperation, x: Tensor, least: int, most: int, epsilon: float, kind: object) -> list[Tensor]:
    """Convert the choice of a scale and a zero point for all elements, whose range includes 0."""
    low, high = range_with_zero(x, list(range(x.rank)))
    if "symmetric" in op.name:
        high = maximum(-low, high)
        scale = maximum(high / ((most - least) / 2), epsilon)
        zero = op.constant(128 if str(kind) == "torch.uint8" else 0, op.result(1).dtype)
    else:
        scale = (high - low) / float(most - least)
        scale = maximum(scale, epsilon)
        zero = zero_point(low, scale, least, most)
    return [
        parameter.cast(op.result(index).dtype).reshape(op.result(index).shape)
        for index, parameter in enumerate((scale, zero))
    ]


@converter(f"{_OPS}.choose_qparams_per_token.default")
def choose_qparams_per_token(op: AtenOperation, x: Tensor, _: object) -> list[Tensor]:
    size = abs(x).max(x.rank - 1, keepdims=True)
    scale = maximum(size.cast(op.result(0).dtype), 1e-05) / 127.0
    return [scale, op.constant(0, op.result(1).dtype).expand(op.result(1).shape)]


@converter(
    f"{_OPS}.choose_qparams_per_token_asymmetric.default", f"{_OPS}._choose_qparams_per_token_asymmetric_impl.default"
)
def choose_qparams_per_token_asymmetric(op: AtenOperation, x: Tensor, _: object) -> list[Tensor]:
    """Choose a scale and a zero point for each row, the zero point with the smaller error at the ends."""
    least, most = -128.0, 127.0
    low, high = range_with_zero(x, [x.rank - 1])
    scale = (high - low) / (most - least)
    scale = maximum(scale, float(np.finfo(np.float32).eps))
    begin, end = low / scale, high / scale
    errors = begin + least + (end + most)
    kind = begin.dtype
    from_low, from_high = (limit - each for limit, each in ((least, begin), (most, end)))
    zero = where(errors > 0.0, from_low, from_high, kind)
    zero = zero.clip(least=least, most=most).round()
    return [scale.cast(op.result(0).dtype), zero.cast(op.result(1).dtype)]


@converter(f"{_OPS}.quantize_per_token.default")
def quantize_per_token(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, least: int, most: int, *_: object
) -> Tensor:
    return _in_steps(op, x, scales, zeros, least, most).cast(op.dtype)


@converter(f"{_OPS}.quantize_per_channel_group.default")
def quantize_per_channel_group(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, least: int, most: int, _: object, group: int
) -> Tensor:
    columns = op.fixed(x.shape[1], "a number of columns")
    group = columns if group > columns else group
    apart = x.reshape((x.shape[0] * (columns // group), group))
    scale, zero = (each.reshape((apart.shape[0], 1)) for each in (scales, zeros))
    return _in_steps(op, apart, scale, zero, least, most).cast(op.dtype).reshape(op.shape)


def _in_steps(op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, least: int, most: int) -> Tensor:
    """Return round(x * (1 / scale) + zero) within bounds, in the type of x and the scales together."""
    x, scales = op.promoted(x, scales)
    steps = x * scales.reciprocal()
    moved = steps + zeros.cast(steps.dtype)
    return moved.round().clip(least=float(least), most=float(most))


@converter(f"{_OPS}.dequantize_per_token.default")
def dequantize_per_token(op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, *_: object) -> Tensor:
    x, zeros = op.promoted(x, zeros)
    x, scales = op.promoted(x - zeros, scales)
    return (x * scales).cast(op.dtype)
