"""Sorting, and the largest elements."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Tensor, UnsupportedOperation, ir
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.regions import sort_keys
from mirlo_stablehlo.registry import converter


@converter("sort")
def sort(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `sort`: by each key, the least significant first, since sorting is stable."""
    axis = op.integer("dimension", -1)
    keys = sort_keys(op.op.regions[0].blocks[0])
    if keys is None:
        raise UnsupportedOperation("compares by another function than < or > of one or several operands")
    if len(op.operands) == 1:
        return [op.emit("sort", op.operands[0], axis=axis, descending=keys[0].descending)]
    order: Tensor | None = None
    for key in reversed(keys):
        operand = op.operands[key.operand]
        key_values = operand if order is None else _taken(op, operand, order, axis)
        step = op.emit("argsort", key_values, axis=axis, descending=key.descending)
        order = step if order is None else _taken(op, order, step, axis)
    assert order is not None
    return [_taken(op, operand, order, axis) for operand in op.operands]


def _taken(op: StablehloOperation, x: Tensor, order: Tensor, axis: int) -> Tensor:
    return x.gather_elements(order, axis=axis)


@converter("chlo.top_k")
def top_k(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `top_k` along the last axis."""
    attributes = op.op.attributes
    held = ir.DictAttr(attributes["composite_attributes"]) if op.has("composite_attributes") else attributes
    values, indices = op.emit_all("topk", op.operands[0], k=ir.IntegerAttr(held["k"]).value)
    return [values, indices.cast(op.declared(1).dtype)]
