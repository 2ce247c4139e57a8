"""Rounding to integers and other functions that every LLVM back end supports natively."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.lower.expansions.elementary import elementary
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall

NATIVE = {
    "floor": "math.floor",
    "ceil": "math.ceil",
    "trunc": "math.trunc",
    "roundeven": "math.roundeven",
    "sqrt": "math.sqrt",
    "fma": "math.fma",
}
"""Intrinsics that are one upstream operation, lowered to an LLVM intrinsic and from there to instructions."""


@intrinsic(*NATIVE)
def native(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype not in ("f32", "f64"):
        return decline("only for f32 and f64", dtype=op.dtype)
    return b.emit(NATIVE[op.name], op.dtype, *op.nums)


@elementary("fmuladd")
def fmuladd(b: ValueBuilder, x: Num, y: Num, z: Num) -> Num:
    return b.multiply_add(x, y, z)


@elementary("round")
def round_half_away(b: ValueBuilder, x: Num) -> Num:
    whole = b.unary("math.trunc", x)
    step = b.copysign(b.constant(x.kind, 1.0), x)
    # x - whole is exact; adding a half before truncating would not be.
    return b.select(b.abs(x - whole) >= 0.5, whole + step, b.copysign(whole, x))


@elementary("rsqrt")
def rsqrt(b: ValueBuilder, x: Num) -> Num:
    return 1.0 / b.sqrt(x)
