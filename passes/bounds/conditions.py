"""Facts from comparisons and constant conditions of a kernel about the index expressions that they compare."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.bounds.prover import Prover

INDEX_BITS = 64
SLT, SLE, SGT, SGE = 2, 3, 4, 5
ULT, ULE, UGT, UGE = 6, 7, 8, 9
EQ, NE = 0, 1
_NEGATED = {EQ: NE, NE: EQ, SLT: SGE, SGE: SLT, SGT: SLE, SLE: SGT, ULT: UGE, UGE: ULT, UGT: ULE, ULE: UGT}
_SWAPPED = {SGT: SLT, SGE: SLE, UGT: ULT, UGE: ULE}
"""Predicates written with `<` by swapping the operands."""


def width_of(kind: ir.Type) -> tuple[int, bool]:
    """Return the bits of a scalar or of an element, and whether it is an index."""
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    if isinstance(element, ir.IndexType):
        return INDEX_BITS, True
    return (element.width if isinstance(element, ir.IntegerType) else INDEX_BITS), False


def comparison_facts(
    op: ir.Operation, holds: bool, left: IndexExpr, right: IndexExpr, prover: Prover
) -> Sequence[IndexExpr]:
    """Return expressions that are not negative where `arith.cmpi` of two expressions is true, or where it is false."""
    if width_of(op.operands[0].type)[0] == 1:
        return ()
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    if not holds:
        predicate = _NEGATED[predicate]
    if predicate in _SWAPPED:
        predicate, left, right = _SWAPPED[predicate], right, left
    if predicate == NE:
        return _unequal(left, right, prover)
    if predicate == EQ:
        return [left - right, right - left]
    if predicate in (ULT, ULE):
        if not prover.is_nonnegative(right):
            return ()
        # As unsigned values, negative ones are the largest.
        return [left, right - left - (predicate == ULT)]
    return [right - left - (predicate == SLT)]


def _unequal(left: IndexExpr, right: IndexExpr, prover: Prover) -> Sequence[IndexExpr]:
    for difference in (left - right, right - left):
        if prover.is_nonnegative(difference):
            return [difference - 1]
    return ()


def constant_condition(op: ir.Operation) -> bool | None:
    """Return the value of a constant condition, if all lanes have one."""
    value = op.attributes["value"]
    if isinstance(value, ir.BoolAttr):
        return bool(value.value)
    if isinstance(value, ir.IntegerAttr):
        return bool(value.value)
    if isinstance(value, ir.DenseElementsAttr) and value.is_splat:
        splat = value.get_splat_value()
        return bool(splat.value) if isinstance(splat, (ir.BoolAttr, ir.IntegerAttr)) else None
    return None
