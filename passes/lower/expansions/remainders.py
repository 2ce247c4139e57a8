"""fmod and remainder, exact for all arguments: long division of the significands, many quotient bits per step."""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import INFINITY, NAN, elementary, flip_sign, sign_bit
from mirlo.passes.lower.expansions.exponential import scale
from mirlo.passes.lower.expansions.logarithm import split_power
from mirlo.passes.lower.values import Num, ValueBuilder

STEP_BITS = {"f32": 18, "f64": 47}
"""Quotient bits per step: few enough that an estimate of the partial quotient is at most one too large."""


def _divide(b: ValueBuilder, top: Num, bottom: Num, difference: Num) -> Num:
    """Return top · 2^difference modulo bottom, for top and bottom from √½ to √2; exact.

    The slowest lane determines the number of steps: one, unless arguments are many orders of magnitude apart.
    """
    step = STEP_BITS[top.kind]
    # Slightly too large, so that the partial quotient is never too small.
    inverse = (1.0 / bottom) * (1.0 + 2.0 ** (3 - top.format.fraction))
    steps = b.largest_lane(_to_int(b, difference) + (step - 1)) // step

    def body(rest: Num, left: Num) -> tuple[Num, Num]:
        now = b.clamp_above(left, float(step))
        now = b.clamp_below(now, -float(step))
        value = rest * b.power_of_two(b.round_to_int(now)[1], rest.kind)
        quotient = b.unary("math.trunc", value * inverse)
        value = b.fma(-quotient, bottom, value)
        value = b.select(value < 0.0, value + bottom, value)
        return value, b.clamp_below(left - now, 0.0)

    return b.repeat(steps, body, top, difference)[0]


def _to_int(b: ValueBuilder, x: Num) -> Num:
    """Convert a small float with an integer value to an integer."""
    return b.bits(x + x.format.rounding_constant) - b.bits(b.constant(x.kind, x.format.rounding_constant))


def _undefined(b: ValueBuilder, x: Num, y: Num, result: Num) -> Num:
    defined = (b.abs(x) < INFINITY) & (b.abs(y) > 0.0)
    return b.select(defined, result, NAN)


@elementary("fmod")
def fmod(b: ValueBuilder, x: Num, y: Num) -> Num:
    size, divisor = b.abs(x), b.abs(y)
    top, top_exponent = split_power(b, size)
    bottom, exponent = split_power(b, divisor)
    rest = _divide(b, top, bottom, top_exponent - exponent)
    result = b.copysign(scale(b, rest, _to_int(b, exponent)), x)
    return _undefined(b, x, y, b.select(size < divisor, x, result))


@elementary("remainder")
def remainder(b: ValueBuilder, x: Num, y: Num) -> Num:
    size, divisor = b.abs(x), b.abs(y)
    top, top_exponent = split_power(b, size)
    bottom, exponent = split_power(b, divisor)
    # Modulo 2y, which determines whether the quotient by y is even.
    rest = _divide(b, top, bottom, top_exponent - exponent - 1.0)
    half = bottom * 0.5
    once = rest - half
    twice = b.select(once + once >= half, once - half, once)
    rest = b.select(rest + rest > half, twice, rest)
    result = flip_sign(b, scale(b, rest, _to_int(b, exponent) + 1), sign_bit(b, x))
    return _undefined(b, x, y, b.select(size + size <= divisor, x, result))
