"""sin, cos, tan: polynomials on |r| ≤ π/4 after argument reduction by a multiple of π/2."""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import elementary, flip_sign, identity_near_zero
from mirlo.passes.lower.expansions.reduction import reduce_by_half_pi
from mirlo.passes.lower.values import Num, ValueBuilder

# (sin r - r) / r³ and (cos r - 1 + r²/2) / r⁴ in r²
SIN = {
    "f32": (-0.000195052402, 0.00833209045, -0.166666538),
    "f64": (
        1.5890770714156203e-10,
        -2.5050655798046954e-08,
        2.755731305080929e-06,
        -0.0001984126982800239,
        0.008333333333320222,
        -0.16666666666666624,
    ),
}
COS = {
    "f32": (2.44191961e-05, -0.00138871942, 0.0416666418),
    "f64": (
        -1.1354295655201374e-11,
        2.0875619295638664e-09,
        -2.755731358278522e-07,
        2.4801587286801644e-05,
        -0.0013888888888869803,
        0.041666666666666574,
    ),
}


def sin_and_cos(b: ValueBuilder, r: Num) -> tuple[Num, Num]:
    """Return sine and cosine for |r| ≤ π/4."""
    z = r * r
    sin = b.multiply_add(r * z, b.polynomial(z, SIN[r.kind]), r)
    half = z * 0.5
    top = 1.0 - half
    # (1 - top) - half is the rounding error of the subtraction.
    cos = top + b.multiply_add(z * z, b.polynomial(z, COS[r.kind]), (1.0 - top) - half)
    return sin, cos


def _sin_in_quadrant(b: ValueBuilder, r: Num, quadrant: Num) -> Num:
    """Return sin(r + quadrant · π/2)."""
    sin, cos = sin_and_cos(b, r)
    value = b.select((quadrant & 1).differs(0), cos, sin)
    return flip_sign(b, value, (quadrant & 2) << (r.format.bits - 2))


@elementary("sin")
def sin(b: ValueBuilder, x: Num) -> Num:
    r, quadrant = reduce_by_half_pi(b, x)
    return identity_near_zero(b, x, _sin_in_quadrant(b, r, quadrant))


@elementary("cos")
def cos(b: ValueBuilder, x: Num) -> Num:
    r, quadrant = reduce_by_half_pi(b, x)
    return _sin_in_quadrant(b, r, quadrant + 1)


@elementary("tan")
def tan(b: ValueBuilder, x: Num) -> Num:
    r, quadrant = reduce_by_half_pi(b, x)
    sin, cos = sin_and_cos(b, r)
    odd = (quadrant & 1).differs(0)
    return identity_near_zero(b, x, b.select(odd, -cos, sin) / b.select(odd, sin, cos))
