"""Axes of blocks, and index expressions over them: positions in memory and indices of dims."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, contiguous_strides, flatten
from mirlo.dialects.tir.affine import read_affine
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class BlockAxis:
    """An axis of a block's domain, a part of one, or several fused axes; loops are made of it by a schedule."""

    id: int
    extent: Any
    """An integer, or a dynamic dim."""
    reduce: bool
    fused: tuple[int, ...] = ()
    """The ids of the axes that it is fused of, outermost first."""

    @property
    def parts(self) -> tuple[int, ...]:
        """Return the ids of the axes that it consists of, outermost first."""
        return self.fused or (self.id,)


def form_of(expr: ir.AffineExpr, env: Sequence[IndexExpr], extents: Mapping[int, Dim]) -> IndexExpr | None:
    """Substitute expressions for the dims of an affine expression; None if a division remains."""
    form = read_affine(expr, env, extents)
    return None if form.divisions else form


def moving(map_: ir.AffineMap) -> set[int]:
    """Return the dims that an affine map depends on."""

    def of(expr: ir.AffineExpr) -> set[int]:
        if isinstance(expr, ir.AffineDimExpr):
            return {expr.position}
        return set() if isinstance(expr, ir.AffineConstantExpr) else of(expr.lhs) | of(expr.rhs)

    return set().union(*map(of, map_.results))


def divisors(expr: ir.AffineExpr, visit: Callable[[int, int], None]) -> None:
    """Call `visit(dim, divisor)` for each `dim floordiv n` and `dim mod n` in an affine expression."""
    if isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr)):
        return
    is_division = isinstance(expr, (ir.AffineFloorDivExpr, ir.AffineModExpr, ir.AffineCeilDivExpr))
    if is_division and isinstance(expr.lhs, ir.AffineDimExpr) and isinstance(expr.rhs, ir.AffineConstantExpr):
        visit(expr.lhs.position, expr.rhs.value)
    divisors(expr.lhs, visit)
    divisors(expr.rhs, visit)


def row_major(dims: Sequence[IndexExpr], shape: Sequence[Dim]) -> IndexExpr:
    """Return the position of an element with these indices in a contiguous buffer."""
    return flatten(dims, contiguous_strides(shape))


def fuse(
    axes: Sequence[BlockAxis], forms: Sequence[IndexExpr], alone: Collection[int] = ()
) -> tuple[list[BlockAxis], list[IndexExpr]]:
    """Fuse adjacent axes (outer, inner) that are contiguous in every form; the inner axis stands for both.

    Axes whose ids are in `alone` are not fused.
    """
    merged: list[BlockAxis] = []
    current = list(forms)
    for axis in axes:
        outer = merged[-1] if merged else None
        joins = outer is not None and outer.id not in alone and axis.id not in alone
        if joins and outer is not None and all(f.stride(outer) == f.stride(axis) * axis.extent for f in current):
            gone = outer.id
            current = [IndexExpr({a: f for a, f in form.terms.items() if a != gone}, form.constant) for form in current]
            merged[-1] = BlockAxis(axis.id, outer.extent * axis.extent, axis.reduce, (*outer.parts, *axis.parts))
        else:
            merged.append(axis)
    return merged, current
