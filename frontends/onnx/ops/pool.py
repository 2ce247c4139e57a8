"""Pooling."""

from __future__ import annotations

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.dynamic_padding import padded_for_same, pads_at_run_time, windows_inside
from mirlo.frontends.onnx.ops.windows import kernel_shape, windows
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor


def pool_attributes(node: Node, channels_last: bool = False) -> dict[str, object]:
    """Return the attributes of relax's pooling operators."""
    x = node.type(0)
    kernel = kernel_shape(node)
    if x.rank < 3 or len(kernel) != x.rank - 2:
        raise NodeError(f"attribute 'kernel_shape' is {list(kernel)}, which does not fit the input {x}")
    return {
        "kernel": kernel,
        "ceil_mode": node.attr.bool("ceil_mode", 0),
        "data_layout": "N*C" if channels_last else "NC*",
        **windows(node, x.shape[1:-1] if channels_last else x.shape[2:], kernel).attributes(),
    }


@converter("MaxPool")
def max_pool(node: Node) -> Converted:
    if pads_at_run_time(node) and not node.has_output(1):
        kind = node.type(0).dtype
        lowest = -np.inf if kind.is_float else np.iinfo(kind.to_numpy()).min
        x, attributes = _padded(node, node[0], lowest)
        node.attr.ignore("storage_order")
        return node.emit("max_pool", x, **attributes)
    attributes = pool_attributes(node)
    storage_order = node.attr.int("storage_order", 0)
    if node.has_output(1):
        del attributes["data_layout"]  # channels come first
        return node.emit_all("max_pool_with_indices", node[0], storage_order=storage_order, **attributes)
    return node.emit("max_pool", node[0], **attributes)


@converter("AveragePool")
def average_pool(node: Node) -> Converted:
    if pads_at_run_time(node):
        x, attributes = _padded(node, node[0], 0)
        mean = node.emit("avg_pool", x, count_include_pad=False, **attributes)
        if node.attr.bool("count_include_pad", 0):
            return mean
        kind = node.type(0)
        ones, _ = _padded(node, node.emit("full", shape=(1, 1, *kind.shape[2:]), value=1, dtype=kind.dtype), 0)
        share = node.emit("avg_pool", ones, count_include_pad=False, **attributes)
        return mean / share
    attributes = pool_attributes(node)
    return node.emit("avg_pool", node[0], count_include_pad=node.attr.bool("count_include_pad", 0), **attributes)


@converter("LpPool")
def lp_pool(node: Node) -> Converted:
    if pads_at_run_time(node):
        x, attributes = _padded(node, node[0], 0)
        return node.emit("lp_pool", x, p=node.attr.int("p", 2), **attributes)
    return node.emit("lp_pool", node[0], p=node.attr.int("p", 2), **pool_attributes(node))


def _padded(node: Node, x: Tensor, value: float) -> tuple[Tensor, dict[str, object]]:
    """Return the operand with 'auto_pad' padding of dynamic size, and the attributes of windows over it."""
    kernel = kernel_shape(node)
    attributes = {"kernel": kernel, "ceil_mode": node.attr.bool("ceil_mode", 0), **windows_inside(node)}
    return padded_for_same(node, x, kernel, value), attributes


@converter("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: Node) -> Converted:
    name = "reduce_mean" if node.operator == "GlobalAveragePool" else "reduce_max"
    return node.emit(name, node[0], axes=_spatial_axes(node), keepdims=True)


@converter("GlobalLpPool")
def global_lp_pool(node: Node) -> Converted:
    p, axes = node.attr.int("p", 2), _spatial_axes(node)
    if p in (1, 2):
        return node.emit(f"reduce_l{p}", node[0], axes=axes, keepdims=True)
    tensor_type = node.type(0)
    powers = abs(node[0]) ** node.constant(p, tensor_type)
    total = powers.sum(axes, keepdims=True)
    return total ** node.constant(1 / p, tensor_type)


def _spatial_axes(node: Node) -> tuple[int, ...]:
    rank = node.type(0).rank
    if rank < 3:
        raise NodeError(f"the input must have a batch dim, a channel dim and spatial dims, got {node.type(0)}")
    return tuple(range(2, rank))
