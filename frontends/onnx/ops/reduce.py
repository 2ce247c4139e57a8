"""Reductions, arg reductions and cumulative operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.relax.reduce import reductions_of_onnx
from mirlo.frontends.builder import sizes_if
from mirlo.frontends.onnx.declared import (
    axes_as_bits,
    axes_set,
    by_axis,
    candidate_axes,
    count_of,
    declared_of_static,
    is_candidate,
    required,
)
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter, relax_class
from mirlo.frontends.onnx.values import Converted, Output
from mirlo.frontends.tensor import Tensor, where

ROOTS_AND_LOGS: dict[str, tuple[str | None, str | None]] = {
    "ReduceL2": ("reduce_sum_square", "sqrt"),
    "ReduceLogSum": ("reduce_sum", "log"),
    "ReduceLogSumExp": (None, None),
}
"""Reductions of integers that leave them: the reduction in integers and the function in f64 after it, if not all is."""
OF_BOOLS = {"ReduceMax": "reduce_any", "ReduceMin": "reduce_all"}


@converter(*reductions_of_onnx())
def reduce(node: Node) -> Converted:
    """Convert a reduction: axes are an attribute in older opsets, an input in newer ones.

    Without axes, all are reduced, or with a flag none.
    """
    shape, keepdims = declared_of_static(node, 1), node.attr.bool("keepdims", 1)
    if shape is not None and node.type(1).elements:
        candidates = candidate_axes(node.type(0), count_of(node, 1), shape, keepdims)
        if candidates:
            return _reduce_of_declared_shape(node, candidates)
    if node.has(1) and node.value(1).known is None and node.type(1).elements != 0:
        return _reduce_along(node)
    axes = [] if node.has(1) and node.type(1).elements == 0 else node.axes(1)
    empty_is_noop = node.attr.bool("noop_with_empty_axes", 0)
    if not axes:
        if empty_is_noop:
            return _elementwise(node)
        axes = None
    return _reduced(node, axes, keepdims)


def _reduced(node: Node, axes: Sequence[int] | None, keepdims: bool) -> Tensor:
    return _reduction(node, node[0], axes, keepdims)


def _reduction(node: Node, x: Tensor, axes: Sequence[int] | None, keepdims: bool) -> Tensor:
    """Emit the reduction; of integers as ONNX's functions define it, in f64 and truncated."""
    dtype = x.type.dtype
    if dtype.is_bool:
        return node.emit(OF_BOOLS[node.operator], x, axes=axes, keepdims=keepdims)
    if dtype.is_float or node.operator not in ROOTS_AND_LOGS:
        return node.emit(relax_class(node.operator), x, axes=axes, keepdims=keepdims)
    total, function = ROOTS_AND_LOGS[node.operator]
    reduced = x if total is None else node.emit(total, x, axes=axes, keepdims=keepdims)
    reduced = reduced.cast("f64")
    if function is None:
        reduced = node.emit(relax_class(node.operator), reduced, axes=axes, keepdims=keepdims)
    else:
        reduced = node.emit(function, reduced)
    return reduced.cast(dtype)


def _reduce_of_declared_shape(node: Node, candidates: Sequence[tuple[int, ...]]) -> Tensor:
    """Reduce over each axis set that makes the declared shape, and select the requested one."""
    keepdims = node.attr.bool("keepdims", 1)
    node.attr.ignore("noop_with_empty_axes")
    requested = axes_set(node, 1, node.type(0).rank)
    result = _reduced(node, candidates[0], keepdims)
    for axes in candidates[1:]:
        is_meant = requested.equals(axes_as_bits(axes))
        result = where(is_meant, _reduced(node, axes, keepdims), result)
    return required(node, is_candidate(node, requested, candidates), "input 'axes' names other axes", result)


def _reduce_along(node: Node) -> Tensor:
    """Reduce over run-time axes: each axis becomes two, of which one is 1, and the inner ones are reduced."""
    x, rank = node.type(0), node.type(0).rank
    is_noop = node.attr.bool("noop_with_empty_axes", 0)
    keepdims, axes = node.attr.bool("keepdims", 1), node.vector(1)
    (count,) = axes.type.shape
    if not keepdims and not isinstance(count, int):
        raise NodeError(
            f"input 'axes' is a list of {count} numbers: with keepdims = 0, how many there are must be known, because "
            "the result has as many axes less; declare a shape of one number for it, or set keepdims = 1"
        )
    marks = by_axis(node, node.emit("full", shape=(count,), value=1, dtype="i64"), axes, rank)
    reduced, number = marks > 0, node.size(count)
    named = reduced.cast("i64").sum().equals(number)
    if not isinstance(count, int) and not is_noop:
        reduced = reduced | number.equals(0)
    sizes, ones = node.sizes(x.shape), node.constant(np.ones(rank), "i64")
    outer = sizes_if(named, where(reduced, ones, sizes))
    bounds = [D.maximum(dim, 1) for dim in x.shape]
    kept = node.bind(outer, "input 'axes' must name axes of the input", bounds)
    # A reduced axis of the result has 1 element, another one all: then 1 is left, or no axis that matters.
    within = [dim // D.maximum(one, 1) for dim, one in zip(x.shape, kept, strict=True)]
    spread = node.emit("spread_axes", node[0], outer=kept, inner=within)
    shape = kept
    if not keepdims:
        order = node.emit("argsort", reduced.cast("i64"), axis=0)
        first = order.slice(0, 0, rank - count)
        shape = node.bind(outer.gather(first), "a size")
    result = _reduction(node, spread, list(range(rank, 2 * rank)), False)
    return result if keepdims else result.reshape(shape)


def _elementwise(node: Node) -> Output:
    """Reduce over no axis: apply the elementwise part only."""
    x = node[0]
    match node.operator:
        case "ReduceL1" | "ReduceL2":
            return abs(x)
        case "ReduceSumSquare":
            return x.square()
        case "ReduceLogSum":
            return _reduction(node, x, [], True)
    return node.value(0)


@converter("ArgMax", "ArgMin")
def arg_reduce(node: Node) -> Converted:
    return node.emit(
        node.operator.lower(),
        node[0],
        axis=node.attr.int("axis", 0),
        keepdims=node.attr.bool("keepdims", 1),
        select_last=node.attr.bool("select_last_index", 0),
    )


@converter("CumSum", "CumProd")
def cumulative(node: Node) -> Converted:
    rank = node.type(0).rank
    if node.value(1).array is None:
        return _cumulative_of_dynamic_axis(node, rank)
    axis = node.scalar(1)
    if not -rank <= axis < rank:
        raise NodeError(f"input 'axis' is {axis}, outside a tensor of rank {rank}")
    return _cumulative(node, axis)


def _cumulative(node: Node, axis: int) -> Tensor:
    is_exclusive, is_reversed = node.attr.bool("exclusive", 0), node.attr.bool("reverse", 0)
    return node.emit(node.operator.lower(), node[0], axis=axis, exclusive=is_exclusive, reverse=is_reversed)


def _cumulative_of_dynamic_axis(node: Node, rank: int) -> Tensor:
    """Accumulate along each axis and select the requested one; an invalid axis counts as the first."""
    if node.type(1).elements != 1:
        raise NodeError(f"input 'axis' must have one element, got {node.type(1)}")
    axis = node[1].reshape(())
    result = _cumulative(node, 0)
    for i in range(1, rank):
        result = where(axis.equals(i) | axis.equals(i - rank), _cumulative(node, i), result)
    return result
