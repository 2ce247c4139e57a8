"""Emission of index expressions over named loops."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, Remainder
from mirlo.dialects.tir.scalars import Value, create, emit_constant


def emit_index(index: IndexExpr, values: Mapping[str, ir.Value]) -> ir.Value:
    """Emit an index expression over loops with these values."""
    kind = ir.IndexType.get()
    terms, constant = index.terms_with_remainders()
    total = None
    for atom, count in terms:
        value = _emit_division(atom, values) if isinstance(atom, (FloorDiv, Remainder)) else Value(values[str(atom)])
        if count != 1:
            value = value * _number(count)
        total = value if total is None else total + value
    if total is None:
        return emit_constant(_number(constant), kind)
    return total + _number(constant) if constant else total


def _number(value: Dim) -> int:
    assert isinstance(value, int), "words are about static shapes"
    return value


def _emit_division(atom: FloorDiv | Remainder, values: Mapping[str, ir.Value]) -> Value:
    kind = ir.IndexType.get()
    value, divisor = Value(emit_index(atom.inner, values)), emit_constant(_number(atom.divisor), kind)
    terms, constant = atom.inner.terms_with_remainders()
    may_be_negative = constant < 0 or any(count < 0 for _, count in terms)
    if isinstance(atom, FloorDiv):
        return create("arith.floordivsi" if may_be_negative else "arith.divui", kind, value, divisor)
    if not may_be_negative:
        return create("arith.remui", kind, value, divisor)
    quotient = create("arith.floordivsi", kind, value, divisor)
    return value - quotient * divisor
