"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.windows import (
    AUTO_PADS,
    cut_or_grown,
    kernel_shape,
    padded_for_same,
    padding,
    pads_at_run_time,
    per_dim,
    windows,
    windows_inside,
)
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor


def conv_attributes(node: Node, x: TensorType, weight: TensorType) -> dict[str, int | tuple[int, ...]]:
    """Return the attributes of relax.conv for a node of the Conv family."""
    if x.rank < 3 or x.rank != weight.rank:
        raise NodeError(f"the data and the weight must have one rank of at least 3, got {x} and {weight}")
    spatial = x.shape[2:]
    kernel = kernel_shape(node, weight.shape[2:])
    if len(kernel) != len(spatial):
        raise NodeError(f"attribute 'kernel_shape' must have {len(spatial)} numbers, got {list(kernel)}")
    return {**windows(node, spatial, kernel).attributes(), "groups": node.attr.int("group", 1)}


@converter("Conv")
def conv(node: Node) -> Converted:
    if pads_at_run_time(node):
        x = padded_for_same(node, node[0], kernel_shape(node, node.type(1).shape[2:]), 0)
        groups = node.attr.int("group", 1)
        return node.emit("conv", x, node[1], node.optional(2), groups=groups, **windows_inside(node))
    attributes = conv_attributes(node, node.type(0), node.type(1))
    return node.emit("conv", node[0], node[1], node.optional(2), **attributes)


@converter("ConvTranspose")
def conv_transpose(node: Node) -> Tensor:
    x, weight = node.type(0), node.type(1)
    if x.rank < 3 or x.rank != weight.rank:
        raise NodeError(f"the data and the weight must have one rank of at least 3, got {x} and {weight}")
    count = x.rank - 2
    kernel = kernel_shape(node, weight.shape[2:])
    if len(kernel) != count:
        raise NodeError(f"attribute 'kernel_shape' must have {count} numbers, got {list(kernel)}")
    strides, dilations = per_dim(node, "strides", count), per_dim(node, "dilations", count)
    extra = node.attr.ints("output_padding", None) or [0] * count
    if len(extra) != count:
        raise NodeError(f"attribute 'output_padding' must have {count} numbers, got {extra}")
    attributes = {"strides": strides, "dilations": dilations, "groups": node.attr.int("group", 1)}
    padded = _transposed_padding(node, x.shape[2:], kernel, strides, dilations, extra)
    if padded is not None:
        pads, extra = padded
        operands = (node[0], node[1], node.optional(2))
        return node.emit("conv_transpose", *operands, padding=pads, output_padding=extra, **attributes)
    result = node.emit("conv_transpose", node[0], node[1], output_padding=extra, **attributes)
    wanted = node.attr.ints("output_shape", None)
    sizes = wanted[-count:] if wanted else [size * stride for size, stride in zip(x.shape[2:], strides, strict=True)]
    result = cut_or_grown(node, result, sizes, node.attr.str("auto_pad", "NOTSET") == "SAME_UPPER")
    if not node.has(2):
        return result
    return result + node[2].reshape((node[2].type.shape[0], *[1] * count))


def _transposed_padding(
    node: Node,
    spatial: Sequence[Dim],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extra: list[int],
) -> tuple[tuple[int, ...], list[int]] | None:
    """Return padding from 'pads', 'output_shape', or 'auto_pad' (whose SAME makes the output size * stride).

    Return None if it depends on run-time sizes.
    """
    count = len(spatial)
    wanted = node.attr.ints("output_shape", None)
    auto_pad = node.attr.choice("auto_pad", "NOTSET", AUTO_PADS)
    if wanted is None and auto_pad in ("NOTSET", "VALID"):
        return padding(node, spatial, kernel, strides, dilations), extra
    if wanted is not None and len(wanted) not in (count, count + 2):
        raise NodeError(f"attribute 'output_shape' must have {count} numbers, one per spatial dim, got {wanted}")
    node.attr.ignore("pads")  # ONNX: 'output_shape' and 'auto_pad' determine the padding instead
    begins, ends = [], []
    for i, (size, window, stride, dilation) in enumerate(zip(spatial, kernel, strides, dilations, strict=True)):
        full = stride * (size - 1) + extra[i] + (window - 1) * dilation + 1
        total = full - (wanted[i - count] if wanted else size * stride)
        if not isinstance(total, int):
            return None
        if total < 0:  # the output is longer than the windows reach: zeros (and the bias) at the end
            extra, total = [*extra[:i], extra[i] - total, *extra[i + 1 :]], 0
        half = total // 2
        begins.append(half if auto_pad == "SAME_UPPER" else total - half)
        ends.append(total - half if auto_pad == "SAME_UPPER" else half)
    return (*begins, *ends), extra
