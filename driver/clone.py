"""Pieces of a graph taken to a module of their own: what measurements of single operators and kernels do."""

from __future__ import annotations

from mirlo.dialects.bindings import ir


def clone_with(op: ir.Operation | ir.OpView, operands: list[ir.Value]) -> ir.Operation:
    """Return a copy of an operation with these operands."""
    attributes = {named.name: named.attr for named in (op.attributes[i] for i in range(len(op.attributes)))}
    return ir.Operation.create(op.name, [value.type for value in op.results], operands, attributes)


def clone_module(module: ir.Module) -> ir.Module:
    """Return a copy of a module, with its attributes."""
    with module.context:
        made = ir.Module.create(module.operation.location)
        attributes = module.operation.attributes
        for named in (attributes[i] for i in range(len(attributes))):
            made.operation.attributes[named.name] = named.attr
        for op in module.body.operations:
            op.operation.clone(ip=ir.InsertionPoint(made.body))
    return made
