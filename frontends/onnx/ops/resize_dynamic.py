"""Resize with run-time scales: one axis after another, with weights computed at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import require_equal_dims
from mirlo.frontends.onnx.declared import required
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.runtime_sizes import as_scalar, as_sizes, bind, i64_constant, positions

ROI, SCALES, SIZES = 1, 2, 3
WIDE = "f64"
"""The type in which coordinates are computed."""


@dataclass(frozen=True)
class _Axis:
    """A resized axis: its size, the result's size, and the run-time scale."""

    axis: int
    size: Dim
    count: Dim
    scale: ir.Value
    start: ir.Value | None = None
    end: ir.Value | None = None


def resize_of_run_time(
    node: Node, axes: Sequence[int], mode: str, coordinates: str, nearest: str, scales: int = SCALES
) -> ir.Value:
    """Convert Resize; `scales` is the index of the input with scales, the second one before opset 11."""
    x = node.type(0)
    declared = node.declared(0)
    factors, counts, wrong = _scales(node, axes, declared, scales)
    roi = _numbers(node, ROI, 2 * len(axes)) if coordinates == "tf_crop_and_resize" else None
    node.ignore(*({ROI, SCALES, SIZES} - {scales}))
    made = node[0] if x.dtype.is_float or mode == "nearest" else node.emit("cast", node[0], dtype="f32")
    outside: ir.Value | None = None
    for i, axis in enumerate(axes):
        start, end = (roi[i], roi[i + len(axes)]) if roi is not None else (None, None)
        found = _Axis(axis, x.shape[axis], counts[i], factors[i], start, end)
        at = _coordinates(node, found, coordinates)
        if mode == "nearest":
            made = node.emit("gather", made, _nearest(node, at, nearest, found.size), axis=axis)
        else:
            made = _weighted(node, made, found, at, mode)
        if roi is not None:
            outside = _or(node, outside, _outside(node, at, found, x.rank))
    if outside is not None:
        value = node.constant(node.attr.float("extrapolation_value", 0.0), type_of(made))
        made = node.emit("where", outside, value, made)
    else:
        node.attr.ignore("extrapolation_value")
    node.attr.ignore("cubic_coeff_a", "exclude_outside", "antialias")
    made = made if type_of(made).dtype is x.dtype else node.emit("cast", made, dtype=x.dtype)
    if wrong is None:
        return made
    return required(node, node.emit("logical_not", wrong), "its scales or sizes are others", made)


def _number(node: Node, value: float | Dim) -> ir.Value:
    if isinstance(value, (int, float)):
        return node.constant(value, WIDE)
    return node.emit("cast", as_scalar(node, value), dtype=WIDE)


def _numbers(node: Node, index: int, count: int) -> list[ir.Value]:
    """Return the elements of an input, as scalars."""
    if node.type(index).rank == 1:
        require_equal_dims(node.type(index).shape[0], count, f"the numbers of input '{node.input_name(index)}'")
    else:
        raise NodeError(f"input '{node.input_name(index)}' must have {count} elements, got {node.type(index)}")
    values = node.emit("cast", node[index], dtype=WIDE)
    return [node.emit("gather", values, node.constant(np.int64(i)), axis=0) for i in range(count)]


def _scales(
    node: Node, axes: Sequence[int], declared: tuple[int, ...] | None, index: int
) -> tuple[list[ir.Value], list[Dim], ir.Value | None]:
    """Return scales and new sizes of the axes, and whether these differ from the declared ones."""
    sizes = [node.type(0).shape[axis] for axis in axes]
    if node.has(index) and node.type(index).elements != 0:
        scales = _numbers(node, index, len(axes))
        made = [
            node.emit("floor", node.emit("multiply", s, _number(node, n))) for s, n in zip(scales, sizes, strict=True)
        ]
    else:
        policy = node.attr.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
        wanted = _numbers(node, SIZES, len(axes))
        if policy == "stretch" and node.value(SIZES).known is not None:
            scales = [node.emit("divide", w, _number(node, n)) for w, n in zip(wanted, sizes, strict=True)]
            return scales, list(node.dims(SIZES)), None
        scales = [node.emit("divide", w, _number(node, n)) for w, n in zip(wanted, sizes, strict=True)]
        made = wanted
        if policy != "stretch":
            extreme = "minimum" if policy == "not_larger" else "maximum"
            shared = scales[0]
            for scale in scales[1:]:
                shared = node.emit(extreme, shared, scale)
            scales = [shared] * len(axes)
            half = _number(node, 0.5)
            made = [
                node.emit("floor", node.emit("add", node.emit("multiply", shared, _number(node, n)), half))
                for n in sizes
            ]
    node.attr.ignore("keep_aspect_ratio_policy")
    found = node.emit("stack", made, axis=0)
    if declared is not None and len(declared) == node.type(0).rank:
        counts = [declared[axis] for axis in axes]
        differs = node.emit("not_equal", found, node.constant(counts, WIDE))
        return scales, list(counts), node.emit("reduce_any", differs)
    return scales, list(bind(node, as_sizes(node, found), "the new sizes")), None


def _coordinates(node: Node, axis: _Axis, kind: str) -> ir.Value:
    """Return the input coordinates of the result's elements: [count]."""
    i = node.emit("cast", positions(node, axis.count), dtype=WIDE)

    def number(value: float | Dim) -> ir.Value:
        return _number(node, value)

    half = number(0.5)
    if kind == "asymmetric":
        return node.emit("divide", i, axis.scale)
    middle = node.emit("divide", node.emit("add", i, half), axis.scale)
    if kind == "tf_half_pixel_for_nn":
        return middle
    whole = node.emit("multiply", axis.scale, number(axis.size))
    last = number(axis.size - 1)
    if kind in ("align_corners", "tf_crop_and_resize"):
        span = node.emit("subtract", whole, number(1))
        is_one = node.emit("equal", span, number(0))
        share = node.emit("divide", i, node.emit("where", is_one, number(1), span))
        if kind == "align_corners":
            return node.emit("where", is_one, number(0), node.emit("multiply", share, last))
        width = node.emit("subtract", axis.end, axis.start)
        place = node.emit("add", axis.start, node.emit("multiply", share, width))
        center = node.emit("multiply", node.emit("add", axis.start, axis.end), half)
        return node.emit("multiply", node.emit("where", is_one, center, place), last)
    made = node.emit("subtract", middle, half)
    if kind == "pytorch_half_pixel":
        return node.emit("where", node.emit("greater", whole, number(1)), made, number(0))
    if kind == "half_pixel_symmetric":
        adjusted = node.emit("divide", node.emit("floor", whole), whole)
        middle = node.emit("multiply", number(axis.size), half)
        offset = node.emit("multiply", node.emit("subtract", number(1), adjusted), middle)
        return node.emit("add", made, offset)
    if kind != "half_pixel":
        raise NodeError(f"attribute 'coordinate_transformation_mode' = '{kind}' does not exist")
    return made


def _nearest(node: Node, at: ir.Value, kind: str, size: Dim) -> ir.Value:
    half = _number(node, 0.5)
    match kind:
        case "round_prefer_floor":
            place = node.emit("ceil", node.emit("subtract", at, half))
        case "round_prefer_ceil":
            place = node.emit("floor", node.emit("add", at, half))
        case "floor" | "ceil":
            place = node.emit(kind, at)
        case _:
            raise NodeError(f"attribute 'nearest_mode' = '{kind}' does not exist")
    inside = node.emit("minimum", node.emit("maximum", place, _number(node, 0)), _number(node, size - 1))
    return node.emit("cast", inside, dtype="i64")


def _weighted(node: Node, x: ir.Value, axis: _Axis, at: ir.Value, mode: str) -> ir.Value:
    """Multiply an axis with a weight matrix that clamps at the edges."""
    blurs = node.attr.bool("antialias", 0)
    support = 2 if mode == "cubic" else 1
    reach: Dim = support + 1
    if blurs:  # over the input range of one output element
        reach = support * D.ceildiv(axis.size, D.maximum(axis.count, 1)) + 2
    around = node.emit("subtract", positions(node, axis.size + 2 * reach), as_scalar(node, reach))
    row = node.emit("expand_dims", node.emit("cast", around, dtype=WIDE), axes=[0])
    distance = node.emit("abs", node.emit("subtract", node.emit("expand_dims", at, axes=[1]), row))
    if blurs:
        distance = node.emit("multiply", distance, node.emit("minimum", axis.scale, _number(node, 1)))
    weights = _cubic(node, distance) if mode == "cubic" else _linear(node, distance)
    edge = as_scalar(node, axis.size - 1)
    nearest = node.emit("minimum", node.emit("maximum", around, i64_constant(node, 0)), edge)
    if node.attr.bool("exclude_outside", 0):
        is_inside = node.emit("cast", node.emit("equal", nearest, around), dtype=WIDE)
        weights = node.emit("multiply", weights, is_inside)
    total = node.emit("reduce_sum", weights, axes=[1], keepdims=True)
    if blurs or node.attr.bool("exclude_outside", 0):
        weights = node.emit("divide", weights, total)
    folded = node.emit("equal", node.emit("expand_dims", nearest, axes=[1]), positions(node, axis.size))
    weights = node.emit("matmul", weights, node.emit("cast", folded, dtype=WIDE))
    kind = type_of(x)
    matrix = node.emit("cast", weights, dtype=kind.dtype)
    order = [i for i in range(kind.rank) if i != axis.axis] + [axis.axis]
    back = [order.index(i) for i in range(kind.rank)]
    product = node.emit("matmul", node.emit("permute", x, axes=order), matrix, transpose_rhs=True)
    return node.emit("permute", product, axes=back)


def _linear(node: Node, distance: ir.Value) -> ir.Value:
    return node.emit("maximum", node.emit("subtract", _number(node, 1), distance), _number(node, 0))


def _cubic(node: Node, distance: ir.Value) -> ir.Value:
    """Return Keys' cubic kernel."""
    a = node.attr.float("cubic_coeff_a", -0.75)

    def polynomial(*factors: float) -> ir.Value:
        made: ir.Value = _number(node, factors[0])
        for factor in factors[1:]:
            made = node.emit("add", node.emit("multiply", made, distance), _number(node, factor))
        return made

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    is_far = node.emit("where", node.emit("less", distance, _number(node, 2)), far, _number(node, 0))
    return node.emit("where", node.emit("less_equal", distance, _number(node, 1)), near, is_far)


def _outside(node: Node, at: ir.Value, axis: _Axis, rank: int) -> ir.Value:
    low, high = node.emit("less", at, _number(node, 0)), node.emit("greater", at, _number(node, axis.size - 1))
    shape = tuple(axis.count if i == axis.axis else 1 for i in range(rank))
    return node.emit("reshape", node.emit("logical_or", low, high), shape=shape)


def _or(node: Node, one: ir.Value | None, other: ir.Value) -> ir.Value:
    return other if one is None else node.emit("logical_or", one, other)
