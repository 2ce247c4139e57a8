"""Pieces of a graph taken to a module of their own: what measurements of single operators and kernels do."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir


def clone_with(op: Any, operands: list[Any]) -> Any:
    """Return a copy of an operation with these operands."""
    attributes = {named.name: named.attr for named in (op.attributes[i] for i in range(len(op.attributes)))}
    return ir.Operation.create(op.name, [value.type for value in op.results], operands, attributes)
