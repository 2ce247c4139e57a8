"""Truncation and rounding of f64 by floor, since devices get the operations themselves wrong.

Mesa's software device leaves `Trunc` and `RoundEven` to the processor where a vector fills a register. f64 does not
without AVX-512; then an f64 of 2^24 or more stays as it is, as an f32 of this size may, and -0.5 becomes 0 instead of
-0. Its `Floor` is right. `GALLIUM_OVERRIDE_CPU_CAPS=avx` shows the same on any x86-64 processor.
"""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.calls import find
from mirlo.passes.lower.values import Num, ValueBuilder


def expand_rounding(root: ir.Module | ir.OpView) -> None:
    """Replace every `math.trunc` and `math.roundeven` of f64."""
    for name, round_size in _OF_SIZE.items():
        for op in find(root, name):
            if str(op.results[0].type) != "f64":
                continue
            b = ValueBuilder(None)
            with ir.InsertionPoint(op), op.location:
                x = b.num(op.operands[0])
                value = b.copysign(round_size(b, b.abs(x)), x).value
            op.results[0].replace_all_uses_with(value)
            op.erase()


def _truncated(b: ValueBuilder, size: Num) -> Num:
    return b.unary("math.floor", size)


def _rounded_to_even(b: ValueBuilder, size: Num) -> Num:
    """Return the nearest integer; every step is exact."""
    below = b.unary("math.floor", size)
    rest = size - below
    half = below * 0.5
    is_odd = b.unary("math.floor", half).differs(half)
    is_up = (rest > 0.5) | (rest.equals(0.5) & is_odd)
    return b.select(is_up, below + 1.0, below)


_OF_SIZE: dict[str, Callable[[ValueBuilder, Num], Num]] = {
    "math.trunc": _truncated,
    "math.roundeven": _rounded_to_even,
}
