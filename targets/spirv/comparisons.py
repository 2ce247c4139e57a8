"""Comparisons of extended integers with constants, at the integers' own width.

Mesa's software device gets an i32 that is extended by its sign and compared with a constant of 64 bits wrong: less is
never true, and greater always. An index is such an i32. Fewer bits are faster on other devices, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import INT_PREDICATES, Value, emit_constant, integer_of
from mirlo.passes.lower.calls import find

_INDEX_BITS = 32
"""The bits of an index on a device."""
_NAMES = {number: name for name, number in INT_PREDICATES.items()}
_SIDES = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ult": "ugt", "ugt": "ult", "ule": "uge", "uge": "ule"}
"""The predicate of the same comparison with exchanged operands, where it is another one."""
_TRUTH: dict[str, Callable[[int, int], bool]] = {
    name: getattr(operator, name.removeprefix("u")) for name in INT_PREDICATES
}
_EXTENSIONS = {"arith.extsi": True, "arith.extui": False, "arith.index_cast": True, "arith.index_castui": False}
"""Whether an extension is by the sign."""


def compare_unextended(root: ir.Module | ir.OpView) -> None:
    """Replace comparisons of extended integers with constants."""
    for op in find(root, "arith.cmpi"):
        left, right = op.operands
        predicate = _NAMES[ir.IntegerAttr(op.attributes["predicate"]).value]
        if integer_of(left) is not None:
            left, right, predicate = right, left, _SIDES.get(predicate, predicate)
        constant, narrow = integer_of(right), _extended(left)
        if constant is None or narrow is None:
            continue
        with ir.InsertionPoint(op), op.location:
            result = _compared(predicate, Value(narrow), _EXTENSIONS[left.owner.name], constant, left.type.width)
        op.results[0].replace_all_uses_with(result)
        op.erase()


def _extended(value: ir.Value) -> ir.Value | None:
    """Return the integer that a scalar of more bits was extended from."""
    if not isinstance(value.type, ir.IntegerType) or isinstance(value.owner, ir.Block):
        return None
    if value.owner.name not in _EXTENSIONS:
        return None
    narrow: ir.Value = value.owner.operands[0]
    return narrow if _bits(narrow) < value.type.width else None


def _bits(value: ir.Value) -> int:
    return value.type.width if isinstance(value.type, ir.IntegerType) else _INDEX_BITS


def _compared(predicate: str, x: Value, is_signed: bool, constant: int, width: int) -> Value:
    """Return the comparison of x, extended to a width, with a constant of this width."""
    bits = _bits(x)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    if low <= constant <= high:
        # Extension keeps the order of unsigned numbers too; extended by zero, all are positive.
        at_width = predicate if is_signed or predicate in ("eq", "ne") else f"u{predicate.removeprefix('u')}"
        return x.compare(at_width, emit_constant(constant, x.type))
    positive, negative = (_is_true(predicate, each, constant, width) for each in (0, -1 if is_signed else 0))
    flag = ir.IntegerType.get_signless(1)
    return emit_constant(positive, flag) if positive == negative else x.compare("ge" if positive else "lt", 0)


def _is_true(predicate: str, x: int, y: int, width: int) -> bool:
    """Return whether a comparison is true: the one of every x of this sign, as y is beyond all of them."""
    modulus = 1 << width if predicate.startswith("u") else 0
    return _TRUTH[predicate](*(each % modulus if modulus else each for each in (x, y)))
