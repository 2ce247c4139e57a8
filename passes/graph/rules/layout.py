"""How operators move through a change of layout. A permute made here carries the attribute `relax.layout`."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.elementwise import BINARY, COMPARE, UNARY, UNARY_TO_BOOL
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.rules import decline, layout

MARK = "relax.layout"
_ACTIVATIONS = [
    *("relu", "leaky_relu", "elu", "selu", "celu", "sigmoid", "hard_sigmoid", "hard_swish", "silu", "mish", "softplus"),
    *("softsign", "thresholded_relu", "shrink", "gelu", "clip"),
]
_ELEMENTWISE = tuple(f"relax.{n}" for n in (*UNARY, *UNARY_TO_BOOL, *_ACTIVATIONS, "cast"))
_BINARY = tuple(f"relax.{n}" for n in (*BINARY, *COMPARE))


def channels_last(rank: int) -> list[int]:
    """Axes of the permute from N, C, spatial to N, spatial, C."""
    return [0, *range(2, rank), 1]


def channels_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def inverse(axes: Any) -> list[int]:
    made = [0] * len(axes)
    for i, axis in enumerate(axes):
        made[axis] = i
    return made


def permuted(value: Any, axes: list[int], b: Rewriter) -> Any:
    """A marked permute of a value."""
    made = b.emit(OPS["permute"], value, axes=axes)
    made.owner.attributes[MARK] = ir.UnitAttr.get()
    return made


def layout_permute(value: Any) -> Any | None:
    """The marked permute that makes this value, if one does."""
    found = defining(value, "relax.permute")
    return found if found is not None and MARK in found.operation.attributes else None


@layout("relax.conv")
def conv_channels_last(op: Any, b: Rewriter) -> Any:
    """Data N*C and kernels *IO: the innermost axis is the one that is vectorized."""
    if op.data_layout != "NC*":
        return decline("it is channels-last already")
    if not is_constant(op.weight):
        return decline("the weight is computed at run time")
    rank = kind_of(op.x).rank
    attributes = {**op.attribute_values(), "data_layout": "N*C", "kernel_layout": "*IO"}
    weight = op.weight
    if op.kernel_layout == "OI*":
        weight = b.emit(OPS["permute"], weight, axes=[*range(2, rank), 1, 0])
    made = b.emit(OPS["conv"], permuted(op.x, channels_last(rank), b), weight, op.bias, **attributes)
    return permuted(made, channels_first(rank), b)


@layout("relax.max_pool", "relax.avg_pool", "relax.lp_pool")
def pool_channels_last(op: Any, b: Rewriter) -> Any:
    """A pool takes its input as the convolution before it left it."""
    if op.data_layout != "NC*":
        return decline("it is channels-last already")
    if layout_permute(op.x) is None:
        return decline("its input is not channels-last")
    rank = kind_of(op.x).rank
    attributes = {**op.attribute_values(), "data_layout": "N*C"}
    made = b.emit(type(op), permuted(op.x, channels_last(rank), b), **attributes)
    return permuted(made, channels_first(rank), b)


@layout("relax.permute")
def cancel(op: Any, b: Rewriter) -> Any:
    """Two permutes in a row are one; a marked pair that cancels is gone."""
    inner = layout_permute(op.x)
    if inner is None:
        return decline("the operand is no layout permute")
    axes = [inner.axes[axis] for axis in op.axes]
    if axes == list(range(len(axes))):
        return inner.x
    if MARK in op.operation.attributes:
        return permuted(inner.x, axes, b)
    return b.emit(OPS["permute"], inner.x, axes=axes)


@layout(*_ELEMENTWISE)
def sink_through_unary(op: Any, b: Rewriter) -> Any:
    """A layout permute moves below what computes element by element."""
    inner = layout_permute(op.x)
    if inner is None:
        return decline("the operand is no layout permute")
    return permuted(b.emit(type(op), inner.x, **op.attribute_values()), list(inner.axes), b)


@layout(*_BINARY)
def sink_through_binary(op: Any, b: Rewriter) -> Any:
    """Both operands permuted alike; or one, the other a constant or smaller, which is permuted back."""
    left, right = layout_permute(op.lhs), layout_permute(op.rhs)
    found = left or right
    if found is None:
        return decline("no operand is a layout permute")
    axes = list(found.axes)
    if kind_of(op.output).rank != len(axes):
        return decline("the rank grows")
    operands = []
    for value, permute in ((op.lhs, left), (op.rhs, right)):
        if permute is not None and list(permute.axes) == axes:
            operands.append(permute.x)
            continue
        kind = kind_of(value)
        if not (is_constant(value) or not kind.is_static or kind.elements < kind_of(found.output).elements):  # type: ignore[operator]
            return decline("the other operand is as large and has another layout")
        operands.append(_permuted_back(value, axes, b))
    return permuted(b.emit(type(op), *operands), axes, b)


def _permuted_back(value: Any, axes: list[int], b: Rewriter) -> Any:
    """A value so that permuting it by `axes` gives it again, with its rank filled up as broadcasting does."""
    kind = kind_of(value)
    if kind.rank == 0 or all(dim == 1 for dim in kind.shape):
        return value
    if kind.rank < len(axes):
        shape = (1,) * (len(axes) - kind.rank) + kind.shape
        value = b.emit(OPS["reshape"], value, shape=shape)
    return permuted(value, inverse(axes), b)


_REDUCTIONS = tuple(
    f"relax.reduce_{n}"
    for n in ["sum", "mean", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp", "sum_square", "any", "all"]
)


@layout(*_REDUCTIONS)
def sink_through_reduction(op: Any, b: Rewriter) -> Any:
    """The reduced axes are renamed; what is left of the permute moves below."""
    inner = layout_permute(op.x)
    if inner is None:
        return decline("the operand is no layout permute")
    rank = len(inner.axes)
    axes = sorted(axis % rank for axis in (op.axes if op.axes is not None else range(rank)))
    made = b.emit(type(op), inner.x, axes=sorted(inner.axes[axis] for axis in axes), keepdims=op.keepdims)
    if op.keepdims:
        return permuted(made, list(inner.axes), b)
    kept = [inner.axes[axis] for axis in range(rank) if axis not in axes]
    order = [sorted(kept).index(axis) for axis in kept]
    return made if order == sorted(order) else permuted(made, order, b)


@layout("relax.concat")
def sink_through_concat(op: Any, b: Rewriter) -> Any:
    """Operands that are all permuted alike are joined before the permute."""
    permutes = [layout_permute(v) for v in op.operation.operands]
    if any(p is None for p in permutes):
        return decline("not every operand is a layout permute")
    axes = list(permutes[0].axes)  # type: ignore[union-attr]
    if any(list(p.axes) != axes for p in permutes):  # type: ignore[union-attr]
        return decline("the operands have different layouts")
    made = b.emit(OPS["concat"], [p.x for p in permutes], axis=axes[op.axis % len(axes)])  # type: ignore[union-attr]
    return permuted(made, axes, b)


@layout("relax.pad")
def sink_through_pad(op: Any, b: Rewriter) -> Any:
    """The amounts are permuted back."""
    inner = layout_permute(op.x)
    if inner is None:
        return decline("the operand is no layout permute")
    rank = len(inner.axes)
    back = inverse(inner.axes)
    pads = [op.pads[i] for i in back] + [op.pads[rank + i] for i in back]
    made = b.emit(OPS["pad"], inner.x, **{**op.attribute_values(), "pads": pads})
    return permuted(made, list(inner.axes), b)
