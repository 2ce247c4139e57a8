"""Index expressions as linear forms over loop axes, and the axes themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir


@dataclass(frozen=True)
class Axis:
    """A loop: one of a block's axes, a part of one, or several fused."""

    id: int
    extent: int
    reduce: bool


@dataclass(frozen=True)
class Linear:
    """`constant + sum(coefficient * axis)`; the coefficients by axis id, none of them zero."""

    terms: Mapping[int, int]
    constant: int = 0

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for axis, factor in other.terms.items():
            terms[axis] = terms.get(axis, 0) + factor
        return Linear({a: f for a, f in terms.items() if f}, self.constant + other.constant)

    def scaled(self, factor: int) -> Linear:
        if factor == 0:
            return Linear({})
        return Linear({a: f * factor for a, f in self.terms.items()}, self.constant * factor)

    def shifted(self, amount: int) -> Linear:
        return Linear(self.terms, self.constant + amount)

    def stride(self, axis: Axis) -> int:
        return self.terms.get(axis.id, 0)

    def range(self, extents: Mapping[int, int]) -> tuple[int, int]:
        """Smallest and largest value."""
        low = high = self.constant
        for axis, factor in self.terms.items():
            reach = factor * (extents[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def divided(self, divisor: int, extents: Mapping[int, int]) -> tuple[Linear, Linear] | None:
        """Quotient and remainder by a positive number, or None where they are not linear."""
        whole = {a: f for a, f in self.terms.items() if f % divisor == 0}
        rest = {a: f for a, f in self.terms.items() if f % divisor}
        remainder = Linear(rest, self.constant % divisor)
        low, high = remainder.range(extents)
        if low < 0 or high >= divisor:
            return None
        return Linear({a: f // divisor for a, f in whole.items()}, self.constant // divisor), remainder


def linear(expr: Any, env: Sequence[Linear | None], extents: Mapping[int, int]) -> Linear | None:
    """An affine expression over dims that are linear forms themselves; None where the result is not linear."""
    if isinstance(expr, ir.AffineDimExpr):
        return env[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return Linear({}, expr.value)
    left, right = linear(expr.lhs, env, extents), linear(expr.rhs, env, extents)
    if left is None or right is None:
        return None
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        factor, other = (left, right) if not left.terms else (right, left)
        return None if factor.terms else other.scaled(factor.constant)
    if right.terms or right.constant <= 0:
        return None
    divided = left.divided(right.constant, extents)
    if divided is None:
        return None
    if isinstance(expr, ir.AffineFloorDivExpr):
        return divided[0]
    if isinstance(expr, ir.AffineModExpr):
        return divided[1]
    return None


def moving(map_: Any) -> set[int]:
    """The dims that an affine map depends on."""

    def of(expr: Any) -> set[int]:
        if isinstance(expr, ir.AffineDimExpr):
            return {expr.position}
        return set() if isinstance(expr, ir.AffineConstantExpr) else of(expr.lhs) | of(expr.rhs)

    return set().union(*map(of, map_.results))


def divisors(expr: Any, visit: Callable[[int, int], None]) -> None:
    """Call `visit(dim, divisor)` for each `dim floordiv n` and `dim mod n` in an affine expression."""
    if isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr)):
        return
    is_division = isinstance(expr, (ir.AffineFloorDivExpr, ir.AffineModExpr, ir.AffineCeilDivExpr))
    if is_division and isinstance(expr.lhs, ir.AffineDimExpr) and isinstance(expr.rhs, ir.AffineConstantExpr):
        visit(expr.lhs.position, expr.rhs.value)
    divisors(expr.lhs, visit)
    divisors(expr.rhs, visit)


def row_major(dims: Sequence[Linear], shape: Sequence[int]) -> Linear:
    """Position in a contiguous buffer of an element with these indices."""
    position = Linear({})
    stride = 1
    for index, size in reversed(list(zip(dims, shape, strict=True))):
        position = position + index.scaled(stride)
        stride *= size
    return position


def fuse(axes: Sequence[Axis], forms: Sequence[Linear], alone: Collection[int] = ()) -> tuple[list[Axis], list[Linear]]:
    """Join neighbouring axes (outer, inner) that every form walks as one; the inner one stands for both.

    Axes whose ids are in `alone` stay by themselves.
    """
    merged: list[Axis] = []
    current = list(forms)
    for axis in axes:
        outer = merged[-1] if merged else None
        joins = outer is not None and outer.id not in alone and axis.id not in alone
        if joins and outer is not None and all(f.stride(outer) == f.stride(axis) * axis.extent for f in current):
            gone = outer.id
            current = [Linear({a: f for a, f in form.terms.items() if a != gone}, form.constant) for form in current]
            merged[-1] = Axis(axis.id, outer.extent * axis.extent, axis.reduce)
        else:
            merged.append(axis)
    return merged, current
