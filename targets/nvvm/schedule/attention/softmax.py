"""f32 arithmetic of the softmax, with the hardware's power of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, inline_asm
from mirlo.dialects.tir.compute.emit import create

if TYPE_CHECKING:
    from mirlo.targets.gpu.schedule.exchange import Combine

LOG2_E = math.log2(math.e)


def exp2(value: ir.Value) -> ir.Value:
    """Compute 2^x within two units in the last place; results below 2^-126 are flushed to zero, which saves a test."""
    return inline_asm("ex2.approx.ftz.f32 $0, $1;", "=f,f", value.type, value)


def fma(a: ir.Value, b: ir.Value, c: ir.Value) -> Value:
    """Compute a * b + c, rounded once."""
    return create("math.fma", c.type, a, b, c)


def fold(combine: Combine, values: Sequence[ir.Value]) -> ir.Value:
    """Combine all values pairwise, for instruction-level parallelism."""
    folded = list(values)
    while len(folded) > 1:
        rest = folded[len(folded) // 2 * 2 :]
        folded = [combine(a, b) for a, b in zip(folded[::2], folded[1::2], strict=False)] + rest
    return folded[0]
