"""Other quantized operators of `com.microsoft`, computed on dequantized values."""

from __future__ import annotations

import math

import numpy as np

from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.library import normalizations as library
from mirlo.frontends.library.quantization import range_with_zero, zero_point
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.microsoft import quantized, real, scalar_input
from mirlo.frontends.onnx.ops.pool import pool
from mirlo.frontends.onnx.ops.quantize import dequantize_linear, quantize_linear
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, where

DOMAIN = "com.microsoft"

converter("QuantizeLinear", domain=DOMAIN)(quantize_linear)
converter("DequantizeLinear", domain=DOMAIN)(dequantize_linear)


@converter("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(node: Node) -> Converted:
    """Convert; inputs: x, its scale and zero point, scale and zero point of the result."""
    (result,) = pool(
        node, "avg_pool", real(node, 0, 1, 2), node.attr.bool("channels_last", 0),
        count_include_pad=node.attr.bool("count_include_pad", 0),
    )  # fmt: skip
    return quantized(node, result, 3, 4, node.type(0).dtype.name)


@converter("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(node: Node) -> Converted:
    return pool(node, "max_pool", node[0], channels_last=True)


@converter("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(node: Node) -> Converted:
    """Convert QLinearSoftmax; before opset 13 all axes from `axis` on are flattened."""
    x, axis = node.type(0), node.attr.int("axis", -1)
    if not -x.rank <= axis < x.rank:
        raise NodeError(f"attribute 'axis' is {axis}, outside a tensor of rank {x.rank}")
    values = real(node, 0, 1, 2)
    if node.attr.int("opset") >= 13:
        result = values.softmax(axis)
    else:
        rows = values.reshape(_two_dims(x.shape, axis % x.rank))
        result = rows.softmax(-1).reshape(x.shape)
    return quantized(node, result, 3, 4, x.dtype.name)


def _two_dims(shape: tuple[Dim, ...], axis: int) -> tuple[Dim, Dim]:
    first: Dim = 1
    second: Dim = 1
    for i, dim in enumerate(shape):
        first, second = (first * dim, second) if i < axis else (first, second * dim)
    return first, second


@converter("QLinearWhere", domain=DOMAIN)
def qlinear_where(node: Node) -> Converted:
    """Convert; inputs: condition, x, its scale and zero point, y, its scale and zero point, those of the result."""
    result = where(node[0], real(node, 1, 2, 3), real(node, 4, 5, 6))
    return quantized(node, result, 7, 8, node.type(1).dtype.name)


@converter("QLinearReduceMean", domain=DOMAIN)
def qlinear_reduce_mean(node: Node) -> Converted:
    axes = node.attr.ints("axes", None)
    result = real(node, 0, 1, 2).mean(axes, keepdims=node.attr.bool("keepdims", 1))
    return quantized(node, result, 3, 4, node.type(0).dtype.name)


@converter("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(node: Node) -> Converted:
    """Convert; inputs: float A, quantized as by DynamicQuantizeLinear, B, its scale and zero point, bias."""
    product = dynamically_quantized(node, node[0]) @ _columns(node, 1, 2, 3)
    return product + node[4] if node.has(4) else product


def dynamically_quantized(node: Node, x: Tensor) -> Tensor:
    """Return the values that u8 codes of a tensor stand for, with the scale of its own range."""
    low, high = (each.reshape(()) for each in range_with_zero(x, range(x.rank)))
    span = high - low
    scale = where(span.equals(0), node.constant(1, "f32"), span / 255)
    point = zero_point(low, scale, 0, 255)
    code = node.emit("quantize", x, scale, point.cast("u8"), dtype="u8")
    return node.emit("dequantize", code, scale, point.cast("u8"), dtype="f32")


def _columns(node: Node, value: int, scale: int, zero: int) -> Tensor:
    """Dequantize a matrix with one scale, or one per column."""
    axis = node.type(value).rank - 1
    parameters = [node[scale], node.optional(zero)]
    if node.type(scale).elements == 1:
        parameters = [scalar_input(node, scale), scalar_input(node, zero) if node.has(zero) else None]
    return node.emit("dequantize", node[value], *parameters, axis=axis, dtype=node.type(scale).dtype)


@converter("MatMulInteger16", domain=DOMAIN)
def matmul_integer16(node: Node) -> Converted:
    lhs, rhs = (node[i].cast("i32") for i in range(2))
    return lhs @ rhs


# Operators that also exist elsewhere, under other names or in another form


@converter("ExpandDims", domain=DOMAIN)
def expand_dims(node: Node) -> Converted:
    return node[0].expand_dims(int(node.scalar(1)))


@converter("CDist", domain=DOMAIN)
def cdist(node: Node) -> Converted:
    """Return the distance of each row of A to each of B."""
    metric = node.attr.choice("metric", "sqeuclidean", ("euclidean", "sqeuclidean"))
    apart = node[0].expand_dims(1) - node[1].expand_dims(0)
    squares = node.emit("reduce_sum_square", apart, axes=[2])
    return squares.sqrt() if metric == "euclidean" else squares


@converter("BiasAdd", domain=DOMAIN)
def bias_add(node: Node) -> Converted:
    return node[0] + node[1] + node[2]


@converter("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(node: Node) -> Converted:
    """Multiply the first half of the sum with the Gelu of the second."""
    total = node[0] + node[1]
    width = total.type.shape[-1]
    if not isinstance(width, int) or width % 2:
        raise NodeError(f"the last dim must be even, got {total.type}")
    first, second = total.split([width // 2, width // 2], -1)
    return first * node.emit("gelu", second)


@converter("GroupNorm", "SkipGroupNorm", domain=DOMAIN)
def group_norm(node: Node) -> Converted:
    """Normalize groups of channels, optionally followed by SiLU. Inputs: x, gamma, beta, skip, bias of the channels."""
    x, total, is_last = node.type(0), node[0], node.attr.bool("channels_last", 1)
    if x.rank < 3:
        raise NodeError(f"input X must have a channel dim and spatial dims, got {x}")
    if node.operator == "SkipGroupNorm":
        total = total + _of_channels(node, 3, x.rank, is_last)
        total = total + _of_channels(node, 4, x.rank, is_last) if node.has(4) else total
    epsilon = node.attr.float("epsilon", 1e-5)
    result = library.group_norm(total, node[1], node[2], node.attr.int("groups"), epsilon, is_last)
    result = node.emit("silu", result) if node.attr.bool("activation") else result
    return (result, total) if node.operator == "SkipGroupNorm" else result


def _of_channels(node: Node, index: int, rank: int, is_last: bool) -> Tensor:
    """Reshape [C] or [N, C] to broadcast with images; leave full-rank tensors alone."""
    tensor_type = node.type(index)
    if tensor_type.rank == rank or is_last and tensor_type.rank == 1:
        return node[index]
    ones = [1] * (rank - 2)
    shape = (*tensor_type.shape[:-1], *ones, tensor_type.shape[-1]) if is_last else (*tensor_type.shape, *ones)
    return node[index].reshape(shape)


@converter("Trilu", domain=DOMAIN)
def trilu(node: Node) -> Converted:
    k = int(node.scalar(1, 0))
    return node.emit("tri", node[0], k=k, upper=node.attr.bool("upper", 1))


@converter("GatherND", domain=DOMAIN)
def gather_nd(node: Node) -> Converted:
    return node.emit("gather_nd", node[0], node[1])


@converter("Pad", domain=DOMAIN)
def pad(node: Node) -> Converted:
    pads = node.ints(1)
    if len(pads) != 2 * node.type(0).rank:
        raise NodeError(f"input 'pads' must have {2 * node.type(0).rank} numbers, got {len(pads)}")
    value = float(node.scalar(2, 0.0))
    mode = node.attr.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    return node.emit("pad", node[0], pads=pads, mode=mode, value=value)


@converter("Range", domain=DOMAIN)
def range_(node: Node) -> Converted:
    start, limit, delta = node.scalar(0), node.scalar(1), node.scalar(2, 1)
    if not delta:
        raise NodeError("input 'delta' must not be 0")
    require_table("the range", max(0, math.ceil((limit - start) / delta)))
    return node.constant(np.arange(start, limit, delta), node.type(0))
