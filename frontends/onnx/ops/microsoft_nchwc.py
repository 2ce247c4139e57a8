"""Operators on tensors in blocks of channels, in files that ONNX Runtime saved at its highest optimization level.

Such a tensor declares [N, C, H, W], where C is a multiple of the block. The blocks are a layout, and the converters
import the tensors without them: channels that fill the last block stay, as other operators count them. The constant
kernels of convolutions are stored in blocks. A file does not say how large a block is, as it belongs to the processor,
and ONNX Runtime reads it correctly only where it would have written the same. Most files show it: their numbers of
channels are multiples of the one size, or are filled up to it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from weakref import WeakKeyDictionary

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import GraphDef, NodeDef
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.conv import conv_attributes
from mirlo.frontends.onnx.ops.image import resized
from mirlo.frontends.onnx.ops.microsoft_attention import activated
from mirlo.frontends.onnx.ops.pool import average_pool, global_pool, max_pool
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.host_cpu import host_cpu
from mirlo.runtime.records import dataclass

DOMAIN = "com.microsoft.nchwc"


BLOCKS = (8, 16)
"""The channels of a block: the lanes of a register, with and without AVX-512."""
REMEDY = "save the model at the level ORT_ENABLE_EXTENDED, which has no blocks"
_SAME_CHANNELS = {"Add", "Clip", "HardSigmoid", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Sum", "Tanh"}
_SIZES: WeakKeyDictionary[GraphDef, int] = WeakKeyDictionary()
"""The sizes of blocks in models that are being imported."""


def block_size(node: Node) -> int:
    """Return the channels of a block in the file of a node: what its kernels and channels show, or this machine's."""
    graph = node.builder.model.content.graph
    size = _SIZES.get(graph)
    if size is None:
        shapes = list(_shapes(graph))
        sizes = [block for block in BLOCKS if all(_fits(shape, block) for shape in shapes)]
        if not sizes:
            raise NodeError(f"kernels and channels of {DOMAIN} fit blocks of neither 8 nor 16 channels: {REMEDY}")
        size = sizes[0] if len(sizes) == 1 else _host_block()
        if len(sizes) > 1:
            warnings.warn(
                f"mirlo: {node.builder.model.name}: kernels are stored in blocks of 8 or 16 channels, and the file "
                f"does not show which: {size} is taken, as ONNX Runtime writes on this machine; if another machine "
                f"wrote the file, {REMEDY}",
                stacklevel=2,
            )
        _SIZES[graph] = size
    return size


def _host_block() -> int:
    return 8 if "avx" in host_cpu().features and "avx512f" not in host_cpu().features else 16


@dataclass(frozen=True)
class _Shape:
    """A kernel's output and input channels, or the channels of a tensor with and without those that fill it."""

    channels: int
    inner: int = 0
    filled: int | None = None


def _fits(shape: _Shape, block: int) -> bool:
    if shape.filled is not None:
        return -(-shape.channels // block) * block == shape.filled
    return shape.channels % block == 0 and (shape.inner < block or shape.inner % block == 0)


def _shapes(graph: GraphDef) -> Iterator[_Shape]:
    """Yield what depends on the size of a block, in a graph and its subgraphs."""
    graphs = [graph]
    for each in graphs:  # which grows
        graphs += [inner for node in each.nodes for inner in node.graphs]
    kernels = {tensor.name: tensor.dims for each in graphs for tensor in each.initializers if len(tensor.dims) == 4}
    makers = {name: node for each in graphs for node in each.nodes for name in node.outputs}
    for each in graphs:
        for node in each.nodes:
            if node.domain != DOMAIN:
                continue
            kernel = kernels.get(node.inputs[1]) if node.operator == "Conv" and len(node.inputs) > 1 else None
            if kernel is not None:
                yield _Shape(kernel[0], kernel[1])
            if node.operator == "ReorderOutput":
                channels = next((a.value for a in node.attributes if a.name == "channels"), None)
                filled = _channels_of(node, makers, kernels)
                if isinstance(channels, int) and filled is not None:
                    yield _Shape(channels, filled=filled)


def _channels_of(
    node: NodeDef | None, makers: Mapping[str, NodeDef], kernels: Mapping[str, tuple[int, ...]]
) -> int | None:
    """Return the channels in blocks that a node reads: those of the convolution before it, if there is one."""
    for _ in range(len(makers)):
        node = makers.get(node.inputs[0]) if node is not None and node.inputs else None
        if node is None or (node.domain != DOMAIN and node.operator not in _SAME_CHANNELS):
            return None
        if node.operator == "Conv":
            kernel = kernels.get(node.inputs[1]) if len(node.inputs) > 1 else None
            return None if kernel is None else kernel[0]
    return None


@converter("ReorderInput", domain=DOMAIN)
def reorder_input(node: Node) -> Tensor:
    """Fill the last block of channels with zeros."""
    x = node[0]
    if node.attr.bool("channels_last", 0):
        x = x.permute((0, 3, 1, 2))
    channels = x.shape[1]
    missing = -channels % block_size(node)
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
    kernel = unblocked(node, node.array(1), block_size(node))
    attributes = conv_attributes(node, node.type(0), node.type(1))
    result = node.emit("conv", node[0], node.constant(kernel), node.optional(2), **attributes)
    return activated(node, result + node[3] if node.has(3) else result)


def unblocked(node: Node, kernel: np.ndarray, block: int) -> np.ndarray:
    """Return a kernel [O, I, H, W] of which the elements are stored in blocks of output and input channels."""
    if kernel.ndim != 4 or not _fits(_Shape(*kernel.shape[:2]), block):
        raise NodeError(
            f"input 'W' is a kernel {list(kernel.shape)}, which has no blocks of {block} channels: {REMEDY}"
        )
    out, inner, *window = kernel.shape
    in_blocks = inner >= block  # few input channels, or one per group, are not
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
