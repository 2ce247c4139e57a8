"""Sinking of layout permutes through operators, until they meet others and cancel."""

from __future__ import annotations

import math
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.activation import Activation
from mirlo.dialects.relax.elementwise import BINARY, COMPARE, UNARY, UNARY_TO_BOOL
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, kind_of
from mirlo.passes.graph.rules.layout import channels_first, inverse, layout_permute, permuted
from mirlo.passes.rules import Decline, decline, layout

_ELEMENTWISE = (
    *(f"relax.{name}" for name in (*UNARY, *UNARY_TO_BOOL, "cast")),
    *(f"relax.{name}" for name, op in OPS.items() if issubclass(op, Activation)),
)
_BROADCASTING = (*(f"relax.{name}" for name in (*BINARY, *COMPARE)), "relax.where", "relax.prelu")
_REDUCTIONS = tuple(
    f"relax.reduce_{name}" for name in ("sum", "mean", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp",
                                        "sum_square", "any", "all")
)  # fmt: skip


@layout(*_ELEMENTWISE)
def sink_through_unary(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink a layout permute below an elementwise operator."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    return permuted(b.emit(type(op), inner.x, **op.attribute_values()), list(inner.axes), b)


@layout(*_BROADCASTING)
def sink_through_broadcast(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink if all operands are permuted alike, or some, and the others, constants or smaller, are permuted back."""
    values = list(op.operation.operands)
    permutes = [layout_permute(value, b) for value in values]
    forced = b.given is not None and b.given.forces
    # Permutes of arguments stay when sinking is forced: it created them, and they leave the function at its boundary.
    # Permutes of constants are folded; sinking them would undo what this rule did before.
    found = next(
        (
            p
            for p in permutes
            if p is not None and not is_constant(p.x) and not (forced and isinstance(p.x, ir.BlockArgument))
        ),
        None,
    )
    if found is None:
        return decline("no operand is a layout permute")
    axes, whole = list(found.axes), kind_of(op.output)
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
    return permuted(b.emit(type(op), *operands), axes, b)


@layout("relax.quantize", "relax.dequantize")
def sink_through_quantization(op: ir.OpView, b: Rewriter) -> Any:
    """Sink, and renumber the axis of a vector of scales."""
    inner = layout_permute(op.x, b)
    if inner is None or op.block:
        return decline("the operand is no layout permute, or scales are of blocks")
    axis = inner.axes[op.axis % len(inner.axes)] if kind_of(op.scale).rank else op.axis
    attributes = {**op.attribute_values(), "axis": axis}
    return permuted(b.emit(type(op), inner.x, op.scale, op.zero_point, **attributes), list(inner.axes), b)


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


@layout(*_REDUCTIONS)
def sink_through_reduction(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink what remains of the permute, and renumber the reduced axes."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    rank = len(inner.axes)
    axes = sorted(axis % rank for axis in (op.axes if op.axes is not None else range(rank)))
    made = b.emit(type(op), inner.x, axes=sorted(inner.axes[axis] for axis in axes), keepdims=op.keepdims)
    return _permute_remaining(made, inner, axes, op.keepdims, b)


@layout("relax.argmax", "relax.argmin")
def sink_through_arg_reduction(op: ir.OpView, b: Rewriter) -> Any:
    """Sink what remains of the permute, and renumber the axis."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    axis = op.axis % len(inner.axes)
    made = b.emit(type(op), inner.x, **{**op.attribute_values(), "axis": inner.axes[axis]})
    return _permute_remaining(made, inner, [axis], op.keepdims, b)


def _permute_remaining(made: ir.Value, inner: ir.OpView, reduced: list[int], keepdims: bool, b: Rewriter) -> ir.Value:
    """Return the result of a reduction with its dims in their order without the permute."""
    if keepdims:
        return permuted(made, list(inner.axes), b)
    kept = [axis for i, axis in enumerate(inner.axes) if i not in reduced]
    order = [sorted(kept).index(axis) for axis in kept]
    return made if order == sorted(order) else permuted(made, order, b)


@layout("relax.softmax", "relax.log_softmax", "relax.hardmax")
def sink_through_axis(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink, and renumber the axis."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    made = b.emit(type(op), inner.x, axis=inner.axes[op.axis % len(inner.axes)])
    return permuted(made, list(inner.axes), b)


@layout("relax.strided_slice")
def sink_through_slice(op: ir.OpView, b: Rewriter) -> Any:
    """Sink, and renumber the axes of the slice."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    axes = [inner.axes[axis % len(inner.axes)] for axis in op.axes]
    made = b.emit(OPS["strided_slice"], inner.x, **{**op.attribute_values(), "axes": axes})
    return permuted(made, list(inner.axes), b)


@layout("relax.reshape")
def sink_through_flatten(op: ir.OpView, b: Rewriter) -> Any:
    """Sink below a reshape that merges the pixels of an image: they merge equally well before the channels."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    rank, source, target = len(inner.axes), kind_of(inner.x), kind_of(op.output)
    if list(inner.axes) != channels_first(rank) or not source.is_static:
        return decline("the permute is another one, or the shape is not known")
    batch, *spatial, channels = source.static_shape
    if target.shape != (batch, channels, math.prod(spatial)) or rank < 4:
        return decline("the reshape does not flatten the pixels", shape=list(target.shape))
    flat = b.emit(OPS["reshape"], inner.x, shape=(batch, math.prod(spatial), channels))
    return permuted(flat, [0, 2, 1], b)


@layout("relax.resize")
def sink_through_resize(op: ir.OpView, b: Rewriter) -> Any:
    """Sink, and permute shape, scales and region back."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    back, rank = inverse(inner.axes), len(inner.axes)
    changed: dict[str, Any] = {"shape": [op.shape[i] for i in back]}
    if op.scales:
        changed["scales"] = [op.scales[i] for i in back]
    if op.roi:
        changed["roi"] = [op.roi[i] for i in back] + [op.roi[rank + i] for i in back]
    made = b.emit(OPS["resize"], inner.x, **{**op.attribute_values(), **changed})
    return permuted(made, list(inner.axes), b)


@layout("relax.concat")
def sink_through_concat(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink below a concatenation of operands that are all permuted alike."""
    permutes = [layout_permute(v, b) for v in op.operation.operands]
    if any(p is None for p in permutes):
        return decline("not every operand is a layout permute")
    axes = list(permutes[0].axes)  # type: ignore[union-attr]
    if any(list(p.axes) != axes for p in permutes):  # type: ignore[union-attr]
        return decline("the operands have different layouts")
    made = b.emit(OPS["concat"], [p.x for p in permutes], axis=axes[op.axis % len(axes)])  # type: ignore[union-attr]
    return permuted(made, axes, b)


@layout("relax.pad")
def sink_through_pad(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Sink, and permute the padding back."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    rank = len(inner.axes)
    back = inverse(inner.axes)
    pads = [op.pads[i] for i in back] + [op.pads[rank + i] for i in back]
    made = b.emit(OPS["pad"], inner.x, **{**op.attribute_values(), "pads": pads})
    return permuted(made, list(inner.axes), b)
