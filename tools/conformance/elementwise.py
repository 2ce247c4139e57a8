"""Cases of elementwise operators, activations and conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mirlo.dialects.core.dtypes import dtype
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

Function = Callable[..., np.ndarray]
_SIGNED = (*FLOATS, "i8", "i32", "i64")


def each(function: Callable[[float], float]) -> Function:
    """Apply a function on Python numbers to each element."""
    return np.vectorize(function, otypes=[np.float64])


choose: Any = np.where


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def _cdf(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + each(math.erf)(x / math.sqrt(2)))


# operator: meaning, element types, smallest and largest operand
UNARY: dict[str, tuple[Function, tuple[str, ...], float, float]] = {
    "abs": (np.abs, _SIGNED, -3, 3), "negative": (np.negative, _SIGNED, -3, 3), "sign": (np.sign, _SIGNED, -3, 3),
    "exp": (np.exp, FLOATS, -3, 3), "exp2": (np.exp2, FLOATS, -3, 3), "expm1": (np.expm1, FLOATS, -3, 3),
    "log": (np.log, FLOATS, 0.1, 9), "log2": (np.log2, FLOATS, 0.1, 9), "log10": (np.log10, FLOATS, 0.1, 9),
    "log1p": (np.log1p, FLOATS, -0.9, 9), "sqrt": (np.sqrt, FLOATS, 0.1, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), FLOATS, 0.1, 9), "cbrt": (np.cbrt, FLOATS, -9, 9),
    "sin": (np.sin, FLOATS, -9, 9), "cos": (np.cos, FLOATS, -9, 9), "tan": (np.tan, FLOATS, -1.2, 1.2),
    "asin": (np.arcsin, FLOATS, -1, 1), "acos": (np.arccos, FLOATS, -1, 1), "atan": (np.arctan, FLOATS, -9, 9),
    "sinh": (np.sinh, FLOATS, -3, 3), "cosh": (np.cosh, FLOATS, -3, 3), "tanh": (np.tanh, FLOATS, -3, 3),
    "asinh": (np.arcsinh, FLOATS, -9, 9), "acosh": (np.arccosh, FLOATS, 1, 9), "atanh": (np.arctanh, FLOATS, -0.9, 0.9),
    "erf": (each(math.erf), FLOATS, -3, 3), "erfc": (each(math.erfc), FLOATS, -3, 3),
    "floor": (np.floor, FLOATS, -9, 9), "ceil": (np.ceil, FLOATS, -9, 9), "trunc": (np.trunc, FLOATS, -9, 9),
    "round": (np.rint, FLOATS, -9, 9), "reciprocal": (lambda x: 1 / x, FLOATS, 0.1, 9),
    "square": (np.square, NUMERIC_TYPES, -3, 3), "logical_not": (np.logical_not, BOOL, 0, 1),
    "bitwise_not": (np.invert, INTS, -9, 9), "relu": (lambda x: np.maximum(x, 0), NUMERIC_TYPES, -3, 3),
    "leaky_relu": (lambda x: choose(x >= 0, x, 0.01 * x), FLOATS, -3, 3),
    "elu": (lambda x: choose(x >= 0, x, np.expm1(x)), FLOATS, -3, 3),
    "selu": (
        lambda x: 1.0507010221481323 * choose(x > 0, x, 1.6732631921768188 * np.expm1(x)), FLOATS, -3, 3,
    ),
    "celu": (lambda x: np.maximum(x, 0) + np.minimum(0, np.expm1(x)), FLOATS, -3, 3),
    "sigmoid": (sigmoid, FLOATS, -9, 9), "hard_sigmoid": (lambda x: np.clip(0.2 * x + 0.5, 0, 1), FLOATS, -9, 9),
    "hard_swish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), FLOATS, -9, 9),
    "silu": (lambda x: x * sigmoid(x), FLOATS, -9, 9), "mish": (lambda x: x * np.tanh(softplus(x)), FLOATS, -9, 9),
    "softplus": (softplus, FLOATS, -9, 9), "softsign": (lambda x: x / (1 + np.abs(x)), FLOATS, -9, 9),
    "thresholded_relu": (lambda x: choose(x > 1, x, 0), FLOATS, -3, 3),
    "shrink": (lambda x: choose(x < -0.5, x, choose(x > 0.5, x, 0)), FLOATS, -3, 3),
    "gelu": (lambda x: x * _cdf(x), FLOATS, -3, 3),
    "isnan": (np.isnan, FLOATS, -3, 3), "isinf": (np.isinf, FLOATS, -3, 3), "isfinite": (np.isfinite, FLOATS, -3, 3),
}  # fmt: skip

BINARY: dict[str, tuple[Function, tuple[str, ...]]] = {
    "add": (np.add, NUMERIC_TYPES), "subtract": (np.subtract, NUMERIC_TYPES), "multiply": (np.multiply, NUMERIC_TYPES),
    "maximum": (np.maximum, NUMERIC_TYPES), "minimum": (np.minimum, NUMERIC_TYPES), "atan2": (np.arctan2, FLOATS),
    "logical_and": (np.logical_and, BOOL), "logical_or": (np.logical_or, BOOL), "logical_xor": (np.logical_xor, BOOL),
    "bitwise_and": (np.bitwise_and, INTS), "bitwise_or": (np.bitwise_or, INTS), "bitwise_xor": (np.bitwise_xor, INTS),
    "equal": (np.equal, ANY), "not_equal": (np.not_equal, ANY), "less": (np.less, NUMERIC_TYPES),
    "less_equal": (np.less_equal, NUMERIC_TYPES), "greater": (np.greater, NUMERIC_TYPES),
    "greater_equal": (np.greater_equal, NUMERIC_TYPES),
}  # fmt: skip


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.trunc(x / y) if x.dtype.kind == "i" else x / y


# The second operand is positive.
DIVISIONS: dict[str, tuple[Function, tuple[str, ...]]] = {
    "divide": (_divide, NUMERIC_TYPES),
    "floor_divide": (np.floor_divide, NUMERIC_TYPES),
    "mod": (np.mod, NUMERIC_TYPES),
    "fmod": (np.fmod, NUMERIC_TYPES),
    "shift_left": (np.left_shift, INTS),
    "shift_right": (np.right_shift, INTS),
}


def _unary(function: Function, low: float, high: float) -> Callable[[Draw], OperatorCase]:
    def make(draw: Draw) -> OperatorCase:
        x = draw.array(3, 37, low=low, high=high)
        if function in (np.isnan, np.isinf, np.isfinite):
            x[0, :3] = [np.nan, np.inf, -np.inf]
        return case(x, expected=function(wide(x)))

    return make


def _binary(function: Function, divides: bool) -> Callable[[Draw], OperatorCase]:
    def make(draw: Draw) -> OperatorCase:
        x, y = draw.array(3, 1, 37), draw.nonzero(5, 37) if divides else draw.array(5, 37)
        return case(x, y, expected=function(wide(x), wide(y)))

    return make


for _name, (_function, _kinds, _low, _high) in UNARY.items():
    TABLE.add(_name, _kinds, _unary(_function, _low, _high))
for _name, (_pair, _kinds) in BINARY.items():
    TABLE.add(_name, _kinds, _binary(_pair, divides=False))
for _name, (_pair, _kinds) in DIVISIONS.items():
    TABLE.add(_name, _kinds, _binary(_pair, divides=True))


@operator("power", kinds=NUMERIC_TYPES)
def _power(draw: Draw) -> OperatorCase:
    x, y = draw.nonzero(3, 37), draw.array(3, 37, low=0, high=3)
    return case(x, y, expected=np.power(wide(x), wide(y)))


@operator("where", kinds=ANY)
def _where(draw: Draw) -> OperatorCase:
    condition, x, y = draw.random.integers(0, 2, (3, 1)).astype(bool), draw.array(3, 37), draw.array(37)
    return case(condition, x, y, expected=choose(condition, wide(x), wide(y)))


@operator("gelu")
def _gelu_by_tanh(draw: Draw) -> OperatorCase:
    x = draw.array(3, 37)
    w = wide(x)
    expected = 0.5 * w * (1 + np.tanh(math.sqrt(2 / math.pi) * (w + 0.044715 * w**3)))
    return case(x, approximate="tanh", expected=expected)


@operator("clip", kinds=NUMERIC_TYPES)
def _clip(draw: Draw) -> OperatorCase:
    x = draw.array(3, 37)
    return case(x, min=0.0, max=2.0, expected=np.clip(wide(x), 0, 2))


@operator("prelu")
def _prelu(draw: Draw) -> OperatorCase:
    x, slope = draw.array(2, 3, 19), draw.array(3, 1)
    return case(x, slope, expected=choose(wide(x) >= 0, wide(x), wide(x) * wide(slope)))


def _softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


@operator("softmax")
def _softmax_case(draw: Draw) -> OperatorCase:
    x = draw.array(5, 37)
    return case(x, expected=_softmax(wide(x)))


@operator("log_softmax")
def _log_softmax(draw: Draw) -> OperatorCase:
    x = draw.array(5, 37)
    return case(x, expected=np.log(_softmax(wide(x))))


@operator("hardmax")
def _hardmax(draw: Draw) -> OperatorCase:
    x = draw.permuted(5, 7)
    return case(x, expected=np.eye(7)[np.argmax(x, -1)])


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
    return np.clip(np.rint(x / scale) + zero, low, high)


@operator("quantize", kinds=("f32",))
def _quantize(draw: Draw) -> OperatorCase:
    x, scale, zero = draw.array(4, 37), draw.nonzero(4, low=0.01, high=0.05), draw.ints(-5, 5, 4).astype(np.int8)
    expected = quantized(x, scale[:, None], zero[:, None].astype(np.int64), -128, 127)
    return case(x, scale, zero, axis=0, dtype="i8", expected=expected)


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
