"""What elementwise operators mean on scalar expressions, where numpy's functions on them do not say it.

These forms are exact at the edges, or keep precision: what compiled code evaluates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.tir.compute import (
    Expr,
    abs_,
    call,
    clamp,
    constant,
    exp,
    maximum,
    minimum,
    select,
    sigmoid,
    tanh,
)


def sign(x: Expr) -> Expr:
    zero = constant(0, x.dtype)
    if x.dtype.is_unsigned:
        return select(x > zero, constant(1, x.dtype), zero)
    signed = select(x > zero, constant(1, x.dtype), select(x < zero, constant(-1, x.dtype), zero))
    return select(x.differs(x), x, signed) if x.dtype.is_float else signed


def power(x: Expr, y: Expr) -> Expr:
    if x.dtype.is_float:
        return call("pow", x, y)
    # Integers by repeated squaring. A negative exponent results in 0 unless the base is ±1.
    result = constant(1, x.dtype)
    base, left = x, y
    for _ in range(min(x.dtype.bits, 64).bit_length()):
        result = select((left & 1).differs(0), result * base, result)
        base, left = base * base, left >> 1
    if x.dtype.is_unsigned:
        return result
    odd = (y & 1).differs(0)
    of_minus_one = select(odd, constant(-1, x.dtype), constant(1, x.dtype))
    negative = select(x.equals(1), constant(1, x.dtype), select(x.equals(-1), of_minus_one, constant(0, x.dtype)))
    return select(y < 0, negative, result)


def _quotient(divide: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """Wrap a division of integers so that it never traps: x / 0 is 0, as in numpy; the minimum / -1 is itself."""

    def function(x: Expr, y: Expr) -> Expr:
        if x.dtype.is_float:
            return divide(x, y)
        quotient = divide(x, _divisor(y))
        quotient = quotient if x.dtype.is_unsigned else select(y.equals(-1), -x, quotient)
        return select(y.equals(0), constant(0, x.dtype), quotient)

    return function


def _divisor(y: Expr) -> Expr:
    """Return a safe divisor: 1 instead of 0 and of -1, which leave no remainder either."""
    one = constant(1, y.dtype)
    return select(y.equals(0), one, y if y.dtype.is_unsigned else select(y.equals(-1), one, y))


def mod(x: Expr, y: Expr) -> Expr:
    return x % (y if x.dtype.is_float else _divisor(y))


def fmod(x: Expr, y: Expr) -> Expr:
    if x.dtype.is_float:
        return call("fmod", x, y)
    divisor = _divisor(y)
    return x - x / divisor * divisor


def _shift(direction: str) -> Callable[[Expr, Expr], Expr]:
    def function(x: Expr, y: Expr) -> Expr:
        # A negative count is read as unsigned, and so is large.
        if direction == "right" and not x.dtype.is_unsigned:
            # If all bits are shifted out, the sign remains.
            most = x.dtype.bits - 1
            return x >> select((y < 0) | (y > most), constant(most, y.dtype), y)
        shifted = x << y if direction == "left" else x >> y
        inside = y < x.dtype.bits if y.dtype.is_unsigned else (y >= 0) & (y < x.dtype.bits)
        return select(inside, shifted, constant(0, x.dtype))

    return function


divide = _quotient(lambda x, y: x / y)
floor_divide = _quotient(lambda x, y: x // y)
shift_left, shift_right = _shift("left"), _shift("right")


def softplus(x: Expr) -> Expr:
    # log(1 + exp(x)) overflows for large x; this form does not.
    return maximum(x, 0.0) + call("log1p", exp(-abs_(x)))


def _exp_minus_1(x: Expr) -> Expr:
    """Return exp(x) - 1 for the negative side of an activation; 0 for x > 0, where exp might overflow."""
    return call("expm1", minimum(x, 0.0))


def elu(x: Expr, *, alpha: float) -> Expr:
    return select(x > 0.0, x, alpha * _exp_minus_1(x))


def selu(x: Expr, *, alpha: float, gamma: float) -> Expr:
    return gamma * elu(x, alpha=alpha)


def celu(x: Expr, *, alpha: float) -> Expr:
    return maximum(x, 0.0) + minimum(alpha * _exp_minus_1(x / alpha), 0.0)


def gelu(x: Expr, *, approximate: str) -> Expr:
    if approximate == "tanh":
        # (1 + tanh(u)) / 2 = 1 / (1 + 2^(-2u log2 e)), which keeps precision where tanh(u) is near -1.
        scale = -2.0 * math.sqrt(2.0 / math.pi) / math.log(2.0)
        return x / (1.0 + call("exp2", x * (x * x * (0.044715 * scale) + scale)))
    # 1 + erf cancels for negative elements.
    if x.dtype.bits == 64:
        return 0.5 * x * call("erfc", x * -math.sqrt(0.5))
    size = minimum(abs_(x), _TAIL_END)
    tail = call("exp2", size * size * (-0.5 / math.log(2.0)))
    return maximum(x, 0.0) - size * (tail * _polynomial(size, _TAIL_P) / _polynomial(size, _TAIL_Q))


_TAIL_P = (0.00411085691, 0.0405965969, 0.183126643, 0.438148737, 0.5)
_TAIL_Q = (0.0103042694, 0.101767071, 0.469184160, 1.20205283, 1.67418242, 1.0)
"""The share of a normal distribution beyond x >= 0 is e^(-x^2 / 2) * P(x) / Q(x)."""
_TAIL_END = 20.0
"""There that share is 0 in f32."""


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Evaluate a polynomial; the coefficient of the highest power first."""
    result = constant(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        result = call("fmuladd", result, x, constant(coefficient, x.dtype))
    return result


def logistic(x: Expr) -> Expr:
    return sigmoid(x)


def silu(x: Expr) -> Expr:
    return x * sigmoid(x)


def mish(x: Expr) -> Expr:
    return x * tanh(softplus(x))


def shrink(x: Expr, *, lambd: float, bias: float) -> Expr:
    # The bounds are floats, so an integer is compared as float.
    wide = x if x.dtype.is_float else x.cast("f64")
    shrunk = select(wide > lambd, wide - bias, constant(0, wide.dtype))
    return select(wide < -lambd, wide + bias, shrunk).cast(x.dtype)


def prelu(x: Expr, slope: Expr) -> Expr:
    return select(x < 0, x * slope, x)


def clip(x: Expr, *, min: float | None, max: float | None) -> Expr:
    if min is not None:
        x = maximum(x, _bound(min, x, math.ceil))
    return x if max is None else minimum(x, _bound(max, x, math.floor))


def _bound(value: float, x: Expr, inward: Callable[[float], int]) -> Expr:
    """Return a bound as an element of the operand's type; for integers one that the type can hold."""
    if x.dtype.is_float:
        return constant(value, x.dtype)
    bits = x.dtype.bits - (not x.dtype.is_unsigned)
    low, high = (0 if x.dtype.is_unsigned else -(1 << bits)), (1 << bits) - 1
    if math.isinf(value):
        return constant(low if value < 0 else high, x.dtype)
    return constant(sorted((low, inward(value), high))[1], x.dtype)


_ROUNDING_SHIFT_BITS = 0x4B400000
"""The bits of 1.5 * 2^23."""


def requantize(
    x: Expr,
    multiplier: Expr,
    multiplier_low: Expr,
    shift: Expr,
    addend_low: Expr,
    addend: Expr | None = None,
    *,
    zero_point: int,
    min: int,
    max: int,
    dtype: DType,
) -> Expr:
    """Round to the nearest integer twice: what the first rounding leaves is exact, and corrects it."""
    value = x.cast("f32")
    if addend is None:
        shifted = call("fmuladd", value, multiplier, shift)
    else:
        shifted = call("fmuladd", value, multiplier, addend) + shift
    whole = shifted - shift
    rest = call("fmuladd", value, multiplier, -whole if addend is None else addend - whole)
    low = call("fmuladd", value, multiplier_low, addend_low)
    rounded = (shifted + (rest + low)).bitcast("i32") + (zero_point - _ROUNDING_SHIFT_BITS)
    return clamp(rounded, min, max).cast(dtype)


def rescale(
    x: Expr,
    multiplier: Expr,
    shift: Expr,
    *,
    input_zero: int,
    zero_point: int,
    double_round: bool,
    dtype: DType,
) -> Expr:
    """Multiply 32 bits by 32 bits wherever x has no more: processors have such products, and few of 64 bits."""
    centered = (x.cast("i32") if x.dtype.bits < 32 else x.cast("i64")) - input_zero
    count = shift.cast("i64")
    total = centered.cast("i64") * multiplier.cast("i64") + (constant(1, "i64") << (count - 1))
    if double_round:
        away = select(centered < 0, constant(-(1 << 30), "i64"), constant(1 << 30, "i64"))
        total = total + select(shift > 31, away, constant(0, "i64"))
    limits = np.iinfo(dtype.to_numpy())
    return clamp((total >> count) + zero_point, int(limits.min), int(limits.max)).cast(dtype)
