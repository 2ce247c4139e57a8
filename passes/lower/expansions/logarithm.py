"""log, log2, log10, log1p: the exponent times ln 2, and the logarithm of a significand between √½ and √2."""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import INFINITY, NAN, elementary
from mirlo.passes.lower.expansions.exponential import EXP, LOG2_E
from mirlo.passes.lower.values import Num, ValueBuilder

LOG10_E = 0.4342944819032518
_LOG10_2_SPLIT = {"f32": (0.301025390625, 4.605038981195214e-06), "f64": (0.30102999566224753, 1.7336659603752853e-12)}

SQRT_HALF_BITS = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}

# (log(1 + t) - t + t²/2) / t³ for t from √½ - 1 to √2 - 1
_LOG_F32 = (
    0.0691221058,
    -0.117885135,
    0.118736103,
    -0.12384595,
    0.142186135,
    -0.166692361,
    0.20002228,
    -0.249999866,
    0.333333105,
)
# (log((1 + s) / (1 - s)) - 2s) / s³ in s², for |s| ≤ 0.1716
_LOG_F64 = (
    0.14796441992962425,
    0.1531400402214549,
    0.18183566035638932,
    0.22222198542500013,
    0.2857142874266381,
    0.3999999999941355,
    0.6666666666666734,
)


def split_power(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """Return m and e with x = m · 2^e and m from √½ to √2, both floats, for positive finite x."""
    form = x.format
    tiny = x < form.smallest_normal
    lift = form.fraction + 2
    bits = b.bits(b.select(tiny, x * 2.0**lift, x))
    power = b.shift_right_signed(bits - SQRT_HALF_BITS[x.kind], form.fraction)
    m = b.from_bits(bits - (power << form.fraction), x.kind)
    e = b.small_int_to_float(power, x.kind)
    return m, b.select(tiny, e - float(lift), e)


def log_terms(b: ValueBuilder, t: Num, addend: Num | None = None) -> Num:
    """Return log(1 + t) + addend, for 1 + t from √½ to √2 and a comparatively small addend."""
    square = t * t
    if t.kind == "f32":
        cube_term = b.polynomial(t, _LOG_F32)
        tail = t * square * cube_term if addend is None else b.multiply_add(t * square, cube_term, addend)
        return t + b.multiply_add(square, -0.5, tail)
    half_square = square * 0.5
    s = t / (t + 2.0)
    z = s * s
    tail = s * b.multiply_add(z, b.polynomial(z, _LOG_F64), half_square)
    if addend is not None:
        tail = tail + addend
    return t - (half_square - tail)


def log_of_positive(b: ValueBuilder, x: Num, correction: Num | None = None) -> Num:
    """Return log(x) + correction for positive finite x; the correction is small compared to 1."""
    m, e = split_power(b, x)
    constants = EXP[x.kind]
    low = e * constants.ln2_low if correction is None else b.multiply_add(e, constants.ln2_low, correction)
    return b.multiply_add(e, constants.ln2_high, log_terms(b, m - 1.0, low))


def outside_domain(b: ValueBuilder, x: Num, result: Num) -> Num:
    """Return the logarithm of zero, negative values, infinity and NaN; `result` for others."""
    result = b.select(x < INFINITY, result, x)
    result = b.select(x < 0.0, NAN, result)
    return b.select(x.equals(0.0), -INFINITY, result)


@elementary("log")
def log(b: ValueBuilder, x: Num) -> Num:
    return outside_domain(b, x, log_of_positive(b, x))


@elementary("log2")
def log2(b: ValueBuilder, x: Num) -> Num:
    m, e = split_power(b, x)
    return outside_domain(b, x, b.multiply_add(log_terms(b, m - 1.0), LOG2_E, e))


@elementary("log10")
def log10(b: ValueBuilder, x: Num) -> Num:
    m, e = split_power(b, x)
    high, low = _LOG10_2_SPLIT[x.kind]
    return outside_domain(b, x, b.multiply_add(e, high, b.multiply_add(log_terms(b, m - 1.0), LOG10_E, e * low)))


def log1p_above(b: ValueBuilder, x: Num) -> Num:
    """Return log(1 + x) for finite x > -1."""
    u = x + 1.0
    # The rounding error of 1 + x, whichever of the two is larger.
    back = u - 1.0
    lost = (x - back) + (1.0 - (u - back))
    result = log_of_positive(b, u, lost / u)
    return b.select(b.abs(x) < 2.0 ** -(x.format.fraction + 2), x, result)


@elementary("log1p")
def log1p(b: ValueBuilder, x: Num) -> Num:
    result = b.select(x < INFINITY, log1p_above(b, x), x)
    result = b.select(x < -1.0, NAN, result)
    return b.select(x.equals(-1.0), -INFINITY, result)
