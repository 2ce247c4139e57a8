"""lgamma, tgamma, digamma and erfinv."""

from __future__ import annotations

import math

from mirlo.passes.lower.expansions import gamma_tables as tables
from mirlo.passes.lower.expansions.elementary import INFINITY, NAN, elementary
from mirlo.passes.lower.values import Num, ValueBuilder

LARGE = 8.0
"""From here on, the asymptotic series is accurate."""
_STEPS = 5
"""Steps of 1 from `LARGE` down to 3."""
_TINY = {"f32": 2.0**-27, "f64": 2.0**-56}
"""Below this, gamma(x) is 1 / x."""
_VANISH = {"f32": 43.0, "f64": 190.0}
"""From here on, gamma(x) is infinite and gamma(-x) rounds to zero."""
_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


def on_interval(b: ValueBuilder, x: Num, table: dict[str, tuple[float, ...]], low: float, high: float) -> Num:
    """Evaluate a polynomial of x mapped from an interval to one from -1 to 1."""
    t = b.multiply_add(x, 2.0 / (high - low), -(high + low) / (high - low))
    return b.polynomial(t, table[x.kind])


def _reduced_argument(b: ValueBuilder, y: Num) -> tuple[Num, Num]:
    """Return y less the steps that bring it to at most 3, and the product of the numbers on the way."""
    product = b.like(y, 1.0)
    for _ in range(_STEPS):
        above = y > 3.0
        y = b.select(above, y - 1.0, y)
        product = b.select(above, product * y, product)
    return y, product


def _distance_to_integer(b: ValueBuilder, x: Num) -> Num:
    result: Num = x - b.call("roundeven", x)
    return result


def _lgamma_of_positive(b: ValueBuilder, y: Num) -> Num:
    z, product = _reduced_argument(b, b.clamp_above(y, LARGE))
    z = b.select(y < 1.0, y + 1.0, z)
    is_large = y >= LARGE
    log = b.call("log", b.select(is_large | (y < 1.0), y, product))
    near = (z - 1.0) * (z - 2.0) * on_interval(b, z, tables.LGAMMA, 1.0, 3.0)
    near = near + b.select(y < 1.0, -log, log)
    inverse = 1.0 / y
    series = inverse * on_interval(b, inverse * inverse, tables.STIRLING, 0.0, 1 / LARGE**2)
    far = (y - 0.5) * (log - 1.0) + ((_HALF_LOG_2_PI - 0.5) + series)
    return b.select(is_large, far, near)


@elementary("lgamma")
def lgamma(b: ValueBuilder, x: Num) -> Num:
    y = b.abs(x)
    positive = _lgamma_of_positive(b, y)
    r = _distance_to_integer(b, x)
    sine = b.abs(b.call("sin", r * math.pi))
    reflected = b.call("log", math.pi / (y * sine)) - positive
    is_reflected = (x < 0.0) & (y > _TINY[x.kind])
    result = b.select(is_reflected, b.select(r.equals(0.0), INFINITY, reflected), positive)
    return b.select(y.equals(INFINITY), INFINITY, result)


def _gamma_of_positive(b: ValueBuilder, y: Num) -> tuple[Num, Num]:
    """Return two numbers whose product is gamma(y), neither of which overflows."""
    z, product = _reduced_argument(b, b.clamp_above(y, LARGE))
    up = b.select(y < 1.0, y * (y + 1.0), y)
    z = b.select(y < 1.0, y + 2.0, b.select(y < 2.0, y + 1.0, z))
    value = on_interval(b, z, tables.GAMMA, 2.0, 3.0)
    near = b.select(y < 2.0, value / up, value * product)
    limited = b.clamp_above(y, _VANISH[y.kind])
    inverse = 1.0 / limited
    series = inverse * on_interval(b, inverse * inverse, tables.STIRLING, 0.0, 1 / LARGE**2)
    half = b.call("pow", limited, (limited - 0.5) * 0.5)
    is_large = y >= LARGE
    rest = half * (b.call("exp", series) * math.sqrt(2 * math.pi))
    return b.select(is_large, half * b.call("exp", -limited), near), b.select(is_large, rest, 1.0)


@elementary("tgamma")
def tgamma(b: ValueBuilder, x: Num) -> Num:
    y = b.abs(x)
    first, second = _gamma_of_positive(b, y)
    d = _distance_to_integer(b, x)
    sine = b.call("sin", d * math.pi)
    is_odd = b.abs(x - b.call("roundeven", x * 0.5) * 2.0) > 0.5
    # 1 / gamma(y) by two divisions: the product overflows before the result vanishes.
    reflected = (((math.pi / y) / first) / second) / b.select(is_odd, -sine, sine)
    is_pole = d.equals(0.0)
    result = b.select(x < 0.0, b.select(is_pole, NAN, reflected), first * second)
    return b.select(y < _TINY[x.kind], 1.0 / x, b.select(x.equals(INFINITY), INFINITY, result))


@elementary("digamma")
def digamma(b: ValueBuilder, x: Num) -> Num:
    is_reflected = x < 0.0
    y = b.select(is_reflected, 1.0 - x, x)
    below = b.like(x, 0.0)
    for _ in range(int(LARGE)):
        small = y < LARGE
        below = b.select(small, below + 1.0 / y, below)
        y = b.select(small, y + 1.0, y)
    inverse = 1.0 / y
    square = inverse * inverse
    series = square * on_interval(b, square, tables.DIGAMMA, 0.0, 1 / LARGE**2)
    result = (b.call("log", y) - 0.5 * inverse - series) - below
    r = _distance_to_integer(b, x)
    cotangent = math.pi / b.call("tan", r * math.pi)
    reflected = b.select(r.equals(0.0), NAN, result - cotangent)
    return b.select(is_reflected, reflected, b.select(x.equals(INFINITY), INFINITY, result))


@elementary("erfinv")
def erfinv(b: ValueBuilder, x: Num) -> Num:
    y = b.abs(x)
    centre = x * on_interval(b, x * x, tables.ERFINV, 0.0, 0.5625)
    w = b.sqrt(-b.call("log", 1.0 - y))
    start, middle, end = math.sqrt(math.log(4)), 3.0, {"f32": 4.2, "f64": 6.1}[x.kind]
    tail = on_interval(b, w, tables.ERFINV_TAIL, start, middle)
    far = on_interval(b, w, tables.ERFINV_FAR, middle, end)
    outer = b.copysign(b.select(w < middle, tail, far), x)
    result = b.select(y <= 0.75, centre, outer)
    result = b.select(y.equals(1.0), b.copysign(b.like(x, INFINITY), x), result)
    return b.select(y > 1.0, NAN, result)
