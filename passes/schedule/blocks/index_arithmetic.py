"""Index operations in the bodies of blocks, as index expressions."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import Extents, IndexExpr, floor_divide, larger

EXTREMES = ("arith.maxsi", "arith.minsi")


def arithmetic(name: str, a: IndexExpr, b: IndexExpr, extents: Extents) -> IndexExpr | None:
    """Return the result of an index operation if it is an index expression.

    For min and max this is so only if one operand always wins.
    """
    if name == "arith.addi":
        return a + b
    if name == "arith.subi":
        return a - b
    if name == "arith.muli" and (a.is_constant or b.is_constant):
        result: IndexExpr = a * b.constant if b.is_constant else b * a.constant
        return result
    if name == "arith.floordivsi" and b.is_constant and D.is_certain(lambda: b.constant > 0):
        return floor_divide(a, b.constant, extents)
    if name in EXTREMES:
        maximum = larger(a, b, extents)
        return maximum if maximum is None or name == "arith.maxsi" else b if maximum is a else a
    return None
