"""Saturating integer arithmetic by LLVM's intrinsics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.lower.expansions.flatten import is_flat, lower_flattened
from mirlo.passes.lower.num import Num
from mirlo.passes.lower.values import ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall

NATIVE = {
    "sat_adds": "llvm.intr.sadd.sat",
    "sat_addu": "llvm.intr.uadd.sat",
    "sat_subs": "llvm.intr.ssub.sat",
    "sat_subu": "llvm.intr.usub.sat",
}


@intrinsic(*NATIVE, target="llvm")
def saturating(op: IntrinsicCall, b: ValueBuilder) -> Num | Decline:
    """Lower to one instruction, on scalars and one-dimensional vectors."""
    if op.dtype == "index":
        return decline("has no form on index", dtype=op.dtype)
    if not is_flat(op):
        return decline("the operands are vectors of several dimensions")
    return b.emit(NATIVE[op.name], op.dtype, *op.nums)


intrinsic(*NATIVE, target="llvm", priority=1)(lower_flattened)
