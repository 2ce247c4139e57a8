"""Squeeze and Unsqueeze with run-time axes."""

from __future__ import annotations

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.runtime_sizes import bind, by_axis, i64_constant, shape_vector, unless, vector
from mirlo.frontends.tensor import Tensor


def dynamic_squeeze(node: Node) -> Tensor:
    x, count = node.type(0), _count(node)
    left, dims = x.rank - count, shape_vector(node, node.type(0).shape)
    if left < 0:
        raise NodeError(f"input 'axes' is a list of {count} numbers, but {x} has {x.rank} axes")
    kept, position, once = _kept_axes(node, x.rank)
    here = position.equals(i64_constant(node, np.arange(1, left + 1)[:, None]))
    shape = node.emit("reduce_sum", node.emit("where", here, dims, i64_constant(node, 0)), axes=[1])
    ones = node.emit("reduce_all", kept | dims.equals(1))
    return _reshaped(node, ones & once, shape, f"must name {count} dims of {x} that are 1")


def dynamic_unsqueeze(node: Node) -> Tensor:
    x, count = node.type(0), _count(node)
    rank = x.rank + count
    kept, position, once = _kept_axes(node, rank)
    column = node.emit("reshape", position, shape=(rank, 1))
    here = column.equals(i64_constant(node, np.arange(1, x.rank + 1)))
    dims = node.emit("where", here, shape_vector(node, x.shape), i64_constant(node, 0)) if x.rank else None
    old = node.emit("reduce_sum", dims, axes=[1]) if dims is not None else i64_constant(node, np.zeros(rank))
    shape = node.emit("where", kept, old, i64_constant(node, 1))
    return _reshaped(node, once, shape, f"must name {count} axes of a tensor of rank {rank}")


def _count(node: Node) -> int:
    (count,) = vector(node, 1).type.shape
    if not isinstance(count, int):
        raise NodeError(f"input 'axes' is a list of {count} numbers: how many there are must be known")
    return count


def _kept_axes(node: Node, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each axis, whether it is not listed and its rank among those (0 if listed).

    The third result is whether the list has no duplicates.
    """
    count = _count(node)
    listed = by_axis(node, i64_constant(node, np.ones(count)), vector(node, 1), rank)
    kept = listed.equals(0)
    before = i64_constant(node, np.tril(np.ones((rank, rank))))
    counted = node.emit("cast", kept, dtype="i64") * before
    position = node.emit("where", kept, node.emit("reduce_sum", counted, axes=[1]), i64_constant(node, 0))
    named = node.emit("reduce_sum", node.emit("cast", ~kept, dtype="i64"))
    return kept, position, named.equals(count)


def _reshaped(node: Node, fits: Tensor, shape: Tensor, what: str) -> Tensor:
    what = f"input 'axes' {what}"
    if shape.type.shape != (0,):
        return node.emit("reshape", node[0], shape=bind(node, unless(node, fits, shape), what))
    bind(node, node.emit("reshape", unless(node, fits, i64_constant(node, 0)), shape=(1,)), what)
    return node.emit("reshape", node[0], shape=())
