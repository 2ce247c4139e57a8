"""Intrinsics for which the hardware's approximation of 2^x is exact enough: two units in the last place, in f32."""

from __future__ import annotations

from typing import Any

from mirlo.passes.lower.expansions.exponential import LN_2, LOG2_E
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import decline, intrinsic

LOG2_E_REST = 1.925963033500995e-08
"""log2(e) less what of it fits f32."""
_VANISH = -104.0
"""Below this e^x rounds to zero."""
_CERTAIN = 17.4
"""From here on sigmoid(x) rounds to one."""


def _exp2(b: ValueBuilder, x: Num) -> Num:
    return b.unary("math.exp2", x)


def _exp(b: ValueBuilder, x: Num) -> Num:
    # One instruction, which keeps NaN. Above, the power is infinite where e^x is, and is taken as it is.
    x = b.emit("arith.maximumf", x.kind, x, b.like(x, _VANISH))
    power = x * LOG2_E
    # What the product lost of x · log2(e), as a factor of the result.
    lost = b.fma(x, LOG2_E_REST, b.fma(x, LOG2_E, -power))
    whole = _exp2(b, power)
    return b.select(whole.equals(float("inf")), whole, b.fma(whole, lost * LN_2, whole))


@intrinsic("exp2", target="nvvm")
def exp2(op: Any, b: ValueBuilder) -> Any:
    """One instruction."""
    return _exp2(b, op.nums[0]) if op.dtype == "f32" else decline("only for f32", dtype=op.dtype)


@intrinsic("exp", target="nvvm")
def exp(op: Any, b: ValueBuilder) -> Any:
    """2^(x · log2 e), the product in two parts."""
    return _exp(b, op.nums[0]) if op.dtype == "f32" else decline("only for f32", dtype=op.dtype)


@intrinsic("sigmoid", target="nvvm")
def sigmoid(op: Any, b: ValueBuilder) -> Any:
    """e^x / (e^x + 1), held where that is one."""
    if op.dtype != "f32":
        return decline("only for f32", dtype=op.dtype)
    power = _exp(b, b.clamp_above(op.nums[0], _CERTAIN))
    return power / (power + 1.0)
