"""Fourier transforms of symbolic lengths: the matrices are computed at run time."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.runtime_sizes import as_scalar, bind, i64_constant, positions, scalar, unless

EXACT = "f64"
"""The type in which angles are computed, as at import."""


def open_dft(node: Node, rows: ir.Value, length: Dim, inverse: bool, onesided: bool) -> ir.Value:
    """Transform rows [..., size, 1 or 2] to [..., bins, 2]; elements beyond `length` are cut off."""
    *outer, size, parts = type_of(rows).shape
    count = length // 2 + 1 if onesided else length
    cos, sin = _angles(node, size, count, length)
    if inverse:
        cos, sin = (node.emit("divide", each, _float(node, length)) for each in (cos, sin))
    else:
        sin = node.emit("negative", sin)
    here = node.emit("less", _column(node, size), as_scalar(node, length))
    zero = node.constant(0.0, EXACT)
    real, imaginary = (node.emit("where", here, each, zero) for each in (cos, sin))
    planes = [node.emit("stack", (real, imaginary), axis=2)]
    if parts == 2:
        planes.append(node.emit("stack", (node.emit("negative", imaginary), real), axis=2))
    matrix = node.emit("reshape", node.emit("stack", planes, axis=1), shape=(size * parts, count * 2))
    return _product(node, rows, matrix, (*outer, count, 2))


def open_inverse_real(node: Node, rows: ir.Value, length: Dim) -> ir.Value:
    """Transform half a spectrum, [..., size, 2], to its real signal, [..., length, 1]."""
    *outer, size, parts = type_of(rows).shape
    cos, sin = _angles(node, size, length, length)
    index, two = _column(node, size), i64_constant(node, 2)
    doubled = node.emit("multiply", index, two)
    total = as_scalar(node, length)
    once = node.emit("logical_or", node.emit("equal", index, i64_constant(node, 0)), node.emit("equal", doubled, total))
    weights = [node.constant(float(number), EXACT) for number in (1, 2, 0)]
    beyond = node.emit("where", node.emit("greater", doubled, total), weights[2], weights[1])
    weight = node.emit("divide", node.emit("where", once, weights[0], beyond), _float(node, length))
    planes = [node.emit("multiply", each, weight) for each in (cos, node.emit("negative", sin))]
    matrix = node.emit("reshape", node.emit("stack", planes, axis=1), shape=(size * parts, length))
    return _product(node, rows, matrix, (*outer, length, 1))


def open_stft(node: Node, onesided: bool) -> ir.Value:
    """Convert STFT of a signal of any length, with a size and step that may be run-time values."""
    size = node.type(0).shape[1]
    step, length = _frame_sizes(node, size)
    count = (size - length) // step + 1
    starts = node.emit("multiply", positions(node, count), as_scalar(node, step))
    places = node.emit("add", node.emit("reshape", starts, shape=(count, 1)), positions(node, length))
    frames = node.emit("gather", node[0], places, axis=1)
    if node.has(2):
        window = node.emit("slice_dims", node[2], begin=[0], shape=(length,), strides=[1])
        frames = node.emit("multiply", frames, node.emit("reshape", window, shape=(length, 1)))
    return open_dft(node, frames, length, False, onesided)


def _frame_sizes(node: Node, size: Dim) -> tuple[Dim, Dim]:
    """Return the step and the length of frames, checked at run time."""
    step = node.emit("cast", scalar(node, 1), dtype="i64")
    window = as_scalar(node, node.type(2).shape[0]) if node.has(2) else None
    length = node.emit("cast", scalar(node, 3), dtype="i64") if node.has(3) else window
    one = i64_constant(node, 1)
    fits = [
        node.emit("greater_equal", step, one),
        node.emit("greater_equal", length, one),
        node.emit("less_equal", length, as_scalar(node, size)),
    ]
    if window is not None:
        fits.append(node.emit("equal", length, window))
    made = unless(node, node.emit("stack", fits, axis=0), node.emit("stack", (step, length), axis=0))
    found = bind(node, made, f"frames of input 'frame_length' every 'frame_step' do not fit {node.type(0)}")
    return found[0], found[1]


def open_length(node: Node, index: int) -> Dim:
    """Return a length given by a run-time input."""
    given = node.emit("reshape", node.emit("cast", scalar(node, index), dtype="i64"), shape=(1,))
    wrong = node.emit("greater_equal", given, i64_constant(node, 1))
    (length,) = bind(node, unless(node, wrong, given), f"input '{node.input_name(index)}' must be at least 1")
    return length


def _angles(node: Node, size: Dim, count: Dim, length: Dim) -> tuple[ir.Value, ir.Value]:
    """Return cos and sin of 2 pi n k / length, [size, count]; the product is reduced first, to keep precision."""
    products = node.emit("multiply", _column(node, size), positions(node, count))
    reduced = node.emit("cast", node.emit("mod", products, as_scalar(node, length)), dtype=EXACT)
    unit = node.emit("divide", node.constant(2 * np.pi, EXACT), _float(node, length))
    angles = node.emit("multiply", reduced, unit)
    return node.emit("cos", angles), node.emit("sin", angles)


def _column(node: Node, size: Dim) -> ir.Value:
    return node.emit("reshape", positions(node, size), shape=(size, 1))


def _float(node: Node, dim: Dim) -> ir.Value:
    return node.emit("cast", as_scalar(node, dim), dtype=EXACT)


def _product(node: Node, rows: ir.Value, matrix: ir.Value, shape: tuple[Dim, ...]) -> ir.Value:
    *outer, size, parts = type_of(rows).shape
    flat = node.emit("reshape", rows, shape=(*outer, size * parts))
    made = node.emit("matmul", flat, node.emit("cast", matrix, dtype=type_of(rows).dtype))
    return node.emit("reshape", made, shape=shape)
