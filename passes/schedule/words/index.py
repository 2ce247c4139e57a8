"""Emission of index expressions over named loops."""

from __future__ import annotations

from collections.abc import Mapping

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, Remainder, number
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.scalars import create

LoopValue = ir.Value | int
"""The index of a loop: an integer in an iteration that is emitted by itself."""


def with_numbers(index: IndexExpr, values: Mapping[str, LoopValue]) -> IndexExpr:
    """Substitute the loops whose index is an integer."""
    known = {name: number(value) for name, value in values.items() if isinstance(value, int)}
    made: IndexExpr = index.replace(known) if known else index
    return made


def emit_index(expression: IndexExpr, values: Mapping[str, LoopValue]) -> Value:
    """Emit an index expression over loops with these values."""
    return _emit(with_numbers(expression, values), values)


def _emit(expression: IndexExpr, values: Mapping[str, LoopValue]) -> Value:
    terms, constant = expression.terms_with_remainders()
    total: Value | None = None
    for atom, count in terms:
        value = _emit_division(atom, values) if isinstance(atom, (FloorDiv, Remainder)) else _loop(values, str(atom))
        value = value * count
        total = value if total is None else total + value
    if total is None:
        return index(constant)
    return total + constant


def _loop(values: Mapping[str, LoopValue], name: str) -> Value:
    found = values[name]
    assert not isinstance(found, int), "integers are substituted"
    return Value(found)


def _emit_division(atom: FloorDiv | Remainder, values: Mapping[str, LoopValue]) -> Value:
    kind = ir.IndexType.get()
    # A divisor is the extent of a loop around this: it is not zero where it divides.
    value, divisor = _emit(atom.inner, values), index(atom.divisor)
    terms, constant = atom.inner.terms_with_remainders()
    is_positive = all(D.is_certain(lambda part=part: part >= 0) for part in (constant, *(count for _, count in terms)))  # type: ignore[misc]
    if isinstance(atom, FloorDiv):
        return create("arith.divui" if is_positive else "arith.floordivsi", kind, value, divisor)
    if is_positive:
        return create("arith.remui", kind, value, divisor)
    quotient = create("arith.floordivsi", kind, value, divisor)
    return value - quotient * divisor
