"""exp, exp2, expm1, sigmoid: 2^n · e^r with |r| ≤ ln 2 / 2, the second factor a polynomial."""

from __future__ import annotations

from dataclasses import dataclass

from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.targets.llvm.intrinsics.elementary import elementary
from mirlo.targets.llvm.intrinsics.x86 import can_scale, scale_by_power

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


@dataclass(frozen=True)
class ExpConstants:
    """For one format."""

    ln2_high: float
    """ln 2 with so many trailing zeros that its product with every n is exact; `ln2_low` is the rest."""
    ln2_low: float
    polynomial: tuple[float, ...]
    """(e^r - 1 - r) / r² for |r| ≤ ln 2 / 2, minimax relative to e^r - 1."""
    overflow: float
    """At and above, e^x is infinite; a little more than the exact bound."""
    vanish: float
    """At and below, e^x rounds to zero."""


EXP = {
    "f32": ExpConstants(
        ln2_high=0.693359375,
        ln2_low=-0.00021219444005469057,
        polynomial=(0.00139473367, 0.00836677477, 0.041666273, 0.16666542, 0.5),
        overflow=89.0,
        vanish=-104.0,
    ),
    "f64": ExpConstants(
        ln2_high=0.693147180369123816490,
        ln2_low=1.9082149292705877e-10,
        polynomial=(
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
        ),
        overflow=710.0,
        vanish=-746.0,
    ),
}


def reduce_exp(b: ValueBuilder, x: Num) -> tuple[Num, Num]:
    """r and n with x = r + n · ln 2; of n, an integer, only the low bits are right."""
    r, _, n = _reduce(b, x)
    return r, n


def _reduce(b: ValueBuilder, x: Num) -> tuple[Num, Num, Num]:
    """As `reduce_exp`, with n also as a float."""
    constants = EXP[x.kind]
    shifted = b.fma(x, LOG2_E, x.format.magic)
    n = shifted - x.format.magic
    r = b.fma(n, -constants.ln2_low, b.fma(n, -constants.ln2_high, x))
    return r, n, b.bits(shifted)


def expm1_reduced(b: ValueBuilder, r: Num) -> Num:
    """e^r - 1 for |r| ≤ ln 2 / 2."""
    return b.fma(r * r, b.polynomial(r, EXP[r.kind].polynomial), r)


def exp_reduced(b: ValueBuilder, r: Num) -> Num:
    """e^r for |r| ≤ ln 2 / 2."""
    return b.polynomial(r, (*EXP[r.kind].polynomial, 1.0, 1.0))


def scale(b: ValueBuilder, x: Num, n: Num) -> Num:
    """x · 2^n for n from 2 - 2·bias to 2·bias, rounded once: in two steps, for 2^n itself may be no normal number."""
    half = b.shift_right_signed(n, 1)
    return x * b.power_of_two(half, x.kind) * b.power_of_two(n - half, x.kind)


def _exp_up_to(b: ValueBuilder, x: Num) -> Num:
    """e^x for x that does not overflow by much."""
    vanish = EXP[x.kind].vanish
    if can_scale(b, x.kind):
        r, whole, _ = _reduce(b, b.clamp_below(x, vanish))
        return scale_by_power(b, exp_reduced(b, r), whole)
    # Products that underflow are slow on many machines, and masks of attention are full of them.
    vanishes = x < vanish
    r, _, n = _reduce(b, b.select(vanishes, 0.0, x))
    return b.select(vanishes, 0.0, scale(b, exp_reduced(b, r), n))


@elementary("exp")
def exp(b: ValueBuilder, x: Num) -> Num:
    return _exp_up_to(b, b.clamp_above(x, EXP[x.kind].overflow))


@elementary("exp2")
def exp2(b: ValueBuilder, x: Num) -> Num:
    bias, fraction = x.format.bias, x.format.fraction
    x = b.clamp_below(b.clamp_above(x, bias + 1.0), -float(bias + fraction + 1))
    whole, n = b.round_to_int(x)
    return scale(b, exp_reduced(b, (x - whole) * LN_2), n)


@elementary("expm1")
def expm1(b: ValueBuilder, x: Num) -> Num:
    # Where e^x vanishes beside 1 it needs no exponent of its own.
    limited = b.clamp_below(b.clamp_above(x, EXP[x.kind].overflow), -(x.format.fraction + 3) * LN_2)
    r, n = reduce_exp(b, limited)
    # 2^n overflows one step before the result does: half of everything, then doubled.
    half = b.power_of_two(n - 1, x.kind)
    result = b.fma(expm1_reduced(b, r), half, half - 0.5) * 2.0
    return b.select(b.abs(x) < 2.0**-x.format.fraction, x, result)


@elementary("sigmoid")
def sigmoid(b: ValueBuilder, x: Num) -> Num:
    # e^-|x| never overflows; for negative x it is the numerator.
    size = b.abs(x)
    power = _exp_up_to(b, -size)
    return b.select(x < 0.0, power, 1.0) / (power + 1.0)
