"""f32 arithmetic of the softmax, with the hardware's power of two."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, inline_asm
from mirlo.dialects.tir.compute.emit import create

if TYPE_CHECKING:
    pass

LOG2_E = math.log2(math.e)


def exp2(value: ir.Value) -> Value:
    """Compute 2^x within two units in the last place; results below 2^-126 are flushed to zero, which saves a test."""
    return inline_asm("ex2.approx.ftz.f32 $0, $1;", "=f,f", value.type, value)


def fma(a: ir.Value, b: ir.Value, c: ir.Value) -> Value:
    """Compute a * b + c, rounded once."""
    return create("math.fma", c.type, a, b, c)
