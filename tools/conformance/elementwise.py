"""Cases of elementwise operators and conversions, beside those that follow from their declarations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.relax.meanings import ROUNDING_SHIFT
from mirlo.tools.conformance.case import (
    ANY,
    BOOL,
    FLOATS,
    INTS,
    NUMERIC_TYPES,
    TABLE,
    Draw,
    OperatorCase,
    case,
    operator,
    wide,
)

choose: Callable[..., np.ndarray] = np.where


@operator("where", kinds=ANY)
def _where(draw: Draw) -> OperatorCase:
    condition, x, y = draw.random.integers(0, 2, (3, 1)).astype(bool), draw.array(3, 37), draw.array(37)
    return case(condition, x, y, expected=choose(condition, wide(x), wide(y)))


@operator("clip", kinds=NUMERIC_TYPES)
def _clip(draw: Draw) -> OperatorCase:
    x = draw.array(3, 37)
    return case(x, min=0.0, max=2.0, expected=np.clip(wide(x), 0, 2))


def _cast(target: str) -> Callable[[Draw], OperatorCase]:
    numpy_type = dtype(target).to_numpy()

    def make(draw: Draw) -> OperatorCase:
        x = draw.array(3, 37, low=0 if target == "u8" else -3, high=3)
        return case(x, dtype=target, expected=wide(wide(x).astype(numpy_type)))

    return make


for _target in (*FLOATS, *INTS, *BOOL):
    TABLE.add("cast", ANY, _cast(_target))


@operator("bitcast", kinds=NUMERIC_TYPES)
def _bitcast(draw: Draw) -> OperatorCase:
    x = draw.array(3, 37)
    bits = f"i{8 * x.dtype.itemsize}"
    return case(x, dtype=bits, expected=wide(x.view(dtype(bits).to_numpy())))


def quantized(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.asarray(np.clip(np.rint(x / scale) + zero, low, high))


@operator("quantize", kinds=("f32",))
def _quantize(draw: Draw) -> OperatorCase:
    x, scale, zero = draw.array(4, 37), draw.nonzero(4, low=0.01, high=0.05), draw.ints(-5, 5, 4).astype(np.int8)
    expected = quantized(x, scale[:, None], zero[:, None].astype(np.int64), -128, 127)
    return case(x, scale, zero, axis=0, dtype="i8", expected=expected)


@operator("requantize", kinds=("i32",))
def _requantize(draw: Draw) -> OperatorCase:
    """Round real numbers of 40 bits, some of which are halves."""
    x = draw.random.integers(-40000, 40000, (6, 37)).astype(np.int32)
    real = draw.random.uniform(0.001, 0.01, 37)
    real[::5] = 2.0**-7
    high = real.astype(np.float32)
    shift = (ROUNDING_SHIFT + draw.random.integers(-90, 90, 37)).astype(np.float32)
    zeros = np.zeros(37, np.float32)
    value = x * real + (shift.astype(np.float64) - ROUNDING_SHIFT)
    expected = np.clip(np.rint(value) + 3, -100, 120)
    return case(
        x, high, (real - high).astype(np.float32), shift, zeros, zero_point=3, min=-100, max=120, dtype="i8",
        expected=expected,
    )  # fmt: skip


@operator("rescale", kinds=("i8", "u8", "i16", "i32", "i64"))
def _rescale(draw: Draw) -> OperatorCase:
    """Scale integers by columns, some of which are rounded from halves and some saturated."""
    bits = 8 * draw.array(1).dtype.itemsize
    x = draw.array(6, 37) if bits == 8 else draw.ints(-9000, 9000, 6, 37)
    multiplier = draw.random.integers(1 << 20, (1 << 31) - 1, 37)
    shift = draw.random.integers(30, 45, 37)
    multiplier[::5], shift[::5] = 1 << 30, 33
    zero = 3 if bits == 8 else 0
    value = (wide(x).astype(np.int64) - zero) * multiplier
    rounded = (value + (1 << 30) * np.where(shift > 31, np.where(value < 0, -1, 1), 0) + (1 << (shift - 1))) >> shift
    return case(
        x, multiplier.astype(np.int32), shift.astype(np.int32), input_zero=zero, zero_point=-4, double_round=True,
        dtype="i8", expected=np.clip(rounded - 4, -128, 127),
    )  # fmt: skip


@operator("dequantize", kinds=("i8", "u8", "i32"))
def _dequantize(draw: Draw) -> OperatorCase:
    x, scale = draw.array(4, 37, low=-50, high=50), draw.random.uniform(0.01, 0.05, 4).astype(np.float32)
    return case(x, scale, axis=0, expected=wide(x) * wide(scale)[:, None])


@operator("unpack", kinds=("u8",))
def _unpack(draw: Draw) -> OperatorCase:
    x = draw.random.integers(0, 256, (3, 7)).astype(np.uint8)
    halves = np.stack([x & 15, x >> 4], axis=-1).reshape(3, 14)
    signed = ((halves.astype(np.int8) ^ 8) - 8).astype(np.int8)
    return case(x, dtype="i4", expected=signed.astype(dtype("i4").to_numpy()))


@operator("quantize_rows", kinds=("f32",))
def _quantize_rows(draw: Draw) -> OperatorCase:
    return _quantized_rows(draw.array(3, 64), 32, 1)


@operator("quantize_rows", kinds=("f32",))
def _quantize_rows_in_digits(draw: Draw) -> OperatorCase:
    return _quantized_rows(draw.array(2, 37), 16, 2)


def _quantized_rows(x: np.ndarray, block: int, digits: int) -> OperatorCase:
    rows, blocks = len(x), -(-x.shape[1] // block)
    padded = np.zeros((rows, blocks * block), np.float32)
    padded[:, : x.shape[1]] = x
    split = padded.reshape(rows, blocks, block).transpose(1, 0, 2)
    top = np.abs(split).max(-1)
    unit = np.float32(127 * 256 ** (digits - 1))
    rest = np.rint(split * (unit / top)[:, :, None]).astype(np.int64)
    codes = np.zeros((digits, *split.shape), np.int8)
    for digit in range(digits - 1):
        codes[digit] = (rest & 255).astype(np.uint8).view(np.int8)
        rest = (rest - codes[digit]) >> 8
    codes[-1] = rest
    sums = codes.astype(np.int32).sum(-1, dtype=np.int32) * -8
    return case(x, block=block, digits=digits, offset=-8, expected=(codes, top / unit, sums))
