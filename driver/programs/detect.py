"""Whether a module works on more than tensors."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.relax.base import is_object

CALL = "relax.call_packed"


def needs_program(module: ir.Module) -> bool:
    """Return whether a module calls host functions, or takes or returns objects."""
    main = main_of(module)
    if main is None:
        return False
    kind = main.type
    return any(map(is_object, [*kind.inputs, *kind.results])) or is_host(main.operation)


def main_of(module: ir.Module) -> ir.OpView | None:
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    return next((op for op in functions if symbol_name(op) == "main"), None)


def is_host(op: ir.Operation) -> bool:
    if op.name == CALL or any(is_object(value.type) for value in (*op.operands, *op.results)):
        return True
    return any(
        is_host(inner.operation) for region in op.regions for block in region.blocks for inner in block.operations
    )
