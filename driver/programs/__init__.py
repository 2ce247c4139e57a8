"""Models that work on objects: cut into host functions and parts that are compiled."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import find_named, with_nested
from mirlo.dialects.relax.base import is_object
from mirlo.passes.entry import entry_or_none

CALL = "relax.call_packed"


def needs_program(module: ir.Module) -> bool:
    """Return whether a module calls host functions, or takes or returns objects."""
    main = main_of(module)
    if main is None:
        return False
    kind = main.type
    return any(map(is_object, [*kind.inputs, *kind.results])) or is_host(main.operation)


def main_of(module: ir.Module) -> ir.OpView | None:
    """Return the function of the model."""
    entry = entry_or_none(module)
    return None if entry is None else entry.opview


def is_host(op: ir.Operation) -> bool:
    """Return whether an operation, or one in it, calls a host function, or takes or returns objects."""
    if op.name == CALL or find_named(op, (CALL,)):
        return True
    types = {value.type for each in with_nested(op) for value in (*each.operands, *each.results)}
    return any(map(is_object, types))
