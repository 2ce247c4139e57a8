"""Index expressions over loop axes: a constant plus multiples of axes, and floor divisions that remain.

Affine maps of blocks are read into this form; loops are split, merged and cut by substitution. The result shows how
an access moves along each loop: not at all, by one element, by a stride, or non-linearly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim


@dataclass(frozen=True)
class FloorDiv:
    """An `inner floordiv divisor` that no rule could simplify."""

    inner: Linear
    divisor: Any


Term = int | FloorDiv
"""An axis, by position, or a floor division."""


@dataclass(frozen=True)
class Linear:
    """An expression constant + Σ coefficient · term."""

    terms: Mapping[Term, Any] = field(default_factory=dict)
    constant: Any = 0

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.constant))

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for term, coefficient in other.terms.items():
            terms[term] = terms.get(term, 0) + coefficient
        return Linear({t: c for t, c in terms.items() if c}, self.constant + other.constant)

    def __mul__(self, factor: Dim) -> Linear:
        return Linear({t: c * factor for t, c in self.terms.items() if c * factor}, self.constant * factor)

    def __sub__(self, other: Linear) -> Linear:
        return self + other * -1

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def divisions(self) -> list[FloorDiv]:
        return [term for term in self.terms if isinstance(term, FloorDiv)]

    def coefficient(self, axis: int) -> Any:
        """Return the step of the expression along an axis; None if it is not constant."""
        if any(axis in division.inner.axes() for division in self.divisions):
            return None
        return self.terms.get(axis, 0)

    def axes(self) -> set[int]:
        """Return the axes that it depends on."""
        found: set[int] = set()
        for term in self.terms:
            found |= term.inner.axes() if isinstance(term, FloorDiv) else {term}
        return found

    def substitute(self, by: Callable[[int], Linear], extents: Sequence[Dim]) -> Linear:
        """Replace every axis; `extents` are those of the new axes."""
        result = Linear({}, self.constant)
        for term, coefficient in self.terms.items():
            if isinstance(term, FloorDiv):
                value = floor_divide(term.inner.substitute(by, extents), term.divisor, extents)
            else:
                value = by(term)
            result = result + value * coefficient
        return result

    def range(self, extents: Sequence[Any]) -> tuple[Any, Any]:
        """Return the smallest and the largest value over the axes' extents (each term on its own)."""
        low = high = self.constant
        for term, coefficient in self.terms.items():
            if isinstance(term, FloorDiv):
                inner = term.inner.range(extents)
                first, last = inner[0] // term.divisor * coefficient, inner[1] // term.divisor * coefficient
            else:
                first, last = 0, (extents[term] - 1) * coefficient
            # If a loop has no iteration, any bound holds.
            low, high = (low + first, high + last) if coefficient >= 0 else (low + last, high + first)
        return low, high

    @property
    def is_numeric(self) -> bool:
        """Return whether all coefficients and divisors are integers and none is a dynamic dim."""
        divisions = self.divisions
        parts = [self.constant, *self.terms.values(), *(d.divisor for d in divisions)]
        return all(isinstance(part, int) for part in parts) and all(d.inner.is_numeric for d in divisions)

    def expression(self, positions: Mapping[int, int]) -> Any:
        """Return the `ir.AffineExpr` in which the axes are the dims at these positions."""
        result = ir.AffineExpr.get_constant(self.constant)
        for term, coefficient in self.terms.items():
            value: ir.AffineExpr
            if isinstance(term, FloorDiv):
                value = ir.AffineExpr.get_floor_div(term.inner.expression(positions), term.divisor)
            else:
                value = ir.AffineExpr.get_dim(positions[term])
            result = result + value * coefficient
        return result


def axis_index(axis: int) -> Linear:
    return Linear({axis: 1})


def number(value: Dim) -> Linear:
    return Linear({}, value)


def floor_divide(value: Linear, divisor: Any, extents: Sequence[Any]) -> Linear:
    """Return `value floordiv divisor`, without a division if the ranges of the axes allow it."""
    quotient = Linear({t: c // divisor for t, c in value.terms.items() if c % divisor == 0}, value.constant // divisor)
    rest = Linear({t: c for t, c in value.terms.items() if c % divisor}, value.constant % divisor)
    within = _quotient_of_range(rest, divisor, extents)
    if within is not None:
        return quotient + number(within)
    if not rest.is_numeric or not isinstance(divisor, int) or not all(isinstance(e, int) for e in extents):
        return quotient + Linear({FloorDiv(rest, divisor): 1})
    # (8·i + j) floordiv 32 with 0 ≤ j < 8 is i floordiv 4.
    for scale in sorted({math.gcd(divisor, c) for c in rest.terms.values()} - {1}, reverse=True):
        fine = Linear({t: c for t, c in rest.terms.items() if c % scale}, rest.constant % scale)
        low, high = fine.range(extents)
        if low >= 0 and high < scale:
            coarse = rest - fine
            terms = {t: c // scale for t, c in coarse.terms.items()}
            return quotient + floor_divide(Linear(terms, coarse.constant // scale), divisor // scale, extents)
    return quotient + Linear({FloorDiv(rest, divisor): 1})


def _quotient_of_range(value: Linear, divisor: Dim, extents: Sequence[Dim]) -> Dim | None:
    """Return the quotient that all values of an expression share, if there is one."""
    try:
        low, high = value.range(extents)
        if low >= 0 and high < divisor:
            return 0
        return low // divisor if low // divisor == high // divisor else None
    except UndecidedDim:
        return None


EXTREMES = ("arith.maxsi", "arith.minsi")


def arithmetic(name: str, a: Linear, b: Linear, extents: Sequence[Dim]) -> Linear | None:
    """Return the result of an index operation if it is an index expression.

    For min and max this is so only if one operand always wins.
    """
    if name == "arith.addi":
        return a + b
    if name == "arith.subi":
        return a - b
    if name == "arith.muli" and (a.is_constant or b.is_constant):
        return a * b.constant if b.is_constant else b * a.constant
    if name == "arith.floordivsi" and b.is_constant and D.known(lambda: b.constant > 0):
        return floor_divide(a, b.constant, extents)
    if name in EXTREMES:
        try:
            low, high = (a - b).range(extents)
        except UndecidedDim:
            return None
        if D.known(lambda: low >= 0):
            return a if name == "arith.maxsi" else b
        if D.known(lambda: high <= 0):
            return b if name == "arith.maxsi" else a
    return None


def read_expression(expr: Any, dims: Sequence[Linear], extents: Sequence[Any]) -> Linear:
    """Read an `ir.AffineExpr` whose dims have these values."""
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return number(expr.value)
    left = read_expression(expr.lhs, dims, extents)
    right = read_expression(expr.rhs, dims, extents)
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        return left * right.constant if right.is_constant else right * left.constant
    divisor = right.constant
    if isinstance(expr, ir.AffineFloorDivExpr):
        return floor_divide(left, divisor, extents)
    if isinstance(expr, ir.AffineModExpr):
        return left - floor_divide(left, divisor, extents) * divisor
    return floor_divide(left + number(divisor - 1), divisor, extents)


def flatten(dims: Iterable[Linear], strides: Iterable[Dim]) -> Linear:
    """Return the position in memory of an element at these indices."""
    result = number(0)
    for dim, stride in zip(dims, strides, strict=True):
        result = result + dim * stride
    return result


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the strides of a contiguous tensor, in elements."""
    strides: list[Dim] = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)
