"""exp, exp2, expm1, sigmoid: 2^n · e^r with |r| ≤ ln 2 / 2, where e^r is a polynomial."""

from __future__ import annotations

from mirlo.passes.lower.expansions.elementary import elementary
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.runtime.records import dataclass

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


@dataclass(frozen=True)
class ExpConstants:
    """Constants of one format."""

    ln2_high: float
    """ln 2 with trailing zeros such that its product with every n is exact; `ln2_low` is the remainder."""
    ln2_low: float
    polynomial: tuple[float, ...]
    """(e^r - 1 - r) / r² for |r| ≤ ln 2 / 2, minimax relative to e^r - 1."""
    short: tuple[float, ...]
    """The same, minimax relative to e^r, which takes fewer terms."""
    overflow: float
    """At and above, e^x is infinite; slightly above the exact bound."""
    vanish: float
    """At and below, e^x rounds to zero."""


_EXP_F64 = (
    2.092561071987012e-09,
    2.5109249955579118e-08,
    2.755723945954401e-07,
    2.7557243820956625e-06,
    2.4801587363733536e-05,
    0.0001984126988624767,
    0.001388888888886569,
    0.008333333333321714,
    0.0416666666666667,
    0.16666666666666677,
    0.5,
)

EXP = {
    "f32": ExpConstants(
        ln2_high=0.693359375,
        ln2_low=-0.00021219444005469057,
        polynomial=(0.00139473367, 0.00836677477, 0.041666273, 0.16666542, 0.5),
        short=(0.00831247028, 0.0418903306, 0.166671157, 0.499992311),
        overflow=89.0,
        vanish=-104.0,
    ),
    "f64": ExpConstants(
        ln2_high=0.693147180369123816490,
        ln2_low=1.9082149292705877e-10,
        polynomial=_EXP_F64,
        short=_EXP_F64,
        overflow=710.0,
        vanish=-746.0,
    ),
}


EXP2_F32 = (0.00132646039, 0.00967157632, 0.055507347, 0.240222409, 0.693147004, 1.0)
"""2^r for |r| ≤ 1/2."""


def reduce_exp(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """Return r and n with x = r + n · ln 2; only the low bits of the integer n are valid."""
    r, _, n = reduce_exp_with_exponent(b, x)
    return r, n


def reduce_exp_with_exponent(b: ValueBuilder, x: Num) -> tuple[Num, Num, Num]:
    """Return the result of `reduce_exp`, with n also as a float."""
    constants = EXP[x.kind]
    shifted = b.multiply_add(x, LOG2_E, x.format.rounding_constant)
    n = shifted - x.format.rounding_constant
    r = b.multiply_add(n, -constants.ln2_low, b.multiply_add(n, -constants.ln2_high, x))
    return r, n, b.bits(shifted)


def expm1_reduced(b: ValueBuilder, r: Num) -> Num:
    """Return e^r - 1 for |r| ≤ ln 2 / 2."""
    return b.multiply_add(r * r, b.polynomial(r, EXP[r.kind].polynomial), r)


def exp_reduced(b: ValueBuilder, r: Num, precise: bool = False) -> Num:
    """Return e^r for |r| ≤ ln 2 / 2; `precise` for an error below one ulp before the result is rounded."""
    constants = EXP[r.kind]
    return b.polynomial(r, (*(constants.polynomial if precise else constants.short), 1.0, 1.0))


def scale(b: ValueBuilder, x: Num, n: Num) -> Num:
    """Return x · 2^n for n from 2 - 2·bias to 2·bias, rounded once: in two steps, as 2^n may not be a normal value."""
    half = b.shift_right_signed(n, 1)
    return x * b.power_of_two(half, x.kind) * b.power_of_two(n - half, x.kind)


@elementary("exp")
def exp(b: ValueBuilder, x: Num) -> Num:
    constants = EXP[x.kind]
    x = b.clamp_above(x, constants.overflow)
    # Products that underflow are slow on many machines, and masks of attention cause many.
    vanishes = x < constants.vanish
    r, n = reduce_exp(b, b.select(vanishes, 0.0, x))
    return b.select(vanishes, 0.0, scale(b, exp_reduced(b, r), n))


@elementary("exp2")
def exp2(b: ValueBuilder, x: Num) -> Num:
    bias, fraction = x.format.bias, x.format.fraction
    x = b.clamp_below(b.clamp_above(x, bias + 1.0), -float(bias + fraction + 1))
    whole, n = b.round_to_int(x)
    r = x - whole
    return scale(b, b.polynomial(r, EXP2_F32) if x.kind == "f32" else exp_reduced(b, r * LN_2), n)


@elementary("expm1")
def expm1(b: ValueBuilder, x: Num) -> Num:
    # Where e^x is negligible beside 1, it needs no exponent of its own.
    limited = b.clamp_below(b.clamp_above(x, EXP[x.kind].overflow), -(x.format.fraction + 3) * LN_2)
    r, n = reduce_exp(b, limited)
    # 2^n overflows one step before the result: compute half of it, then double.
    half = b.power_of_two(n - 1, x.kind)
    result = b.multiply_add(expm1_reduced(b, r), half, half - 0.5) * 2.0
    return b.select(b.abs(x) < 2.0**-x.format.fraction, x, result)


@elementary("sigmoid")
def sigmoid(b: ValueBuilder, x: Num) -> Num:
    # From this bound on, e^x + 1 is e^x; before it nothing overflows.
    x = b.clamp_above(x, (x.format.fraction + 3) * LN_2)
    vanishes = x < EXP[x.kind].vanish
    r, n = reduce_exp(b, b.select(vanishes, 0.0, x))
    # e^x / (e^x + 1) with both multiplied by a power of two, so that one that has no normal value needs no second step.
    lift = (x.format.bias + 1) // 2
    power = b.select(vanishes, 0.0, exp_reduced(b, r, precise=True) * b.power_of_two(n + lift, x.kind))
    return power / (power + 2.0**lift)
