"""Layout changes of convolutions and the pools after them. Permutes emitted here are marked `relax.layout`."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.traits import Trait, traits_of
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer import channel_axis, kernel_permutation, spatial_axes
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.requested_layouts import CHANNELS_LAST, Layouts
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, remade_all
from mirlo.passes.rules import Decline, decline, layout

MARK = "relax.layout"


def channels_last(rank: int) -> list[int]:
    """Return the axes of the permute from N, C, spatial to N, spatial, C."""
    return [0, *range(2, rank), 1]


def channels_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def inverse(axes: list[int]) -> list[int]:
    result = [0] * len(axes)
    for i, axis in enumerate(axes):
        result[axis] = i
    return result


def permuted(value: ir.Value, axes: list[int], b: Rewriter) -> ir.Value:
    """Return a marked permute of a value."""
    result = b.emit(OPS["permute"], value, axes=axes)
    result.owner.attributes[MARK] = ir.UnitAttr.get()
    return result


def layout_permute(value: ir.Value, b: Rewriter) -> ir.OpView | None:
    """Return the marked permute in the same block that defines this value, if any."""
    producer = defining(value, "relax.permute")
    return producer if producer is not None and MARK in producer.operation.attributes and beside(value, b) else None


def requested_layouts(op: ir.OpView, b: Rewriter) -> Layouts | Decline:
    """Return the layouts requested for an operation."""
    return (b.given or CHANNELS_LAST).of(op)


def in_layout(value: ir.Value, current: str, data: str, b: Rewriter) -> ir.Value:
    """Convert data from one layout to another."""
    rank = kind_of(value).rank
    axes = channels_last(rank) if data == "N*C" else channels_first(rank)
    return value if current == data else permuted(value, axes, b)


@layout("relax.conv")
def conv_in_layout(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Convert to data N*C and kernels *IO by default: the innermost axis is vectorized."""
    requested = requested_layouts(op, b)
    if isinstance(requested, Decline):
        return requested
    data, kernel = requested.data or op.data_layout, requested.kernel or op.kernel_layout
    is_default = (b.given or CHANNELS_LAST).is_default
    if data == op.data_layout and (is_default or kernel == op.kernel_layout):
        return decline("it has the wanted layouts already", data=data, kernel=op.kernel_layout)
    if is_default and not is_constant(op.weight):
        permutable = _permutable_weight(op)
        if isinstance(permutable, Decline):
            return permutable
    weight = op.weight
    if kernel != op.kernel_layout:
        axes = kernel_permutation(op.kernel_layout, kernel, kind_of(weight).rank)
        # A kernel that is an input is permuted where it comes from, as data are; a constant is folded where it is.
        weight = b.emit(OPS["permute"], weight, axes=axes) if is_constant(weight) else permuted(weight, axes, b)
    attributes = {**op.attribute_values(), "data_layout": data, "kernel_layout": kernel}
    result = b.emit(OPS["conv"], in_layout(op.x, op.data_layout, data, b), weight, op.bias, **attributes)
    return in_layout(result, data, op.data_layout, b)


MIN_READS = 64
"""Pixels that read each element of a weight, from which on a weight that no constant holds is permuted in each call."""
VECTOR = 16
"""Channels that fill vectors of all processors: only then are convolutions with channels last faster."""


def _permutable_weight(op: ir.OpView) -> Decline | None:
    """Decline a weight that is computed at run time, unless permuting it in each call is worth its time."""
    weight, out = kind_of(op.weight), kind_of(op.output)
    if not weight.is_static or not weight.dtype.is_float:
        return decline("the weight is computed at run time, and its size is not known, or it has no floats")
    channels = out.shape[channel_axis(op.data_layout, out.rank)]
    if channels % VECTOR != 0:
        return decline("the weight is computed at run time, and the channels fill no whole vectors", channels=channels)
    pixels = D.product([out.shape[0], *(out.shape[axis] for axis in spatial_axes(op.data_layout, out.rank))])
    reads = D.estimate_dim(pixels)
    if reads < MIN_READS:
        return decline("the weight is computed at run time, and read by few pixels", pixels=reads)
    return None


@layout("relax.conv_weight_gradient")
def weight_gradient_in_layout(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Convert to data N*C and a result *IO by default: its rows are the channels of the result."""
    requested = requested_layouts(op, b)
    if isinstance(requested, Decline):
        return requested
    data, kernel = requested.data or op.data_layout, requested.kernel or op.kernel_layout
    if (data, kernel) == (op.data_layout, op.kernel_layout):
        return decline("it has the wanted layouts already", data=data, kernel=kernel)
    attributes = {**op.attribute_values(), "data_layout": data, "kernel_layout": kernel}
    x, gradient = (in_layout(value, op.data_layout, data, b) for value in (op.x, op.gradient))
    result = b.emit(OPS["conv_weight_gradient"], x, gradient, **attributes)
    if kernel == op.kernel_layout:
        return result
    return b.emit(OPS["permute"], result, axes=kernel_permutation(kernel, op.kernel_layout, kind_of(result).rank))


@layout("relax.conv_transpose")
def conv_transpose_in_layout(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Convert to the requested layouts; there is no default."""
    requested = requested_layouts(op, b)
    if isinstance(requested, Decline):
        return requested
    if requested.data in (None, op.data_layout):
        return decline("it has the wanted layout already", data=op.data_layout)
    attributes = {**op.attribute_values(), "data_layout": requested.data}
    data = in_layout(op.x, op.data_layout, str(requested.data), b)
    result = b.emit(OPS["conv_transpose"], data, op.weight, op.bias, **attributes)
    return in_layout(result, str(requested.data), op.data_layout, b)


@layout(Trait.DATA_LAYOUT)
def window_in_layout(op: ir.OpView, b: Rewriter) -> Decline | list[ir.Value]:
    """Convert images to the requested layout; by default a pool takes the layout of the convolution before it."""
    if Trait.CONTRACTION in traits_of(op):
        return decline("it is a contraction")
    x = op.operation.operands[0]
    requested = requested_layouts(op, b)
    data = None if isinstance(requested, Decline) else requested.data
    if data is None:
        if op.data_layout != "NC*":
            return decline("it is channels-last already")
        if not _is_channels_last(op, b):
            return decline("its input is not channels-last")
        data = "N*C"
    elif data == op.data_layout:
        return decline("it has the wanted layout already", data=data)
    values = [in_layout(x, op.data_layout, data, b), *list(op.operation.operands)[1:]]
    return [in_layout(each, data, op.data_layout, b) for each in remade_all(op, values, b, data_layout=data)]


def _is_channels_last(pool: ir.OpView, b: Rewriter) -> bool:
    x = pool.operation.operands[0]
    inner = layout_permute(x, b)
    return inner is not None and list(inner.axes) == channels_first(kind_of(x).rank)


@layout("relax.permute", producers=["relax.permute"])
def cancel(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Merge two consecutive permutes; a marked pair that cancels is removed."""
    inner = layout_permute(op.x, b)
    if inner is None:
        return decline("the operand is not a layout permute")
    axes = [inner.axes[axis] for axis in op.axes]
    if axes == list(range(len(axes))):
        result: ir.Value = inner.x
        return result
    if MARK in op.operation.attributes:
        return permuted(inner.x, axes, b)
    return b.emit(OPS["permute"], inner.x, axes=axes)


@layout("relax.permute")
def mark_permute_of_images(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Mark the permute of an argument, or of a view, from channels last to channels first.

    It sinks as those of convolutions do.
    """
    if MARK in op.operation.attributes or not (b.given or CHANNELS_LAST).is_default:
        return decline("it is a layout permute already, or layouts are requested")
    rank = len(op.axes)
    is_image = isinstance(op.x, ir.BlockArgument) or op.x.owner.name == "relax.reshape"
    if not is_image or rank < 4 or list(op.axes) != channels_first(rank):
        return decline("it does not move the channels of an argument, or of a view, from the last dim")
    return permuted(op.x, list(op.axes), b)
