"""asin, acos, atan, atan2."""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import INFINITY, elementary, sign_bit
from mirlo.passes.lower.expansions.reduction import HALF_PI_TERMS
from mirlo.passes.lower.values import Num, ValueBuilder

# (asin s - s) / s³ in s² for |s| ≤ ½, (atan q - q) / q³ in q² for |q| ≤ √2 - 1
_ASIN = {
    "f32": (0.0422305614, 0.024140982, 0.045478344, 0.0749523267, 0.166667536),
    "f64": (
        0.03270228835592177,
        -0.021116942913348792,
        0.021790822532617632,
        0.0036721047779045214,
        0.010789344943524438,
        0.011397288275745796,
        0.013981019193876261,
        0.017351595438006292,
        0.02237221590981503,
        0.030381942675122054,
        0.04464285717528984,
        0.07499999999970094,
        0.16666666666666763,
    ),
}
_ATAN = {
    "f32": (-0.0608305037, 0.105958506, -0.142438293, 0.199984878, -0.333333164),
    "f64": (
        0.01520685875500117,
        -0.033485968928098055,
        0.045040433547176045,
        -0.05218525730153333,
        0.0587704062875083,
        -0.06666228678491104,
        0.07692282888635535,
        -0.09090908150271829,
        0.11111111088336861,
        -0.1428571428539056,
        0.1999999999999769,
        -0.33333333333333326,
    ),
}
QUARTER_PI = {"f32": (0.785398006439209, 1.5695823663008923e-07), "f64": (0.7853981633974483, 3.061616997868383e-17)}
"""π/4 in two parts, the first with trailing zeros such that its products with 1 to 4 are exact."""

TAN_EIGHTH_PI = 0.41421356237309503


def _asin_core(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """Return whether |x| > ½, and asin|x| if not, else asin √((1 - |x|) / 2). NaN for |x| > 1."""
    size = b.abs(x)
    large = size > 0.5
    z = b.select(large, (1.0 - size) * 0.5, size * size)
    s = b.select(large, b.sqrt(z), size)
    return large, b.multiply_add(s * z, b.polynomial(z, _ASIN[x.kind]), s)


@elementary("asin")
def asin(b: ValueBuilder, x: Num) -> Num:
    high, low, _ = HALF_PI_TERMS[x.kind]
    large, angle = _asin_core(b, x)
    return b.copysign(b.select(large, high - (angle + angle - low), angle), x)


@elementary("acos")
def acos(b: ValueBuilder, x: Num) -> Num:
    high, low, _ = HALF_PI_TERMS[x.kind]
    large, angle = _asin_core(b, x)
    double = angle + angle
    of_large = b.select(x < 0.0, 2.0 * high - (double - 2.0 * low), double)
    return b.select(large, of_large, high - (b.copysign(angle, x) - low))


def _atan_of_quotient(b: ValueBuilder, q: Num, quarters: Num) -> Num:
    """Return atan(q) + quarters · π/4 for |q| ≤ tan(π/8)."""
    high, low = QUARTER_PI[q.kind]
    z = q * q
    angle = b.multiply_add(q * z, b.polynomial(z, _ATAN[q.kind]), quarters * low) + q
    return b.multiply_add(quarters, high, angle)


@elementary("atan")
def atan(b: ValueBuilder, x: Num) -> Num:
    size = b.abs(x)
    middle = size > TAN_EIGHTH_PI
    large = size > 1.0 / TAN_EIGHTH_PI
    top = b.select(large, -1.0, b.select(middle, size - 1.0, size))
    bottom = b.select(large, size, b.select(middle, size + 1.0, b.constant(x.kind, 1.0)))
    one, none = b.constant(x.kind, 1.0), b.constant(x.kind, 0.0)
    quarters = b.select(large, 2.0, b.select(middle, one, none))
    return b.copysign(_atan_of_quotient(b, top / bottom, quarters), x)


@elementary("atan2")
def atan2(b: ValueBuilder, y: Num, x: Num) -> Num:
    height, width = b.abs(y), b.abs(x)
    steep = height > width
    larger = b.select(steep, height, width)
    smaller = b.select(steep, width, height)
    # Replace two infinities or two zeros by two ones, or a zero over a one; no sum overflows.
    both_infinite = smaller.equals(INFINITY)
    shrink = b.select(larger > x.format.largest / 4, 0.25, b.constant(x.kind, 1.0))
    smaller = b.select(both_infinite, 1.0, smaller * shrink)
    larger = b.select(both_infinite | larger.equals(0.0), 1.0, larger * shrink)

    middle = smaller > larger * TAN_EIGHTH_PI
    q = b.select(middle, smaller - larger, smaller) / b.select(middle, smaller + larger, larger)
    one, none = b.constant(x.kind, 1.0), b.constant(x.kind, 0.0)
    quarters = b.select(middle, one, none)
    # From the octant to the quadrant to the half plane.
    q, quarters = b.select(steep, -q, q), b.select(steep, 2.0 - quarters, quarters)
    left = sign_bit(b, x).differs(0)
    q, quarters = b.select(left, -q, q), b.select(left, 4.0 - quarters, quarters)
    angle = b.copysign(_atan_of_quotient(b, q, quarters), y)
    return b.select(b.compare("unordered", x, y), x + y, angle)
