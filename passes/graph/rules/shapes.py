"""Simplifications of operators that only move or rename elements."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.rules import decline, simplify


@simplify("relax.expand_dims", "relax.squeeze")
def unit_dims_as_reshape(op: Any, b: Rewriter) -> Any:
    """One operator for all changes of shape."""
    return b.emit(OPS["reshape"], op.x, shape=kind_of(op.output).shape)


@simplify("relax.reshape")
def useless_reshape(op: Any, b: Rewriter) -> Any:
    return op.x if op.x.type == op.output.type else decline("the shape changes")


@simplify("relax.reshape")
def reshape_of_reshape(op: Any, b: Rewriter) -> Any:
    inner = defining(op.x, "relax.reshape")
    if inner is None:
        return decline("the operand is no reshape")
    return b.emit(OPS["reshape"], inner.x, shape=op.shape)


@simplify("relax.permute")
def useless_permute(op: Any, b: Rewriter) -> Any:
    return op.x if tuple(op.axes) == tuple(range(len(op.axes))) else decline("the order changes")


@simplify("relax.permute")
def permute_of_permute(op: Any, b: Rewriter) -> Any:
    inner = defining(op.x, "relax.permute")
    if inner is None:
        return decline("the operand is no permute")
    return b.emit(OPS["permute"], inner.x, axes=[inner.axes[axis] for axis in op.axes])


@simplify("relax.permute")
def permute_of_unit_dims(op: Any, b: Rewriter) -> Any:
    """A permute that keeps the order of all dims larger than 1 moves nothing."""
    shape = kind_of(op.x).shape
    order = [axis for axis in op.axes if shape[axis] != 1]
    if order != sorted(order):
        return decline("elements move")
    return b.emit(OPS["reshape"], op.x, shape=kind_of(op.output).shape)


@simplify("relax.expand", "relax.tile", "relax.strided_slice", "relax.concat", "relax.pad")
def same_type(op: Any, b: Rewriter) -> Any:
    """Operators that leave a single operand as it is."""
    operands = list(op.operation.operands)
    if len(operands) != 1 or operands[0].type != op.output.type:
        return decline("the type changes")
    if op.operation.name == "relax.strided_slice" and any(stride < 0 for stride in op.strides):
        return decline("elements are reversed")
    if op.operation.name == "relax.pad" and any(op.pads):
        return decline("elements move")
    return operands[0]
