"""Intrinsics on 16-bit floats: computed in f32, rounded once at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall

WIDENED_TYPES = ("f16", "bf16")
BY_BITS = ("abs", "copysign", "nextafter")
"""Intrinsics with a rule on the bit patterns of every format."""

_WIDENED = [row.name for row in INTRINSICS.values() if row.operands != "int" and row.name not in BY_BITS]


@intrinsic(*_WIDENED, priority=-1)
def compute_in_f32(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
    if op.dtype not in WIDENED_TYPES:
        return decline("widens only 16-bit floats", dtype=op.dtype)
    wide = [b.convert(x, "f32") if x.is_float else x for x in op.nums]
    value: Num = b.call(op.name, *wide)
    return b.convert(value, op.dtype) if value.is_float else value
