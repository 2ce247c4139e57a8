"""What changes the layout of data: convolutions, and pools after them. Permutes made here are marked `relax.layout`."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of
from mirlo.passes.rules import decline, layout

MARK = "relax.layout"


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


def layout_permute(value: Any, b: Rewriter) -> Any | None:
    """The marked permute that makes this value, in the same block, if one does."""
    found = defining(value, "relax.permute")
    return found if found is not None and MARK in found.operation.attributes and beside(value, b) else None


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
    if layout_permute(op.x, b) is None:
        return decline("its input is not channels-last")
    rank = kind_of(op.x).rank
    attributes = {**op.attribute_values(), "data_layout": "N*C"}
    made = b.emit(type(op), permuted(op.x, channels_last(rank), b), **attributes)
    return permuted(made, channels_first(rank), b)


@layout("relax.permute")
def cancel(op: Any, b: Rewriter) -> Any:
    """Two permutes in a row are one; a marked pair that cancels is gone."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is no layout permute")
    axes = [inner.axes[axis] for axis in op.axes]
    if axes == list(range(len(axes))):
        return inner.x
    if MARK in op.operation.attributes:
        return permuted(inner.x, axes, b)
    return b.emit(OPS["permute"], inner.x, axes=axes)
