"""Positions from data in kernels whose `index` has 32 bits: a number out of range becomes the nearest index.

Kernels compare positions with sizes as `index`. Without the low bits alone, 2^32 would be position 0. The sizes of such
kernels are below 2^31, so the nearest number that fits is outside of an axis if the number is.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.calls import find_all
from mirlo.passes.lower.values import Num, ValueBuilder

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


def saturate_indices(root: ir.Module | ir.OpView | ir.Operation) -> None:
    """Limit every number of 64 bits that becomes an `index`."""
    for name, operations in find_all(root, "arith.index_cast", "arith.index_castui").items():
        for op in operations:
            (operand,) = op.operands
            kind = operand.type
            vector = kind if isinstance(kind, ir.VectorType) else None
            if str(kind.element_type if vector is not None else kind) != "i64" or _is_index(operand):
                continue
            b = ValueBuilder(None if vector is None else tuple(vector.shape))
            with ir.InsertionPoint(op), op.location:
                op.operands[0] = _limited(b, b.num(operand), name.endswith("ui")).value


def _is_index(value: ir.Value) -> bool:
    """Return whether a number was an `index` before, and so is in range."""
    owner = value.owner
    return isinstance(owner, ir.Operation | ir.OpView) and owner.name in ("arith.index_cast", "arith.index_castui")


def _limited(b: ValueBuilder, number: Num, is_unsigned: bool) -> Num:
    most = b.constant("i64", _MOST)
    if is_unsigned:
        return b.emit("arith.minui", "i64", number, most)
    return b.emit("arith.maxsi", "i64", b.emit("arith.minsi", "i64", number, most), b.constant("i64", _LEAST))
