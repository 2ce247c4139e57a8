"""Simplifications of convolutions."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.conv import split_kernel
from mirlo.dialects.relax.infer import channel_axis, padding_pairs, spatial_axes
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.rules import Decline, decline, simplify


@simplify("relax.conv")
def pad_into_conv(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Merge zero padding into the convolution's own padding."""
    inner = defining(op.x, "relax.pad")
    if inner is None or inner.mode != "constant" or inner.value != 0:
        return decline("the operand is not padded with zeros")
    rank = kind_of(op.x).rank
    axes = spatial_axes(op.data_layout, rank)
    begins, ends = inner.pads[:rank], inner.pads[rank:]
    if min(inner.pads) < 0 or any(begins[i] or ends[i] for i in range(rank) if i not in axes):
        return decline("the pad crops, or adds channels or images", pads=list(inner.pads))
    own = padding_pairs(op.padding, len(axes))
    padding = [begin + begins[axis] for (begin, _), axis in zip(own, axes, strict=True)]
    padding += [end + ends[axis] for (_, end), axis in zip(own, axes, strict=True)]
    return b.emit(OPS["conv"], inner.x, op.weight, op.bias, **{**op.attribute_values(), "padding": padding})


@simplify("relax.conv")
def conv_of_single_elements(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Multiply by the weight of each channel where a window is one element of one channel, and add the bias.

    Elementwise operators request no layout, and are fused with the kernel of their operand.
    """
    x = kind_of(op.x)
    out_channels, in_channels, window = split_kernel(kind_of(op.weight), op.kernel_layout)
    axis = channel_axis(op.data_layout, x.rank)
    if {in_channels, *window} != {1} or op.groups == 1 or not out_channels == op.groups == x.shape[axis]:
        return decline("it is not one window of one element for each of several channels")
    if any(number != 1 for number in op.strides) or any(op.padding):
        return decline("windows are apart, or beyond the edges")
    if x.dtype.name not in ("f32", "f64") or op.out_dtype not in (None, x.dtype):
        return decline("products are accumulated in another type", type=x.dtype.name)
    shape = [out_channels, *(1 for number in range(axis + 1, x.rank))]
    factor, *added = (b.emit(OPS["reshape"], value, shape=shape) for value in (op.weight, op.bias) if value is not None)
    product = b.emit(OPS["multiply"], op.x, factor)
    return b.emit(OPS["add"], product, *added) if added else product
