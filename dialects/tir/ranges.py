"""Ranges of affine expressions over a box of indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir


@dataclass(frozen=True)
class ValueRange:
    """Minimum and maximum, inclusive; `dense` if all values between occur too."""

    low: int
    high: int
    dense: bool = True


def affine_range(expr: ir.AffineExpr, extents: Sequence[Any]) -> ValueRange | None:
    """Return the exact range of an expression for indices from 0 to these extents, or None if it is unknown.

    It is unknown if an extent is symbolic or 0, or if an index occurs twice: `d0 - d0 mod 4`.
    """
    seen: set[int] = set()

    def visit(e: Any) -> ValueRange | None:
        if isinstance(e, ir.AffineConstantExpr):
            return ValueRange(e.value, e.value)
        if isinstance(e, ir.AffineDimExpr):
            extent = extents[e.position]
            if e.position in seen or not isinstance(extent, int) or extent < 1:
                return None
            seen.add(e.position)
            return ValueRange(0, extent - 1)
        combine = _COMBINE.get(type(e))
        left, right = (visit(e.lhs), visit(e.rhs)) if combine else (None, None)
        return combine(left, right) if combine and left and right else None

    return visit(expr)


def _add(left: ValueRange, right: ValueRange) -> ValueRange:
    return ValueRange(left.low + right.low, left.high + right.high, left.dense and right.dense)


def _multiply(left: ValueRange, right: ValueRange) -> ValueRange | None:
    if right.low != right.high:
        return None
    low, high = sorted((left.low * right.low, left.high * right.low))
    return ValueRange(low, high, low == high or (left.dense and abs(right.low) == 1))


def _floor_divide(left: ValueRange, right: ValueRange) -> ValueRange | None:
    if right.low != right.high or right.low < 1:
        return None
    return ValueRange(left.low // right.low, left.high // right.low, left.dense)


def _ceil_divide(left: ValueRange, right: ValueRange) -> ValueRange | None:
    if right.low != right.high or right.low < 1:
        return None
    return ValueRange(-(-left.low // right.low), -(-left.high // right.low), left.dense)


def _modulo(left: ValueRange, right: ValueRange) -> ValueRange | None:
    if right.low != right.high or right.low < 1:
        return None
    modulus = right.low
    if left.low // modulus == left.high // modulus:
        return ValueRange(left.low % modulus, left.high % modulus, left.dense)
    # A dense range across a multiple of the modulus contains 0 there and the greatest remainder just before it.
    return ValueRange(0, modulus - 1, left.high - left.low + 1 >= modulus) if left.dense else None


_COMBINE = {
    ir.AffineAddExpr: _add,
    ir.AffineMulExpr: _multiply,
    ir.AffineFloorDivExpr: _floor_divide,
    ir.AffineCeilDivExpr: _ceil_divide,
    ir.AffineModExpr: _modulo,
}
