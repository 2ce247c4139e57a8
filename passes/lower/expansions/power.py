"""pow, cbrt, hypot."""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import INFINITY, NAN, elementary, flip_sign, is_infinite, sign_bit
from mirlo.passes.lower.expansions.exponential import LN_2, exp_reduced, scale
from mirlo.passes.lower.expansions.logarithm import split_power
from mirlo.passes.lower.values import Num, ValueBuilder

# log((1 + s) / (1 - s)) = 2s (1 + s²/3 + s⁴ Q(s²)) for |s| ≤ 0.1716
_LOG_TAIL = {
    "f32": (0.117094845, 0.142735586, 0.200000763),
    "f64": (
        0.06598350152496664,
        0.06628389305542001,
        0.07693379485731301,
        0.09090892166216366,
        0.11111111260154198,
        0.1428571428504874,
        0.2000000000000113,
    ),
}
_THIRD = {"f32": (0.3333333432674408, -9.934107462565104e-09), "f64": (0.3333333333333333, 1.850371707708594e-17)}
_TWO_LOG2_E = {"f32": (2.885390043258667, 3.851925982253235e-08), "f64": (2.8853900817779268, 4.0710547481862066e-17)}


def _log2_in_two(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """Return log2(x) as a sum of two floats, for positive finite x, far more accurate than one float."""
    m, e = split_power(b, x)
    t = m - 1.0
    d = t + 2.0
    d_low = t - (d - 2.0)
    inverse = 1.0 / d
    s = t * inverse
    s_low = (b.fma(-s, d, t) - s * d_low) * inverse

    z = s * s
    z_low = b.fma(s, s, -z) + 2.0 * s * s_low
    third, third_low = _THIRD[x.kind]
    u = z * third
    u_low = b.fma(z, third, -u) + b.fma(z, third_low, z_low * third)
    rest = b.multiply_add(z * z, b.polynomial(z, _LOG_TAIL[x.kind]), u_low)
    v = s * u
    v_low = b.fma(s, u, -v) + b.fma(s, rest, s_low * u)

    half_log = s + v
    half_log_low = (s - half_log) + v + (v_low + s_low)
    factor, factor_low = _TWO_LOG2_E[x.kind]
    g = half_log * factor
    g_low = b.fma(half_log, factor, -g) + b.fma(half_log, factor_low, half_log_low * factor)
    total = e + g
    return total, (e - total) + g + g_low


def _exp2_of_two(b: ValueBuilder, x: Num, low: Num) -> Num:
    """Return 2^(x + low), overflowing to infinity and underflowing to zero."""
    limit = float(x.format.bias + x.format.fraction + 2)
    inside = b.abs(x) < limit
    x = b.clamp_below(b.clamp_above(x, limit), -limit)
    whole, n = b.round_to_int(x)
    r = (x - whole) + b.select(inside, low, 0.0)
    return scale(b, exp_reduced(b, r * LN_2, precise=True), n)


@elementary("pow")
def power(b: ValueBuilder, x: Num, y: Num) -> Num:
    size = b.abs(x)
    log, log_low = _log2_in_two(b, size)
    product = y * log
    result = _exp2_of_two(b, product, b.fma(y, log, -product) + y * log_low)

    zero = b.constant(x.kind, 0.0)
    result = b.select(size.equals(0.0), b.select(y < 0.0, INFINITY, zero), result)
    result = b.select(size.equals(INFINITY), b.select(y < 0.0, zero, INFINITY), result)
    result = b.select(size.equals(1.0), 1.0, result)

    whole = b.unary("math.trunc", y).equals(y)
    half = y * 0.5
    odd = whole & b.unary("math.trunc", half).differs(half)
    result = b.select(odd, flip_sign(b, result, sign_bit(b, x)), result)
    negative = (x < 0.0) & (x > -INFINITY)
    result = b.select(negative & ~whole, NAN, result)
    result = b.select(b.compare("unordered", x, y), NAN, result)
    return b.select(y.equals(0.0) | x.equals(1.0), 1.0, result)


@elementary("cbrt")
def cbrt(b: ValueBuilder, x: Num) -> Num:
    size = b.abs(x)
    # Scale away from the ends of the range, where a multiple overflows or the significand is short.
    tiny, huge = size < x.format.smallest_normal, size > x.format.largest / 8
    lift = 24 if x.kind == "f32" else 54
    a = b.select(tiny, size * 2.0**lift, b.select(huge, size * 0.125, size))
    t = _cbrt_guess(b, a)
    for _ in range(1 if x.kind == "f32" else 2):
        cube = t * t * t
        t = t * ((cube + a + a) / (cube + cube + a))
    # With half of its bits t has an exact square, and the last step rounds once.
    t = b.from_bits(b.bits(t) & -(1 << (x.format.fraction // 2 + 1)), x.kind)
    quotient = a / (t * t)
    t = b.multiply_add(t, (quotient - t) / (t + t + quotient), t)
    t = b.select(tiny, t * 2.0 ** (-lift // 3), b.select(huge, t * 2.0, t))
    return b.select(x.equals(0.0) | ~(size < INFINITY), x, b.copysign(t, x))


def _cbrt_guess(b: ValueBuilder, a: Num) -> Num:
    """Approximate the cube root of a positive normal value within a few percent: its bits divided by three."""
    bits = b.bits(a)
    if a.kind == "f32":
        third = ((bits >> 15) * 0xAAAB >> 17) << 15
        return b.from_bits(third + 0x2A5119F2, "f32")
    third = ((bits >> 32) * 0x55555556 >> 32) << 32
    return b.from_bits(third + (0x2A9F7893 << 32), "f64")


@elementary("hypot", "f32")
def hypot(b: ValueBuilder, x: Num, y: Num) -> Num:
    # Squares of f32 neither overflow nor underflow in f64.
    wide_x, wide_y = b.convert(x, "f64"), b.convert(y, "f64")
    result = b.convert(b.sqrt(b.fma(wide_x, wide_x, wide_y * wide_y)), "f32")
    return b.select(is_infinite(b, x) | is_infinite(b, y), INFINITY, result)


@elementary("hypot", "f64")
def hypot_scaled(b: ValueBuilder, x: Num, y: Num) -> Num:
    larger = b.clamp_below(b.abs(x), b.abs(y))
    one = b.constant(x.kind, 1.0)
    shrink = b.select(larger > 2.0**500, 2.0**-600, b.select(larger < 2.0**-400, 2.0**600, one))
    grow = b.select(larger > 2.0**500, 2.0**600, b.select(larger < 2.0**-400, 2.0**-600, one))
    x, y = x * shrink, y * shrink
    square, y_square = x * x, y * y
    total = square + y_square
    # The rounding error of the sum of squares, to correct the root.
    larger_square = b.clamp_below(square, y_square)
    lost = (larger_square - total) + b.select(square < y_square, square, y_square)
    lost = lost + b.fma(x, x, -square) + b.fma(y, y, -y_square)
    root = b.sqrt(total)
    exact = (b.fma(-root, root, total) + lost) / (root + root)
    result = (root + b.select(total > 0.0, exact, 0.0)) * grow
    return b.select(is_infinite(b, x) | is_infinite(b, y), INFINITY, result)
