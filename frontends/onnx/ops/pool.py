"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.windows import (
    NodeWindows,
    kernel_shape,
    padded_for_same,
    pads_at_run_time,
    windows,
    windows_inside,
)
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor


def pool(node: Node, name: str, x: Tensor, channels_last: bool = False, **attributes: object) -> tuple[Tensor, ...]:
    """Emit one of relax's pooling operators with the node's windows."""
    kind = node.type(0)
    kernel = kernel_shape(node)
    if kind.rank < 3 or len(kernel) != kind.rank - 2:
        raise NodeError(f"attribute 'kernel_shape' is {list(kernel)}, which does not fit the input {kind}")
    axes = range(1, kind.rank - 1) if channels_last else range(2, kind.rank)
    over = windows(node, [kind.shape[axis] for axis in axes], kernel)
    if channels_last:
        attributes["data_layout"] = "N*C"
    kernel, empty = _windows_that_fit(kernel, [kind.shape[axis] for axis in axes], over)
    results = node.emit_all(
        name, x, kernel=kernel, ceil_mode=node.attr.bool("ceil_mode", 0), **over.attributes(), **attributes
    )
    if not any(empty):
        return tuple(results)
    none = tuple(slice(0, 0) if is_empty else slice(None) for is_empty in empty)
    where = (slice(None), *none) if channels_last else (slice(None), slice(None), *none)
    return tuple(result[where] for result in results)


def _windows_that_fit(
    kernel: Sequence[int], spatial: Sequence[Dim], over: NodeWindows
) -> tuple[tuple[int, ...], list[bool]]:
    """Return the part of the kernel that is in each padded dim, and which dims have no window.

    ONNX Runtime divides (padded size - window) by the stride toward zero: for a window that is too large by less than
    a stride, it computes one, over the elements that there are; for one too large by less than two strides, none.
    """
    fitting, empty = list(kernel), [False] * len(kernel)
    for i, size in enumerate(spatial):
        if not isinstance(size, int):
            continue
        pads = (over.padding[i], over.padding[i + len(kernel)])
        stride, dilation = over.strides[i], over.dilations[i]
        padded = size + sum(pads)
        too_large = (kernel[i] - 1) * dilation + 1 - padded
        inside = (padded - 1) // dilation + 1
        if 0 < too_large < 2 * stride and max(pads) <= (inside - 1) * dilation and size:
            fitting[i], empty[i] = inside, too_large >= stride
    return tuple(fitting), empty


@converter("MaxPool")
def max_pool(node: Node) -> Converted:
    if pads_at_run_time(node) and not node.has_output(1):
        kind = node.type(0).dtype
        lowest = -np.inf if kind.is_float else np.iinfo(kind.to_numpy()).min
        x, attributes = _padded(node, node[0], lowest)
        node.attr.ignore("storage_order")
        return node.emit("max_pool", x, **attributes)
    storage_order = node.attr.int("storage_order", 0)
    if node.has_output(1):
        return pool(node, "max_pool_with_indices", node[0], storage_order=storage_order)
    return pool(node, "max_pool", node[0])


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
    return pool(node, "avg_pool", node[0], count_include_pad=node.attr.bool("count_include_pad", 0))


@converter("LpPool")
def lp_pool(node: Node) -> Converted:
    if pads_at_run_time(node):
        x, attributes = _padded(node, node[0], 0)
        return node.emit("lp_pool", x, p=node.attr.int("p", 2), **attributes)
    return pool(node, "lp_pool", node[0], p=node.attr.int("p", 2))


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
