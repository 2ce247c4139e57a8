"""Quantized programs of torchao: `quantized_decomposed`, integers and scales between ordinary operators."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.operation import AtenOperation, Operand, axis_of
from mirlo.frontends.torch.registry import converter

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
    scale, zero = op.cast(scales, x.dtype), op.cast(zeros, op.dtype)
    return _quantized(op, x, scale, zero, axis_of(axis, x.rank), least, most)


def _quantized(op: AtenOperation, x: Tensor, scale: Tensor, zero: Tensor, axis: int, least: int, most: int) -> Tensor:
    """Return the integers of a tensor, within bounds that may be closer than those of their type."""
    if op.dtype.name not in STORED:
        raise UnsupportedOperation(f"quantizes to {op.dtype}")
    result = op.emit("quantize", x, scale, zero, axis=axis, dtype=op.dtype)
    limits = np.iinfo(op.dtype.to_numpy())
    if least > limits.min:
        result = op.apply("maximum", result, least)
    return op.apply("minimum", result, most) if most < limits.max else result


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
    zero = None if zeros is None else op.cast(zeros, x.dtype)
    return _dequantized(op, x, op.cast(scales, op.dtype), zero, axis_of(axis, x.rank))


@converter(f"{_OPS}.dequantize_per_channel_group.default")
def dequantize_per_channel_group(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor | None, least: int, most: int, _: object, group: int,
    *__: object,
) -> Tensor:  # fmt: skip
    zero = None if zeros is None else op.cast(zeros, x.dtype)
    return _dequantized(op, x, op.cast(scales, op.dtype), zero, x.rank - 1, group)


def _dequantized(op: AtenOperation, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, block: int = 0) -> Tensor:
    if x.dtype.name not in (*STORED, "i32"):
        raise UnsupportedOperation(f"dequantizes {x.dtype}")
    words = {"axis": axis, "dtype": op.dtype}
    if block:
        words["block"] = block
    return op.emit("dequantize", x, scale, zero, **words)


def _scalar(op: AtenOperation, value: Operand, kind: DType) -> Tensor:
    """Return a number, or a tensor of one element, as a tensor without dims."""
    return op.reshaped(op.operand(value, kind), ())


@converter(f"{_OPS}.convert_element_type.no_fuse")
def convert_element_type(op: AtenOperation, x: Tensor, _: object) -> Tensor:
    return op.cast(x, op.dtype)


@converter(f"{_OPS}.choose_qparams.tensor", f"{_OPS}.choose_qparams_symmetric.tensor")
def choose_qparams(op: AtenOperation, x: Tensor, least: int, most: int, epsilon: float, kind: object) -> list[Tensor]:
    """Convert the choice of a scale and a zero point for all elements, whose range includes 0."""
    low, high = _range_with_zero(op, x, list(range(x.rank)))
    if "symmetric" in op.name:
        high = op.apply("maximum", op.apply("negative", low), high)
        scale = op.apply("maximum", op.apply("divide", high, (most - least) / 2), epsilon)
        zero = op.constant(128 if str(kind) == "torch.uint8" else 0, op.result(1).dtype)
    else:
        scale = op.apply("divide", op.apply("subtract", high, low), float(most - least))
        scale = op.apply("maximum", scale, epsilon)
        steps = op.apply("round", op.apply("divide", low, scale))
        zero = op.apply("clip", op.apply("subtract", op.constant(least, steps.dtype), steps), min=least, max=most)
    return [
        op.reshaped(op.cast(made, op.result(index).dtype), op.result(index).shape)
        for index, made in enumerate((scale, zero))
    ]


def _range_with_zero(op: AtenOperation, x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
    """Return the least and the largest element along axes, or 0 if that lies further out."""
    bounds = [
        op.apply(f"{name}imum", op.emit(f"reduce_{name}", x, axes=axes, keepdims=True), 0) for name in ("min", "max")
    ]
    return bounds[0], bounds[1]


@converter(f"{_OPS}.choose_qparams_per_token.default")
def choose_qparams_per_token(op: AtenOperation, x: Tensor, _: object) -> list[Tensor]:
    size = op.emit("reduce_max", op.apply("abs", x), axes=[x.rank - 1], keepdims=True)
    scale = op.apply("divide", op.apply("maximum", op.cast(size, op.result(0).dtype), 1e-5), 127.0)
    return [scale, op.expanded(op.constant(0, op.result(1).dtype), op.result(1).shape)]


@converter(
    f"{_OPS}.choose_qparams_per_token_asymmetric.default", f"{_OPS}._choose_qparams_per_token_asymmetric_impl.default"
)
def choose_qparams_per_token_asymmetric(op: AtenOperation, x: Tensor, _: object) -> list[Tensor]:
    """Convert the choice of a scale and a zero point for each row, of the zero points that err less at an end."""
    least, most = -128.0, 127.0
    low, high = _range_with_zero(op, x, [x.rank - 1])
    scale = op.apply("divide", op.apply("subtract", high, low), most - least)
    scale = op.apply("maximum", scale, float(np.finfo(np.float32).eps))
    begin, end = op.apply("divide", low, scale), op.apply("divide", high, scale)
    errors = op.apply("add", op.apply("add", begin, least), op.apply("add", end, most))
    kind = begin.dtype
    from_low, from_high = (
        op.apply("subtract", op.constant(limit, kind), each) for limit, each in ((least, begin), (most, end))
    )
    zero = op.choose(op.apply("greater", errors, 0.0), from_low, from_high, kind)
    zero = op.apply("round", op.apply("clip", zero, min=least, max=most))
    return [op.cast(scale, op.result(0).dtype), op.cast(zero, op.result(1).dtype)]


@converter(f"{_OPS}.quantize_per_token.default")
def quantize_per_token(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, least: int, most: int, *_: object
) -> Tensor:
    return op.cast(_in_steps(op, x, scales, zeros, least, most), op.dtype)


@converter(f"{_OPS}.quantize_per_channel_group.default")
def quantize_per_channel_group(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, least: int, most: int, _: object, group: int
) -> Tensor:
    columns = op.fixed(x.shape[1], "a number of columns")
    group = columns if group > columns else group
    apart = op.reshaped(x, (x.shape[0] * (columns // group), group))
    scale, zero = (op.reshaped(each, (apart.shape[0], 1)) for each in (scales, zeros))
    return op.reshaped(op.cast(_in_steps(op, apart, scale, zero, least, most), op.dtype), op.shape)


def _in_steps(op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, least: int, most: int) -> Tensor:
    """Return round(x * (1 / scale) + zero) within bounds, in the type of x and the scales together."""
    x, scales = op.promoted(x, scales)
    steps = op.apply("multiply", x, op.apply("reciprocal", scales))
    moved = op.apply("add", steps, op.cast(zeros, steps.dtype))
    return op.apply("clip", op.apply("round", moved), min=float(least), max=float(most))


@converter(f"{_OPS}.dequantize_per_token.default")
def dequantize_per_token(op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, *_: object) -> Tensor:
    x, zeros = op.promoted(x, zeros)
    x, scales = op.promoted(op.apply("subtract", x, zeros), scales)
    return op.cast(op.apply("multiply", x, scales), op.dtype)
