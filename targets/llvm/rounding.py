"""Rounding to integers for x86 without SSE4.1, by additions.

LLVM otherwise calls a function of the C library for each lane, of which some libraries lack `roundeven`.
"""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.calls import find_all
from mirlo.passes.lower.values import Num, ValueBuilder


def expand_rounding(root: ir.Module | ir.OpView) -> None:
    """Replace every rounding of f32 and f64 to an integer."""
    for name, ops in find_all(root, *_OF).items():
        for op in ops:
            kind = op.results[0].type
            b = ValueBuilder(tuple(kind.shape) if isinstance(kind, ir.VectorType) else None)
            with ir.InsertionPoint(op), op.location:
                x = b.num(op.operands[0])
                rounded = b.copysign(_OF[name](b, x), x)
                # Numbers of this size are integers, infinities or NaN.
                rounded = b.select(b.abs(x) < 2.0**x.format.fraction, rounded, x)
            op.results[0].replace_all_uses_with(rounded.value)
            op.erase()


def _nearest(b: ValueBuilder, x: Num) -> Num:
    """Return the nearest integer, of two the even one, for numbers below 2^fraction."""
    place = 2.0**x.format.fraction
    return b.copysign((b.abs(x) + place) - place, x)


def _floor(b: ValueBuilder, x: Num) -> Num:
    near = _nearest(b, x)
    return near - b.select(near > x, b.constant(x.kind, 1.0), 0.0)


def _ceil(b: ValueBuilder, x: Num) -> Num:
    near = _nearest(b, x)
    return near + b.select(near < x, b.constant(x.kind, 1.0), 0.0)


def _trunc(b: ValueBuilder, x: Num) -> Num:
    return _floor(b, b.abs(x))


_OF: dict[str, Callable[[ValueBuilder, Num], Num]] = {
    "math.roundeven": _nearest,
    "math.floor": _floor,
    "math.ceil": _ceil,
    "math.trunc": _trunc,
}
