"""Operators on tensors in blocks of channels, in files that ONNX Runtime saved at its highest optimization level.

Such a tensor declares [N, C, H, W], where C is a multiple of the block. The blocks are a layout, and the converters
import the tensors without them: channels that fill the last block stay, as other operators count them. The constant
kernels of convolutions are stored in blocks. A file does not say how large a block is: it belongs to the processor,
and ONNX Runtime as well reads it correctly only where it would have written the same.
"""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.conv import conv_attributes
from mirlo.frontends.onnx.ops.image import resized
from mirlo.frontends.onnx.ops.microsoft_attention import activated
from mirlo.frontends.onnx.ops.pool import average_pool, global_pool, max_pool
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.host_cpu import host_cpu

DOMAIN = "com.microsoft.nchwc"


def block_size() -> int:
    """Return the channels of a block in files that ONNX Runtime saves on this machine: the lanes of a register."""
    return 8 if "avx" in host_cpu().features and "avx512f" not in host_cpu().features else 16


@converter("ReorderInput", domain=DOMAIN)
def reorder_input(node: Node) -> Tensor:
    """Fill the last block of channels with zeros."""
    x = node[0]
    if node.attr.bool("channels_last", 0):
        x = x.permute((0, 3, 1, 2))
    channels = x.shape[1]
    missing = D.apply("mod", channels * -1, block_size())
    if missing == 0:
        return x
    if not isinstance(missing, int):
        raise NodeError(f"the channels of the input are {channels}, expected a number")
    return node.emit("pad", x, pads=(0, 0, 0, 0, 0, missing, 0, 0), mode="constant", value=0.0)


@converter("ReorderOutput", domain=DOMAIN)
def reorder_output(node: Node) -> Tensor:
    """Remove the channels that fill the last block."""
    channels = node.attr.int("channels")
    x = node[0].slice(1, 0, channels)
    return x.permute((0, 2, 3, 1)) if node.attr.bool("channels_last", 0) else x


@converter("Conv", domain=DOMAIN)
def blocked_conv(node: Node) -> Tensor:
    """Convert a convolution of a kernel in blocks, with a bias, a tensor to add and an activation."""
    kernel = unblocked(node, node.array(1), block_size())
    attributes = conv_attributes(node, node.type(0), node.type(1))
    result = node.emit("conv", node[0], node.constant(kernel), node.optional(2), **attributes)
    return activated(node, result + node[3] if node.has(3) else result)


def unblocked(node: Node, kernel: np.ndarray, block: int) -> np.ndarray:
    """Return a kernel [O, I, H, W] of which the elements are stored in blocks of output and input channels."""
    out, inner, *window = kernel.shape
    in_blocks = inner >= block  # few input channels, or one per group, are not
    if kernel.ndim != 4 or out % block or (in_blocks and inner % block):
        raise NodeError(
            f"input 'W' is a kernel {list(kernel.shape)}, but files that ONNX Runtime saves on this machine have "
            f"blocks of {block} channels: save the model here, or anywhere at the level ORT_ENABLE_EXTENDED"
        )
    if not in_blocks:
        stored = kernel.reshape(out // block, inner, *window, block)
        return np.ascontiguousarray(stored.transpose(0, 4, 1, 2, 3)).reshape(kernel.shape)
    stored = kernel.reshape(out // block, inner // block, *window, block, block)
    return np.ascontiguousarray(stored.transpose(0, 5, 1, 4, 2, 3)).reshape(kernel.shape)


@converter("MaxPool", domain=DOMAIN)
def blocked_max_pool(node: Node) -> Converted:
    return max_pool(node)


@converter("AveragePool", domain=DOMAIN)
def blocked_average_pool(node: Node) -> Converted:
    return average_pool(node)


@converter("GlobalAveragePool", "GlobalMaxPool", domain=DOMAIN)
def blocked_global_pool(node: Node) -> Converted:
    return global_pool(node)


@converter("Upsample", domain=DOMAIN)
def upsample(node: Node) -> Tensor:
    """Convert an enlargement by whole numbers; without interpolation each element is repeated."""
    scales, mode = node.attr.ints("scales"), node.attr.choice("mode", "nearest", ("nearest", "linear"))
    coordinates = node.attr.str("coordinate_transformation_mode", "asymmetric")
    return resized(node, [float(scale) for scale in scales], mode, coordinates if mode == "linear" else "asymmetric")
