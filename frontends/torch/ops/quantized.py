"""Quantized programs of torchao: `quantized_decomposed`, integers and scales between ordinary operators."""

from __future__ import annotations

from typing import Any

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
    op: AtenOperation, x: Tensor, scale: Any, zero: Any, least: int, most: int, *_: object, **ignored: object
) -> Tensor:
    return _quantized(op, x, _scalar(op, scale, x.type.dtype), _scalar(op, zero, op.dtype), 0, least, most)


@converter(f"{_OPS}.quantize_per_channel.default")
def quantize_per_channel(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, least: int, most: int, *_: object
) -> Tensor:
    scale, zero = op.cast(scales, x.type.dtype), op.cast(zeros, op.dtype)
    return _quantized(op, x, scale, zero, axis_of(axis, x.type.rank), least, most)


def _quantized(op: AtenOperation, x: Tensor, scale: Tensor, zero: Tensor, axis: int, least: int, most: int) -> Tensor:
    """Return the integers of a tensor, within bounds that may be closer than those of their type."""
    if op.dtype.name not in STORED:
        raise UnsupportedOperation(f"quantizes to {op.dtype}")
    made = op.tensor(op.emit("quantize", x, scale, zero, axis=axis, dtype=op.dtype))
    limits = np.iinfo(op.dtype.to_numpy())
    if least > limits.min:
        made = op.apply("maximum", made, least)
    return op.apply("minimum", made, most) if most < limits.max else made


@converter(f"{_OPS}.dequantize_per_tensor.default", f"{_OPS}.dequantize_per_tensor.tensor")
def dequantize_per_tensor(op: AtenOperation, x: Tensor, scale: Any, zero: Any, *_: object, **ignored: object) -> Tensor:
    kind = x.type.dtype
    return _dequantized(op, x, _scalar(op, scale, op.dtype), _scalar(op, zero, kind), 0)


@converter(f"{_OPS}.dequantize_per_channel.default")
def dequantize_per_channel(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: object, **ignored: object
) -> Tensor:
    zero = None if zeros is None else op.cast(zeros, x.type.dtype)
    return _dequantized(op, x, op.cast(scales, op.dtype), zero, axis_of(axis, x.type.rank))


@converter(f"{_OPS}.dequantize_per_channel_group.default")
def dequantize_per_channel_group(
    op: AtenOperation, x: Tensor, scales: Tensor, zeros: Tensor | None, least: int, most: int, _: object, group: int,
    *__: object,
) -> Tensor:  # fmt: skip
    zero = None if zeros is None else op.cast(zeros, x.type.dtype)
    return _dequantized(op, x, op.cast(scales, op.dtype), zero, x.type.rank - 1, group)


def _dequantized(op: AtenOperation, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, block: int = 0) -> Tensor:
    if x.type.dtype.name not in (*STORED, "i32"):
        raise UnsupportedOperation(f"dequantizes {x.type.dtype}")
    words = {"axis": axis, "dtype": op.dtype}
    if block:
        words["block"] = block
    return op.tensor(op.emit("dequantize", x, scale, zero, **words))


def _scalar(op: AtenOperation, value: Operand, kind: DType) -> Tensor:
    """Return a number, or a tensor of one element, as a tensor without dims."""
    return op.reshaped(op.operand(value, kind), ())


@converter(f"{_OPS}.convert_element_type.no_fuse")
def convert_element_type(op: AtenOperation, x: Tensor, _: object) -> Tensor:
    return op.cast(x, op.dtype)
