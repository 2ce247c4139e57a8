"""Sinking of layout permutes through operators, until they meet others and cancel."""

from __future__ import annotations

import math

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.traits import AxisAttributes, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, kind_of, remade
from mirlo.passes.graph.rules.layout import channels_first, inverse, layout_permute, permuted
from mirlo.passes.rules import Decline, decline, layout


@layout(Trait.ELEMENTWISE, producers=["relax.permute"])
def sink_through_unary(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink a layout permute below an elementwise operator of one operand."""
    if len(op.operation.operands) != 1:
        return decline("it has several operands")
    inner = layout_permute(op.operation.operands[0], b)
    if inner is None:
        return decline("the operand is not a layout permute")
    return permuted(remade(op, [inner.x], b), list(inner.axes), b)


@layout(Trait.ELEMENTWISE, producers=["relax.permute"])
def sink_through_broadcast(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink if all operands are permuted alike, or some, and the others, constants or smaller, are permuted back."""
    values = list(op.operation.operands)
    if len(values) < 2:
        return decline("it has one operand")
    permutes = [layout_permute(value, b) for value in values]
    forced = b.given is not None and b.given.forces
    # Permutes of arguments stay when sinking is forced: it created them, and they leave the function at its boundary.
    # Permutes of constants are folded; sinking them would undo what this rule did before.
    permutation = next(
        (
            p
            for p in permutes
            if p is not None and not is_constant(p.x) and not (forced and isinstance(p.x, ir.BlockArgument))
        ),
        None,
    )
    if permutation is None:
        return decline("no operand is a layout permute")
    axes, whole = list(permutation.axes), kind_of(op.operation.results[0])
    if whole.rank != len(axes):
        return decline("the rank grows")
    for value, permute in zip(values, permutes, strict=True):
        alike = forced or (permute is not None and list(permute.axes) == axes)
        if not (alike or is_constant(value) or _is_broadcast(kind_of(value), whole)):
            return decline("another operand is as large and has another layout")
    operands = [
        p.x if p is not None and list(p.axes) == axes else _permuted_back(value, axes, b)
        for value, p in zip(values, permutes, strict=True)
    ]
    return permuted(remade(op, operands, b), axes, b)


@layout("relax.quantize", "relax.dequantize", producers=["relax.permute"])
def sink_through_quantization(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Sink, and renumber the axis of a vector of scales."""
    inner = layout_permute(op.x, b)
    if inner is None or op.block:
        return decline("the operand is not a layout permute, or scales are of blocks")
    axis = inner.axes[op.axis % len(inner.axes)] if kind_of(op.scale).rank else op.axis
    attributes = {**op.attribute_values(), "axis": axis}
    return permuted(b.emit(class_of(op), inner.x, op.scale, op.zero_point, **attributes), list(inner.axes), b)


def _is_broadcast(kind: TensorType, whole: TensorType) -> bool:
    """Return whether an operand is repeated along a dim of the result: then it has fewer elements."""
    return (1,) * (whole.rank - kind.rank) + kind.shape != whole.shape


def _permuted_back(value: ir.Value, axes: list[int], b: Rewriter) -> ir.Value:
    """Return a value such that permuting it by `axes` restores it, with its rank extended as for broadcasting."""
    kind = kind_of(value)
    if kind.rank == 0 or all(dim == 1 for dim in kind.shape):
        return value
    if kind.rank < len(axes):
        shape = (1,) * (len(axes) - kind.rank) + kind.shape
        value = b.emit(OPS["reshape"], value, shape=shape)
    return permuted(value, inverse(axes), b)


@layout(Trait.AXES, producers=["relax.permute"])
def sink_through_axes(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink below an operator whose attributes name axes, and change those; reductions permute what is left."""
    values = list(op.operation.operands)
    permutes = [layout_permute(value, b) for value in values]
    permutation = permutes[0] if permutes else None
    if permutation is None:
        return decline("the first operand is not a layout permute")
    axes = list(permutation.axes)
    for value, permute in zip(values, permutes, strict=True):
        if permute is None and kind_of(value).rank:
            return decline("not every operand is a layout permute")
        if permute is not None and list(permute.axes) != axes:
            return decline("the operands have different layouts")
    if len(op.operation.results) != 1:
        return decline("it has several results")
    names = class_of(op).AXES
    assert names is not None, "the trait AXES says that it has them"
    changed, reduced = _with_axes(op, names, axes)
    result = remade(op, [value if p is None else p.x for value, p in zip(values, permutes, strict=True)], b, **changed)
    if names.reduces:
        return _permute_remaining(result, permutation, reduced, op.keepdims, b)
    return permuted(result, axes, b)


def _with_axes(op: ir.OpView, names: AxisAttributes, axes: list[int]) -> tuple[dict[str, object], list[int]]:
    """Return the attributes for operands without the permute of these axes, and the axes that are named."""
    rank, back = len(axes), inverse(axes)
    changed: dict[str, object] = {}
    named: list[int] = []
    if names.axis:
        named = [getattr(op, names.axis) % rank]
        changed[names.axis] = axes[named[0]]
    if names.axes:
        declared = getattr(op, names.axes)
        named = [axis % rank for axis in (declared if declared is not None else range(rank))]
        moved = [axes[axis] for axis in named]
        named = sorted(named) if names.reduces else named
        changed[names.axes] = sorted(moved) if names.reduces else moved
    for name in names.per_axis:
        declared = getattr(op, name)
        changed[name] = [declared[i] for i in back] if declared else declared
    for name in names.per_side:
        declared = getattr(op, name)
        changed[name] = [declared[i] for i in back] + [declared[rank + i] for i in back] if declared else declared
    return changed, named


def _permute_remaining(result: ir.Value, inner: ir.OpView, reduced: list[int], keepdims: bool, b: Rewriter) -> ir.Value:
    """Return the result of a reduction, permuted as its dims were before the permute moved."""
    if keepdims:
        return permuted(result, list(inner.axes), b)
    kept = [axis for i, axis in enumerate(inner.axes) if i not in reduced]
    order = [sorted(kept).index(axis) for axis in kept]
    return result if order == sorted(order) else permuted(result, order, b)


@layout("relax.reshape", producers=["relax.permute"])
def sink_through_flatten(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Sink below a reshape that merges the pixels of an image: they merge equally well before the channels."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is not a layout permute")
    rank, source, target = len(inner.axes), kind_of(inner.x), kind_of(op.output)
    if list(inner.axes) != channels_first(rank) or not source.is_static:
        return decline("the permute is another one, or the shape is not known")
    batch, *spatial, channels = source.static_shape
    if target.shape != (batch, channels, math.prod(spatial)) or rank < 4:
        return decline("the reshape does not flatten the pixels", shape=list(target.shape))
    flat = b.emit(OPS["reshape"], inner.x, shape=(batch, math.prod(spatial), channels))
    return permuted(flat, [0, 2, 1], b)
