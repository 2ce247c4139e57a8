"""Simplifications of operators that only move or reshape elements."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.rules import Decline, decline, simplify


@simplify("relax.expand_dims", "relax.squeeze")
def unit_dims_as_reshape(op: ir.OpView, b: Rewriter) -> ir.Value:
    """Replace changes of unit dims by reshapes, the canonical form."""
    return b.emit(OPS["reshape"], op.x, shape=kind_of(op.output).shape)


@simplify("relax.reshape")
def identity_reshape(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Remove a reshape to the shape of its operand."""
    return op.x if op.x.type == op.output.type else decline("the shape changes")


@simplify("relax.reshape", producers=["relax.reshape"])
def reshape_of_reshape(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Keep the last of two consecutive reshapes."""
    inner = defining(op.x, "relax.reshape")
    if inner is None:
        return decline("the operand is not a reshape")
    return b.emit(OPS["reshape"], inner.x, shape=op.shape)


@simplify("relax.permute")
def identity_permute(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Remove an identity permute."""
    return op.x if tuple(op.axes) == tuple(range(len(op.axes))) else decline("the order changes")


@simplify("relax.permute", producers=["relax.permute"])
def permute_of_permute(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Merge two consecutive permutes."""
    inner = defining(op.x, "relax.permute")
    if inner is None:
        return decline("the operand is not a permute")
    return b.emit(OPS["permute"], inner.x, axes=[inner.axes[axis] for axis in op.axes])


@simplify("relax.permute")
def permute_of_unit_dims(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Replace a permute that keeps the order of all dims larger than 1 by a reshape."""
    shape = kind_of(op.x).shape
    order = [axis for axis in op.axes if shape[axis] != 1]
    if order != sorted(order):
        return decline("elements move")
    return b.emit(OPS["reshape"], op.x, shape=kind_of(op.output).shape)


@simplify("relax.expand", "relax.tile", "relax.strided_slice", "relax.concat", "relax.pad")
def same_type(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Remove operators that return their single operand."""
    operands = list(op.operation.operands)
    if len(operands) != 1 or operands[0].type != op.output.type:
        return decline("the type changes")
    if op.operation.name == "relax.strided_slice" and any(stride < 0 for stride in op.strides):
        return decline("elements are reversed")
    if op.operation.name == "relax.pad" and any(op.pads):
        return decline("elements move")
    return operands[0]


@simplify("relax.split")
def split_as_slices(op: ir.OpView, b: Rewriter) -> Decline | list[ir.Value]:
    """Replace a split by slices, so that each can be fused with its users."""
    if not all(isinstance(size, int) for size in op.sizes):
        return decline("a piece has a size that is not known")
    axis, begin, slices = op.axis % kind_of(op.x).rank, 0, []
    for size in op.sizes:
        slices.append(b.emit(OPS["strided_slice"], op.x, axes=[axis], begin=[begin], end=[begin + size], strides=[1]))
        begin += size
    return slices


@simplify("relax.reshape", producers=["relax.strided_slice"])
def reshape_of_slice(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Slice after a reshape that divides the sliced axis, if whole parts are sliced: that reshape is free."""
    inner = defining(op.x, "relax.strided_slice")
    if inner is None or len(inner.axes) != 1 or tuple(inner.strides) != (1,):
        return decline("the operand is not a slice along one axis")
    whole, cut, target = kind_of(inner.x), kind_of(op.x), kind_of(op.output)
    axis = inner.axes[0] % whole.rank
    if not (whole.is_static and target.is_static) or target.rank != whole.rank + 1:
        return decline("the reshape does not add one dim to a static shape")
    before, after = cut.static_shape[:axis], cut.static_shape[axis + 1 :]
    piece = target.static_shape[axis + 1]
    if target.shape != (*before, target.shape[axis], piece, *after):
        return decline("the reshape does not cut the axis of the slice")
    total, begin = whole.static_shape[axis], range(whole.static_shape[axis])[slice(inner.begin[0], inner.end[0])].start
    if piece == 0 or total % piece or begin % piece:
        return decline("the slice does not begin at the start of an operand", begin=begin, piece=piece)
    pieces = b.emit(OPS["reshape"], inner.x, shape=(*before, total // piece, piece, *after))
    first, count = begin // piece, target.static_shape[axis]
    return b.emit(OPS["strided_slice"], pieces, axes=[axis], begin=[first], end=[first + count], strides=[1])
