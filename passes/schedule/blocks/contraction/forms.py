"""Loop axes, and affine forms of positions and indices over them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.passes.schedule.blocks.linear import Linear, read_expression


@dataclass(frozen=True)
class LoopAxis:
    """A loop: an axis of a block, a part of one, or several fused axes."""

    id: int
    extent: Any
    """An integer, or a dynamic dim."""
    reduce: bool


@dataclass(frozen=True)
class Form:
    """An affine form `constant + sum(coefficient * axis)`: nonzero coefficients by axis id, no divisions."""

    terms: Mapping[int, Any]
    constant: Any = 0

    def __add__(self, other: Form) -> Form:
        terms = dict(self.terms)
        for axis, factor in other.terms.items():
            terms[axis] = terms.get(axis, 0) + factor
        return Form({a: f for a, f in terms.items() if f}, self.constant + other.constant)

    def scaled(self, factor: Dim) -> Form:
        if factor == 0:
            return Form({})
        return Form({a: f * factor for a, f in self.terms.items()}, self.constant * factor)

    def shifted(self, amount: Dim) -> Form:
        return Form(self.terms, self.constant + amount)

    def stride(self, axis: LoopAxis) -> Any:
        return self.terms.get(axis.id, 0)

    def range(self, extents: Mapping[int, Dim]) -> tuple[Any, Any]:
        """Return the smallest and the largest value."""
        low = high = self.constant
        for axis, factor in self.terms.items():
            reach = (extents[axis] - 1) * factor
            low, high = (low, high + reach) if factor >= 0 else (low + reach, high)
        return low, high


def form_of(expr: ir.AffineExpr, env: Sequence[Form], extents: Mapping[int, Dim]) -> Form | None:
    """Substitute forms for the dims of an affine expression; None if a division remains."""
    extent_of = [extents[axis] for axis in range(len(extents))]
    dims = [Linear({axis: factor for axis, factor in form.terms.items()}, form.constant) for form in env]
    made = read_expression(expr, dims, extent_of)
    if made.divisions:
        return None
    return Form({term: factor for term, factor in made.terms.items() if isinstance(term, int)}, made.constant)


def moving(map_: Any) -> set[int]:
    """Return the dims that an affine map depends on."""

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


def row_major(dims: Sequence[Form], shape: Sequence[Dim]) -> Form:
    """Return the position of an element with these indices in a contiguous buffer."""
    position = Form({})
    stride: Dim = 1
    for index, size in reversed(list(zip(dims, shape, strict=True))):
        position = position + index.scaled(stride)
        stride *= size
    return position


def fuse(
    axes: Sequence[LoopAxis], forms: Sequence[Form], alone: Collection[int] = ()
) -> tuple[list[LoopAxis], list[Form]]:
    """Fuse adjacent axes (outer, inner) that every form walks as one; the inner axis stands for both.

    Axes whose ids are in `alone` are not fused.
    """
    merged: list[LoopAxis] = []
    current = list(forms)
    for axis in axes:
        outer = merged[-1] if merged else None
        joins = outer is not None and outer.id not in alone and axis.id not in alone
        if joins and outer is not None and all(f.stride(outer) == f.stride(axis) * axis.extent for f in current):
            gone = outer.id
            current = [Form({a: f for a, f in form.terms.items() if a != gone}, form.constant) for form in current]
            merged[-1] = LoopAxis(axis.id, outer.extent * axis.extent, axis.reduce)
        else:
            merged.append(axis)
    return merged, current
