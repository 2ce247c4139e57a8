"""Affine expressions of MLIR, read into index expressions and made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import (
    Extents,
    FloorDiv,
    IndexExpr,
    ValueRange,
    ceil_divide,
    floor_divide,
    loop_index,
    modulo,
    number,
)


def read_affine(expr: ir.AffineExpr, dims: Sequence[IndexExpr], extents: Extents | None = None) -> IndexExpr:
    """Return the value of an expression whose dims have these values; `extents` are those of their variables."""
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return number(expr.value)
    left, right = read_affine(expr.lhs, dims, extents), read_affine(expr.rhs, dims, extents)
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        result: IndexExpr = left * right.constant if right.is_constant else right * left.constant
        return result
    if isinstance(expr, ir.AffineFloorDivExpr):
        return floor_divide(left, right.constant, extents)
    return (modulo if isinstance(expr, ir.AffineModExpr) else ceil_divide)(left, right.constant, extents)


def read_map(map_: ir.AffineMap, domain: Sequence[Dim]) -> list[IndexExpr]:
    """Return the results of an affine map whose dims are loops of these extents."""
    dims = [loop_index(i) for i in range(len(domain))]
    return [read_affine(expr, dims, domain) for expr in map_.results]


def affine_range(expr: ir.AffineExpr, extents: Sequence[Dim]) -> ValueRange | None:
    """Return the exact range of an expression for indices from 0 to these extents, or None if it is unknown."""
    if isinstance(expr, ir.AffineDimExpr):
        extent = extents[expr.position]
        return ValueRange(0, extent - 1) if isinstance(extent, int) and extent > 0 else None
    if not _is_readable(expr):
        return None
    bounds = read_affine(expr, [loop_index(i) for i in range(len(extents))], extents).value_range(extents)
    return bounds if bounds.is_exact else None


def _is_readable(expr: ir.AffineExpr) -> bool:
    """Return whether an expression of a file has no symbols, no products of dims and no divisors below 1."""
    if isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr)):
        return True
    if isinstance(expr, ir.AffineSymbolExpr) or not _is_readable(expr.lhs):
        return False
    if isinstance(expr, ir.AffineAddExpr):
        return _is_readable(expr.rhs)
    return isinstance(expr.rhs, ir.AffineConstantExpr) and (isinstance(expr, ir.AffineMulExpr) or expr.rhs.value > 0)


def to_affine(value: IndexExpr, positions: Mapping[int, int]) -> ir.AffineExpr:
    """Return the affine expression in which the variables are the dims at these positions."""
    result: ir.AffineExpr = ir.AffineExpr.get_constant(_number(value.constant))
    for term, coefficient in value.terms.items():
        quotient: ir.AffineExpr
        if isinstance(term, FloorDiv):
            quotient = ir.AffineExpr.get_floor_div(to_affine(term.inner, positions), _number(term.divisor))
        else:
            quotient = ir.AffineExpr.get_dim(positions[term])
        result = result + quotient * _number(coefficient)
    return result


def _number(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise TypeError(f"an affine expression has no dynamic dims, found {dim}")
    return dim
