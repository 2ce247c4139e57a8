"""Default rules of elementwise operators: one table row each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import Expr, abs_, call, constant, maximum, minimum, select
from mirlo.passes.legalize.helpers import elementwise, short_name
from mirlo.passes.rules import legalize


def _sign(x: Expr) -> Expr:
    zero = constant(0, x.dtype)
    if x.dtype.is_unsigned:
        return select(x > zero, constant(1, x.dtype), zero)
    signed = select(x > zero, constant(1, x.dtype), select(x < zero, constant(-1, x.dtype), zero))
    return select(x.differs(x), x, signed) if x.dtype.is_float else signed


def _power(x: Expr, y: Expr) -> Expr:
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
        found = divide(x, _divisor(y))
        found = found if x.dtype.is_unsigned else select(y.equals(-1), -x, found)
        return select(y.equals(0), constant(0, x.dtype), found)

    return function


def _divisor(y: Expr) -> Expr:
    """Return a safe divisor: 1 instead of 0 and of -1, which leave no remainder either."""
    one = constant(1, y.dtype)
    return select(y.equals(0), one, y if y.dtype.is_unsigned else select(y.equals(-1), one, y))


def _mod(x: Expr, y: Expr) -> Expr:
    return x % (y if x.dtype.is_float else _divisor(y))


def _fmod(x: Expr, y: Expr) -> Expr:
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


_INTRINSICS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc",
    "isnan", "isinf", "isfinite",
)  # fmt: skip

UNARY: dict[str, Callable[[Expr], Expr]] = {
    **{name: partial(call, name) for name in _INTRINSICS},
    "round": lambda x: call("roundeven", x),
    "abs": abs_,
    "negative": lambda x: -x,
    "sign": _sign,
    "reciprocal": lambda x: 1.0 / x,
    "square": lambda x: x * x,
    "logical_not": lambda x: ~x,
    "bitwise_not": lambda x: ~x,
}
BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": _quotient(lambda x, y: x / y),
    "floor_divide": _quotient(lambda x, y: x // y),
    "mod": _mod,
    "fmod": _fmod,
    "power": _power,
    "maximum": maximum,
    "minimum": minimum,
    "atan2": lambda x, y: call("atan2", x, y),
    "logical_and": lambda x, y: x & y,
    "logical_or": lambda x, y: x | y,
    "logical_xor": lambda x, y: x ^ y,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "shift_left": _shift("left"),
    "shift_right": _shift("right"),
    "equal": lambda x, y: x.equals(y),
    "not_equal": lambda x, y: x.differs(y),
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
}


@legalize(*(f"relax.{name}" for name in UNARY))
def unary(op: ir.OpView, b: Any) -> ir.Value:
    return elementwise(op, b, [op.x], UNARY[short_name(op)])


@legalize(*(f"relax.{name}" for name in BINARY))
def binary(op: ir.OpView, b: Any) -> ir.Value:
    return elementwise(op, b, [op.lhs, op.rhs], BINARY[short_name(op)])


@legalize("relax.where")
def where(op: ir.OpView, b: Any) -> Any:
    return elementwise(op, b, [op.condition, op.x, op.y], select)
