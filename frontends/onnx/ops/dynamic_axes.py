"""Squeeze and Unsqueeze with run-time axes."""

from __future__ import annotations

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.runtime_sizes import bind, by_axis, i64_constant, shape_vector, unless, vector
from mirlo.frontends.tensor import Tensor, where


def dynamic_squeeze(node: Node) -> Tensor:
    x, count = node.type(0), _count(node)
    left, dims = x.rank - count, shape_vector(node, node.type(0).shape)
    if left < 0:
        raise NodeError(f"input 'axes' is a list of {count} numbers, but {x} has {x.rank} axes")
    kept, position, once = _kept_axes(node, x.rank)
    here = position.equals(i64_constant(node, np.arange(1, left + 1)[:, None]))
    shape = where(here, dims, i64_constant(node, 0)).sum(1)
    ones = (kept | dims.equals(1)).all()
    return _reshaped(node, ones & once, shape, f"must name {count} dims of {x} that are 1")


def dynamic_unsqueeze(node: Node) -> Tensor:
    x, count = node.type(0), _count(node)
    rank = x.rank + count
    kept, position, once = _kept_axes(node, rank)
    column = position.reshape((rank, 1))
    here = column.equals(i64_constant(node, np.arange(1, x.rank + 1)))
    dims = where(here, shape_vector(node, x.shape), i64_constant(node, 0)) if x.rank else None
    old = dims.sum(1) if dims is not None else i64_constant(node, np.zeros(rank))
    shape = where(kept, old, i64_constant(node, 1))
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
    counted = kept.cast("i64") * before
    position = where(kept, counted.sum(1), i64_constant(node, 0))
    named = (~kept).cast("i64").sum()
    return kept, position, named.equals(count)


def _reshaped(node: Node, fits: Tensor, shape: Tensor, what: str) -> Tensor:
    what = f"input 'axes' {what}"
    if shape.type.shape != (0,):
        return node[0].reshape(bind(node, unless(node, fits, shape), what))
    bind(node, unless(node, fits, i64_constant(node, 0)).reshape((1,)), what)
    return node[0].reshape(())
