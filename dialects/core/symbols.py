"""Names of symbols: of functions, modules and globals."""

from __future__ import annotations

from mirlo.dialects.bindings import ir

SYMBOL = "sym_name"
"""The attribute that holds the name."""


def symbol_name(op: ir.OpView | ir.Operation | ir.Module) -> str:
    """Return the name of an operation that defines a symbol, or '' if it has none."""
    attributes = op.operation.attributes
    return ir.StringAttr(attributes[SYMBOL]).value if SYMBOL in attributes else ""


def rename_symbol(op: ir.OpView | ir.Operation, name: str) -> None:
    """Set the name of an operation that defines a symbol; its uses stay as they are."""
    op.operation.attributes[SYMBOL] = ir.StringAttr.get(name)
