"""Rules for f32 intrinsics for which the hardware's approximations of 2^x and 1/x are accurate enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.lower.expansions import errorfunction, hyperbolic
from mirlo.passes.lower.expansions.exponential import LN_2, LOG2_E
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall

LOG2_E_LOW = 1.925963033500995e-08
"""log2(e) minus its f32 rounding."""
_VANISH = -104.0
"""Below this e^x rounds to zero."""
_CERTAIN = 17.4
"""From here on sigmoid(x) rounds to one."""


class _Quick(ValueBuilder):
    """Divides by positive numbers without branches, which would keep later loads from being issued early."""

    def quotient(self, x: Num, y: Num) -> Num:
        inverse = self.emit("nvvm.rcp.approx.ftz.f", y.kind, y)
        near = x * inverse
        # In this order -0 / y is -0 for positive y.
        return self.fma(self.fma(near, y, -x), -inverse, near)


def _quick(b: ValueBuilder) -> ValueBuilder:
    """Return a builder at the same insertion point, for scalars: the instruction takes no vectors."""
    return _Quick(None, b.constants) if b.shape is None else b


def _exp2(b: ValueBuilder, x: Num) -> Num:
    return b.unary("math.exp2", x)


def _exp(b: ValueBuilder, x: Num) -> Num:
    # One instruction that keeps NaN. At the upper end the power is infinite where e^x is.
    x = b.emit("arith.maximumf", x.kind, x, b.like(x, _VANISH))
    power = x * LOG2_E
    # The rounding error of x * log2(e), as a factor of the result.
    lost = b.fma(x, LOG2_E_LOW, b.fma(x, LOG2_E, -power))
    whole = _exp2(b, power)
    return b.select(whole.equals(float("inf")), whole, b.fma(whole, lost * LN_2, whole))


@intrinsic("exp2", target="nvvm")
def exp2(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    """Compute 2^x with one instruction."""
    return _exp2(b, op.nums[0]) if op.dtype == "f32" else decline("only for f32", dtype=op.dtype)


@intrinsic("exp", target="nvvm")
def exp(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    """Compute 2^(x * log2 e) with the product in two parts."""
    return _exp(b, op.nums[0]) if op.dtype == "f32" else decline("only for f32", dtype=op.dtype)


@intrinsic("sigmoid", target="nvvm")
def sigmoid(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    """Compute e^x / (e^x + 1), clamped where that is one."""
    if op.dtype != "f32":
        return decline("only for f32", dtype=op.dtype)
    power = _exp(b, b.clamp_above(op.nums[0], _CERTAIN))
    return _quick(b).quotient(power, power + 1.0)


@intrinsic("erf", target="nvvm")
def erf(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    """Use the default expansion with a branch-free division."""
    return errorfunction.erf(_quick(b), op.nums[0]) if op.dtype == "f32" else decline("only for f32", dtype=op.dtype)


@intrinsic("tanh", target="nvvm")
def tanh(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    """Use the default expansion with a branch-free division."""
    return hyperbolic.tanh(_quick(b), op.nums[0]) if op.dtype == "f32" else decline("only for f32", dtype=op.dtype)
