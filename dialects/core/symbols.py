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


ENTRY = "relax.entry"
"""The unit attribute of the function that is the model."""
ENTRY_NAME = "main"
"""The name that the model's function gets; it identifies the model only where no function has the attribute yet."""


def mark_entry(function: ir.OpView | ir.Operation) -> None:
    """Mark a function as the model."""
    function.operation.attributes[ENTRY] = ir.UnitAttr.get(function.operation.context)


def named_value(name: str, window: int | None = None, role: str | None = None) -> ir.Attribute:
    """Return the attributes of an input or output of the model.

    They are its name, the tokens of the window of a ring, and the role in attention with caches in pages.
    """
    attributes: dict[str, ir.Attribute] = {"relax.name": ir.StringAttr.get(name)}
    if role is not None:
        attributes["relax.pages"] = ir.StringAttr.get(role)
    if window is not None:
        attributes["relax.window"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), window)
    return ir.DictAttr.get(attributes)


def is_entry(function: ir.OpView | ir.Operation) -> bool:
    """Return whether a function is marked as the model."""
    return ENTRY in function.operation.attributes
