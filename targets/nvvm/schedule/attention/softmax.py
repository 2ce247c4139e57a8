"""Arithmetic of the softmax in f32, by the hardware's power of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create

LOG2_E = math.log2(math.e)


def exp2(value: Any) -> Any:
    """2^x: off by two units in the last place; what is below 2^-126 is zero, which saves a test and a product."""
    made = ir.Operation.create(
        "llvm.inline_asm", results=[value.type], operands=[value],
        attributes={
            "asm_string": ir.StringAttr.get("ex2.approx.ftz.f32 $0, $1;"), "constraints": ir.StringAttr.get("=f,f"),
        },
    )  # fmt: skip
    return made.results[0]


def fma(a: Any, b: Any, c: Any) -> Any:
    """a·b + c, rounded once."""
    return create("math.fma", c.type, a, b, c)


def fold(combine: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """All values combined in pairs, so that the operations do not wait for each other."""
    found = list(values)
    while len(found) > 1:
        rest = found[len(found) // 2 * 2 :]
        found = [combine(a, b) for a, b in zip(found[::2], found[1::2], strict=False)] + rest
    return found[0]
