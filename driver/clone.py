"""Copies of modules."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import attributes_of


def clone_module(module: ir.Module) -> ir.Module:
    """Return a copy of a module, with its attributes."""
    with module.context:
        result = ir.Module.create(module.operation.location)
        for name, attribute in attributes_of(module.operation).items():
            result.operation.attributes[name] = attribute
        for op in module.body.operations:
            op.operation.clone(ip=ir.InsertionPoint(result.body))
    return result
