"""Simplifications of convolutions."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer_windows import padding_pairs, spatial_axes
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
