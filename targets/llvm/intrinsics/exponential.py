"""exp, exp2 and sigmoid for machines whose vectors scale by powers of two: no clamps, no slow paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mirlo.passes.lower.expansions.exponential import EXP2_F32, LN_2, exp_reduced, reduce_exp_with_exponent
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import Decline, decline, decline_machine, intrinsic
from mirlo.targets.llvm.intrinsics.x86 import fills_registers, fraction_to_nearest, limited_size, scale_by_power
from mirlo.targets.llvm.options import find_machine

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall


def _scaled(*kinds: str) -> Callable[[Callable[[ValueBuilder, Num], Num]], Callable[[ValueBuilder, Num], Num]]:
    """Return a decorator that makes a rule of a function that uses the scaling instruction."""

    def rule_of(function: Callable[[ValueBuilder, Num], Num]) -> Callable[[ValueBuilder, Num], Num]:
        def rule(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
            if op.dtype not in kinds:
                return decline("no instruction scales this type", dtype=op.dtype)
            if not find_machine(op.options.get("machine")).avx512:
                return decline_machine("the processor has no instruction that scales by powers of two (AVX-512)")
            if not fills_registers(b, op.dtype):
                return decline("only for vectors of whole registers", dtype=op.dtype)
            return function(b, op.nums[0])

        rule.__name__, rule.__doc__ = function.__name__, function.__doc__
        rule.__wrapped__ = function  # type: ignore[attr-defined]
        intrinsic(function.__name__, target="llvm")(rule)
        return function

    return rule_of


def _exp(b: ValueBuilder, x: Num, precise: bool = False) -> Num:
    # Scaling handles overflow, underflow and NaN by n; the polynomial only needs an r for which it is positive.
    r, whole, _ = reduce_exp_with_exponent(b, x)
    return scale_by_power(b, exp_reduced(b, limited_size(b, r, 0.5), precise), whole)


@_scaled("f32", "f64")
def exp(b: ValueBuilder, x: Num) -> Num:
    """Lower to a polynomial and one scaling instruction."""
    return _exp(b, x)


@_scaled("f32")
def exp2(b: ValueBuilder, x: Num) -> Num:
    """Lower to a polynomial and one scaling instruction."""
    r = fraction_to_nearest(b, x)
    return scale_by_power(b, b.polynomial(r, EXP2_F32), x - r)


@_scaled("f32", "f64")
def sigmoid(b: ValueBuilder, x: Num) -> Num:
    """Lower to a polynomial and one scaling instruction."""
    # From this bound on e^x + 1 rounds to e^x; below it nothing overflows.
    power = _exp(b, b.clamp_above(x, (x.format.fraction + 3) * LN_2), precise=True)
    return power / (power + 1.0)
