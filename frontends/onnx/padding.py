"""Pad by run-time amounts, to a shape that the model declares: each dim is gathered."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.budget import require_table
from mirlo.frontends.onnx.declared import required
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.tensor import Tensor

PADS, VALUE = 1, 2


def pad_of_declared_shape(node: Node, axes: list[int], shape: tuple[int, ...]) -> Tensor:
    x, count = node.type(0), len(axes)
    if node.type(PADS).static_shape != (2 * count,) or len(shape) != x.rank:
        raise NodeError(f"pads must have {2 * count} numbers for {count} axes of {x}, got {node.type(PADS)}")
    mode = node.attr.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    padded, sizes = node[0], x.static_shape
    value = node.emit("reshape", node[VALUE], shape=()) if node.has(VALUE) else node.constant(0, x)
    for position, axis in enumerate(axes):
        begin = node.emit("gather", node[PADS], node.constant(position, "i64"))
        require_table(f"the positions along axis {axis}", shape[axis])
        source = node.constant(np.arange(shape[axis]), "i64") - begin
        padded = _along(node, padded, source, axis % x.rank, sizes[axis], mode, value)
    ends = node.emit("reduce_sum", node.emit("reshape", node[PADS], shape=(2, count)), axes=[0])
    grown = node.constant([shape[axis] - sizes[axis] for axis in axes], "i64")
    return required(node, ends.equals(grown), "input 'pads' adds another number of elements", padded)


def _along(node: Node, x: Tensor, source: Tensor, axis: int, size: int, mode: str, value: Tensor) -> Tensor:
    """Pad one dim: the element at each position of `source`, or the value that the mode defines outside."""
    if size == 0:
        raise NodeError(f"an empty dim of {node.type(0)} is padded by amounts that are known at run time only")
    last = node.constant(max(size - 1, 0), "i64")
    zero = node.constant(0, "i64")
    if mode == "wrap":
        source = source % (max(size, 1))
    elif mode == "reflect":
        turn = node.constant(max(2 * (size - 1), 1), "i64")
        position = source % turn
        source = node.emit("minimum", position, turn - position)
    nearest = node.emit("minimum", node.emit("maximum", source, zero), last)
    result = node.emit("gather", x, nearest, axis=axis)
    if mode != "constant":
        return result
    is_inside = source.equals(nearest)
    tensor_type = result.type
    column = tuple(dim if i == axis else 1 for i, dim in enumerate(tensor_type.shape))
    return node.emit("where", node.emit("reshape", is_inside, shape=column), result, value)
