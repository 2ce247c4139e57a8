"""sinh, cosh, tanh and their inverses."""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import INFINITY, NAN, elementary
from mirlo.passes.lower.expansions.exponential import EXP, LN_2, exp_reduced, expm1, reduce_exp, scale
from mirlo.passes.lower.expansions.logarithm import log1p_above
from mirlo.passes.lower.values import Num, ValueBuilder

# tanh(x/2) = (x + x · P(x²)) / Q(x²) for |x| ≤ 9.02; beyond, tanh(x) is 1. P is positive, which keeps the sign of zero.
# Of the near fractions, this one has values slightly below powers of two where those of tanh are: small errors
_TANH_LIMIT = 9.02
_TANH_P = (0.000208816069, 0.054450035, 0.829066634)
_TANH_Q = (4.48985975e-06, 0.00441203779, 0.41374433, 3.65813327)

# (sinh x - x) / x³ in x² for |x| ≤ 1
_SINH = {
    "f32": (2.81743951e-06, 0.000198360663, 0.00833335053, 0.166666672),
    "f64": (
        7.759312104244344e-13,
        1.6057240344604214e-10,
        2.5052123398512244e-08,
        2.755731915533713e-06,
        0.0001984126984143768,
        0.008333333333333139,
        0.16666666666666669,
    ),
}


@elementary("tanh", "f32")
def tanh(b: ValueBuilder, x: Num) -> Num:
    x = b.clamp_below(b.clamp_above(x, _TANH_LIMIT), -_TANH_LIMIT)
    square = x * x
    n, d = b.multiply_add(x, b.polynomial(square, _TANH_P), x), b.polynomial(square, _TANH_Q)
    # tanh(2u) for tanh(u) = n / d: near 1 the errors of n and d cancel, so that short polynomials are accurate enough;
    # near 0 n² is small, and so is the error of its rounding.
    return b.quotient((n + n) * d, b.multiply_add(d, d, n * n))


@elementary("tanh", "f64")
def tanh_by_expm1(b: ValueBuilder, x: Num) -> Num:
    t = expm1(b, b.abs(x) * -2.0)
    return b.copysign(-t / (t + 2.0), x)


def _half_exp(b: ValueBuilder, x: Num) -> Num:
    """Return e^x / 2 for x ≥ 0, which overflows only where the result does."""
    r, n = reduce_exp(b, b.clamp_above(x, EXP[x.kind].overflow + 1.0))
    return scale(b, exp_reduced(b, r), n - 1)


@elementary("sinh")
def sinh(b: ValueBuilder, x: Num) -> Num:
    square = x * x
    small = b.multiply_add(x * square, b.polynomial(square, _SINH[x.kind]), x)
    power = _half_exp(b, b.abs(x))
    return b.select(b.abs(x) < 1.0, small, b.copysign(power - 0.25 / power, x))


@elementary("cosh")
def cosh(b: ValueBuilder, x: Num) -> Num:
    power = _half_exp(b, b.abs(x))
    return power + 0.25 / power


def _log_of_double(b: ValueBuilder, x: Num, near: Num) -> Num:
    """Return log(1 + near), but log(2x) where x is so large that its square may overflow."""
    large = x >= 2.0 ** (x.format.fraction + 2)
    result = log1p_above(b, b.select(large, b.clamp_above(x, x.format.largest), near))
    result = b.select(large, result + LN_2, result)
    return b.select(x < INFINITY, result, x)


@elementary("asinh")
def asinh(b: ValueBuilder, x: Num) -> Num:
    size = b.abs(x)
    square = size * size
    near = size + square / (1.0 + b.sqrt(square + 1.0))
    return b.copysign(_log_of_double(b, size, near), x)


@elementary("acosh")
def acosh(b: ValueBuilder, x: Num) -> Num:
    above = x - 1.0
    result = _log_of_double(b, x, above + b.sqrt(above * (above + 2.0)))
    return b.select(x < 1.0, NAN, result)


@elementary("atanh")
def atanh(b: ValueBuilder, x: Num) -> Num:
    size = b.abs(x)
    result = log1p_above(b, 2.0 * size / (1.0 - size)) * 0.5
    result = b.select(size.equals(1.0), INFINITY, result)
    return b.copysign(b.select(size > 1.0, NAN, result), x)
