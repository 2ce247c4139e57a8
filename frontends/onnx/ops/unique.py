"""Unique: sort, then select elements that differ from the previous one; their number is counted at run time."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.index import nonzero_of
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, maximum
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class _Distinct:
    """For each distinct element its first position and count; for each element the index of its distinct value."""

    first: Tensor
    inverse: Tensor
    counts: Tensor


@converter("Unique", since=11)
@converter("Unique", domain="com.microsoft")
def unique(node: Node) -> Converted:
    """Convert com.microsoft's Unique of a vector, in order of first occurrence, without the newer outputs."""
    x, of_microsoft = node.type(0), node.signature is None
    axis = node.attr.int("axis", None)
    is_sorted = False if of_microsoft else node.attr.bool("sorted", 1)
    if axis is None:
        flat = node[0].reshape((x.elements,)) if x.rank != 1 else node[0]
        order = node.emit("argsort", flat, axis=0)
        distinct = _find_distinct(node, flat.gather(order), order, x.elements)
        source, axis = flat, 0
    else:
        if not -x.rank <= axis < x.rank:
            raise NodeError(f"attribute 'axis' is {axis}, outside a tensor of rank {x.rank}")
        axis %= x.rank
        source, count = node[0], x.shape[axis]
        front = source.permute([axis, *(i for i in range(x.rank) if i != axis)])
        width: Dim = 1
        for i, dim in enumerate(x.shape):
            width = width if i == axis else dim * width
        rows = front.reshape((count, width))
        order = node.emit("argsort_rows", rows)
        distinct = _find_distinct(node, rows.gather(order), order, count)
    if not is_sorted:
        distinct = _in_order_of_appearance(node, distinct)
    values = source.gather(distinct.first, axis)
    return (
        (values, distinct.inverse, distinct.counts)
        if of_microsoft
        else (values, distinct.first, distinct.inverse, distinct.counts)
    )


def _find_distinct(node: Node, ordered: Tensor, order: Tensor, count: Dim) -> _Distinct:
    """Return the distinct elements, or rows, of sorted ones."""
    if count == 0:
        none = node.constant(np.zeros(0, np.int64))
        return _Distinct(none, none, none)
    number = node.index_vector(count)
    before = ordered.gather(maximum(number - 1, node.constant(np.int64(0))))
    changes = ordered.not_equals(before)
    kind = ordered.type
    if kind.dtype.is_float:  # NaN differs from itself, but counts once
        both = ordered.isnan() & before.isnan()
        changes = changes & ~both
    if kind.rank > 1:
        changes = changes.any(1)
    begins = changes | number.equals(0)
    group = begins.cast("i64").cumsum(0) - 1
    blank = node.emit("full", shape=(count,), value=0, dtype="i64")
    inverse = node.emit("scatter_elements", blank, order, group, axis=0)
    starts = (chosen := nonzero_of(node, begins)).reshape((chosen.type.shape[1],))
    first = order.gather(starts)
    ones = node.emit("full", shape=(count,), value=1, dtype="i64")
    return _Distinct(first, inverse, node.emit("scatter_elements", first * 0, group, ones, axis=0, reduction="add"))


def _in_order_of_appearance(node: Node, distinct: _Distinct) -> _Distinct:
    order = node.emit("argsort", distinct.first, axis=0)
    position = node.emit("argsort", order, axis=0)
    first, counts = (values.gather(order) for values in (distinct.first, distinct.counts))
    return _Distinct(first, position.gather(distinct.inverse), counts)
