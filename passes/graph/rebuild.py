"""Copies of an operation on other operands and with another shape of its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import DialectOp, class_of
from mirlo.dialects.core.sharding import ShardingRule
from mirlo.dialects.core.types import TensorType


def rebuilt(
    op: ir.Operation, operands: list[ir.Value], rule: ShardingRule, shape: tuple[Dim, ...] | None = None
) -> list[ir.Value]:
    """Return the results of an operation on other operands, with this shape of its result, at the insertion point."""
    cls: type[DialectOp] = class_of(op)
    arguments, attributes = arguments_with(op, operands, rule, shape)
    return list(cls.build(*arguments, **attributes).operation.results)


def arguments_with(
    op: ir.Operation, operands: Sequence[ir.Value | TensorType], rule: ShardingRule, shape: tuple[Dim, ...] | None
) -> tuple[list[Any], dict[str, Any]]:
    """Return an operation's operands with other values or types, and its attributes with another shape."""
    layout = class_of(op)._operand_layout
    attributes = op.opview.attribute_values()
    if rule.shape and shape is not None:
        attributes[rule.shape] = shape
    return [layout.pick(field_, op, operands) for field_ in layout.fields], attributes
