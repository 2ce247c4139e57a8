"""Gathering, scattering, sorting."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.relax.infer import normalize_axis
from mirlo.frontends.onnx.declared import declared_shape, equals, required, required_all
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, NodeTrait
from mirlo.frontends.onnx.registry import CONVERTERS, converter, removed
from mirlo.frontends.onnx.values import Converted, Output
from mirlo.frontends.tensor import Tensor, where

REDUCTIONS = ("none", "add", "mul", "max", "min")


@converter("Gather", traits=[NodeTrait.MOVES])
def gather(node: Node) -> Converted:
    return node[0].gather(node[1], node.attr.int("axis", 0))


@converter("GatherElements", traits=[NodeTrait.MOVES])
def gather_elements(node: Node) -> Converted:
    return node[0].gather_elements(node[1], node.attr.int("axis", 0))


@converter("GatherND", traits=[NodeTrait.MOVES])
def gather_nd(node: Node) -> Converted:
    return node.emit("gather_nd", node[0], node[1], batch_dims=node.attr.int("batch_dims", 0))


@converter("ScatterElements", "Scatter", traits=[NodeTrait.MOVES])
def scatter_elements(node: Node) -> Converted:
    return node.emit(
        "scatter_elements",
        node[0],
        node[1],
        node[2],
        axis=node.attr.int("axis", 0),
        reduction=node.attr.choice("reduction", "none", REDUCTIONS),
    )


removed("Scatter", since=11)


@converter("ScatterND", traits=[NodeTrait.MOVES])
def scatter_nd(node: Node) -> Converted:
    reduction = node.attr.choice("reduction", "none", REDUCTIONS)
    return node.emit("scatter_nd", node[0], node[1], node[2], reduction=reduction)


@converter("OneHot")
def one_hot(node: Node) -> Converted:
    axis = node.attr.int("axis", -1)
    shape = declared_shape(node, 1)
    if shape is None and node.value(1).array is None:
        return _dynamic_one_hot(node, axis)
    depth = node.scalar(1) if shape is None else shape[axis]
    if depth < 1:
        raise NodeError(f"input 'depth' must be at least 1, got {depth}")
    indices = node[0]
    if node.type(0).dtype.is_float:
        indices = indices.cast("i64")
    result = node.emit("one_hot", indices, node[2], depth=int(depth), axis=axis)
    return result if shape is None else required(node, equals(node, 1, depth), "input 'depth' is another", result)


def _dynamic_one_hot(node: Node, axis: int) -> Output:
    """Convert OneHot with a run-time depth: compare each position along the new axis."""
    indices = node[0] if node.type(0).dtype.name == "i64" else node[0].cast("i64")
    tensor_type = node.type(0)
    size = node.single(1)
    size = size if size.type.dtype.name == "i64" else size.cast("i64")
    (depth,) = node.bind(size.reshape((1,)), "input 'depth' must be a size")
    at = axis % (tensor_type.rank + 1)
    below = indices < 0
    indices = where(below, indices + size, indices)
    column = indices.reshape((*tensor_type.shape[:at], 1, *tensor_type.shape[at:]))
    columns = node.index_vector(depth).reshape((depth, *[1] * (tensor_type.rank - at)))
    off, on = (node[2].gather(node.constant(i, "i64")).reshape(()) for i in range(2))
    return where(column.equals(columns), on, off)


@converter("TopK", since=10)
def top_k(node: Node) -> Converted:
    if node.value(1).array is None and declared_shape(node, 1) is None and declared_shape(node, 1, 1) is None:
        return _dynamic_top_k(node)
    shape = declared_shape(node, 1) or declared_shape(node, 1, 1)
    if shape is None:
        return _top_k(node, node.scalar(1))
    count = shape[node.attr.int("axis", -1)]
    return required_all(node, equals(node, 1, count), "input 'K' is another", _top_k(node, count))


@converter("TopK")
def top_k_attribute(node: Node) -> Converted:
    return _top_k(node, node.attr.int("k"))


def _top_k(node: Node, count: float) -> list[Tensor]:
    return node.emit_all(
        "topk",
        node[0],
        k=int(count),
        axis=node.attr.int("axis", -1),
        largest=node.attr.bool("largest", 1),
        sorted=node.attr.bool("sorted", 1),
    )


def _dynamic_top_k(node: Node) -> tuple[Tensor, ...]:
    """Convert TopK with a run-time k: sort everything and take the first elements."""
    x, largest = node.type(0), node.attr.bool("largest", 1)
    axis = node.attr.int("axis", -1) % x.rank
    node.attr.ignore("sorted")
    if node.type(1).elements != 1:
        raise NodeError(f"input 'K' must have one element, got {node.type(1)}")
    (count,) = node.bind(node.vector(1), "input 'K' must be from 0 to the size of the axis", [x.shape[axis]])
    ordered = (node.emit(each, node[0], axis=axis, descending=largest) for each in ("sort", "argsort"))
    return tuple(each.slice(axis, 0, count) for each in ordered)


@converter("Compress", traits=[NodeTrait.MOVES])
def compress(node: Node) -> Converted:
    """Convert Compress: select elements where the condition holds."""
    x, axis = node[0], node.attr.int("axis", 0)
    if "axis" not in node.attr:
        x = x.reshape((node.type(0).elements,))
    condition, size = node.type(1), x.type.shape[normalize_axis(axis, x.type.rank)]
    if condition.rank != 1:
        raise NodeError(f"input 'condition' must have rank 1, got {condition}")
    fits = D.is_certain(lambda: condition.shape[0] <= size)
    if fits and node.value(1).array is not None:
        indices = node.constant(np.flatnonzero(node.array(1)).astype(np.int64))
    else:
        # What is longer than the axis selects nothing.
        first = D.minimum(condition.shape[0], size)
        flags = node[1] if fits else node[1].slice(0, 0, first)
        indices = (coordinates := nonzero_of(node, flags)).reshape((coordinates.type.shape[1],))
    return x.gather(indices, axis)


@converter("NonZero")
def non_zero(node: Node) -> Converted:
    """Convert NonZero; the number of elements is counted at run time."""
    return nonzero_of(node, node[0])


@converter("ReverseSequence", traits=[NodeTrait.MOVES])
def reverse_sequence(node: Node) -> Converted:
    """Reverse the first `sequence_lens[b]` elements of sequence b."""
    x = node.type(0)
    time, batch = node.attr.int("time_axis", 0), node.attr.int("batch_axis", 1)
    if x.rank < 2 or sorted((time, batch)) != [0, 1]:
        raise NodeError(
            f"attributes 'time_axis' and 'batch_axis' must be 0 and 1 in some order, got {time} and {batch}"
        )
    length = x.shape[time]
    along = [1] * x.rank
    steps = node.index_vector(length).reshape((*along[:time], length, *along[time + 1 :]))
    lengths = node[1].reshape((*along[:batch], x.shape[batch], *along[batch + 1 :]))
    if node.type(1).dtype.name != "i64":
        lengths = lengths.cast("i64")
    last = lengths - 1
    mirrored = last - steps
    indices = where(steps < lengths, mirrored, steps)
    return node[0].gather_elements(indices.expand(x.shape), time)


@converter("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Converted:
    """Convert TensorScatter: write a cache update at each sequence's position along the axis."""
    cache, update = node.type(0), node.type(1)
    axis = node.attr.int("axis", -2)
    mode = node.attr.choice("mode", "linear", ("linear", "circular"))
    if cache.rank != update.rank or not -cache.rank <= axis < cache.rank:
        raise NodeError(f"attribute 'axis' is {axis}, and cache and update are {cache} and {update}")
    axis %= cache.rank
    length, room = update.shape[axis], cache.shape[axis]
    column = tuple(length if i == axis else 1 for i in range(cache.rank))
    rows = node.index_vector(length).reshape(column)
    if node.has(2):
        starts = node[2].reshape((cache.shape[0], *[1] * (cache.rank - 1)))
        rows = starts + rows
    if mode == "circular":
        rows = rows % node.size(room)
    indices = rows.expand(update.shape)
    return node.emit("scatter_elements", node[0], indices, node[1], axis=axis)


CONVERTERS.built_in.declare("", "Where", [NodeTrait.MOVES])


def nonzero_of(node: Node, x: Tensor) -> Tensor:
    """Return the indices of non-zero elements, as ONNX's NonZero: counted first."""
    tensor_type = x.type
    flags = x if tensor_type.dtype.is_bool else x.not_equals(node.constant(0, tensor_type))
    total = flags.cast("i64").sum() if tensor_type.rank else flags.cast("i64")
    count = node.bind(total.reshape((1,)), "the number of elements", [tensor_type.elements])
    return node.emit("nonzero", flags, count=count)
