"""Fourier transforms as products with a constant matrix, which is fast for the lengths of audio models."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import require_equal_dims
from mirlo.frontends.onnx.declared import required
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.ops.fourier_open import open_dft, open_inverse_real, open_length, open_stft
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.runtime_sizes import as_value, scalar
from mirlo.frontends.onnx.values import Converted

LONGEST = 8192
"""Longest transform; longer ones would need matrices of hundreds of megabytes."""


MAX_POSITIONS = 2**24
"""Most elements of all frames of a signal: ten minutes of speech, for example."""


@converter("DFT", since=17)
def dft_attribute(node: Node) -> Converted:
    return _dft(node, node.attr.int("axis", 1))


@converter("DFT", since=20)
def dft(node: Node) -> Converted:
    if not node.has(2) or node.value(2).is_constant:
        return _dft(node, int(node.scalar(2, -2)))
    return _dft_of_run_time(node)


def _dft_of_run_time(node: Node) -> ir.Value:
    """Convert DFT with a run-time axis: select among the axes that make the declared shape."""
    x, rank = node.type(0), node.type(0).rank
    declared: tuple[Dim, ...] | None = node.declared(0)
    if declared is None and not node.has(1) and not node.attr.bool("onesided", 0):
        declared = (*x.shape[:-1], 2)  # whichever axis it is
    if declared is None:
        raise NodeError("input 'axis' must be a constant, or the model must declare the shape of the result")
    fitting: dict[int, ir.Value] = {}
    for axis in range(rank - 1):
        with suppress(NodeError):  # an axis that cannot be transformed is not a candidate
            made = _dft(node, axis)
            if type_of(made).shape == declared:
                fitting[axis] = made
    if not fitting:
        raise NodeError(f"no axis makes the shape {list(declared)} that is declared")
    given = scalar(node, 2)

    def is_axis(axis: int) -> ir.Value:
        names = [node.emit("equal", given, node.constant(number, type_of(given))) for number in (axis, axis - rank)]
        return node.emit("logical_or", *names)

    flags = {axis: is_axis(axis) for axis in fitting}
    result: ir.Value | None = None
    known: ir.Value | None = None
    for axis, value in fitting.items():
        result = value if result is None else node.emit("where", flags[axis], value, result)
        known = flags[axis] if known is None else node.emit("logical_or", known, flags[axis])
    assert result is not None and known is not None
    return required(node, known, "input 'axis' is another", result)


def _dft(node: Node, axis: int) -> ir.Value:
    """Transform along one axis of a tensor whose last dim holds the real and possibly the imaginary part."""
    x = node.type(0)
    if not -x.rank <= axis < x.rank or axis % x.rank == x.rank - 1 or x.shape[-1] not in (1, 2, *_open(x.shape[-1])):
        raise NodeError(f"the axis is {axis} of {x}, of which the last dim must be 1 or 2 and cannot be transformed")
    axis %= x.rank
    size, parts = x.shape[axis], x.shape[-1]
    if not isinstance(parts, int):
        require_equal_dims(parts, 2, f"the last dim of {x} and the parts of a complex number")
    inverse, onesided = node.attr.bool("inverse", 0), node.attr.bool("onesided", 0)
    length: Dim = 2 * (size - 1) if inverse and onesided else size
    if node.has(1):
        length = int(node.scalar(1)) if node.value(1).is_constant else open_length(node, 1)
    order = [*(i for i in range(x.rank) if i not in (axis, x.rank - 1)), axis, x.rank - 1]
    rows = node.emit("permute", node[0], axes=order)
    if not isinstance(size, int) or not isinstance(length, int):
        real = inverse and onesided
        result = open_inverse_real(node, rows, length) if real else open_dft(node, rows, length, inverse, onesided)
    elif inverse and onesided:
        result = _transformed(node, rows, _inverse_real(size, length), 1)
    else:
        result = _transformed(node, rows, _matrix(size, _number(parts), length, inverse, onesided), 2)
    return node.emit("permute", result, axes=[order.index(i) for i in range(x.rank)])


@converter("STFT", since=17)
def stft(node: Node) -> Converted:
    """Convert STFT: frames of the signal, times a window, each transformed."""
    if node.type(0).rank == 2:  # a real signal, as [batch, length, 1]
        real = node.emit("reshape", node[0], shape=(*node.type(0).shape, 1))
        node.inputs = [as_value(real), *node.inputs[1:]]
    x, parts = node.type(0), node.type(0).shape[-1]
    if x.rank != 3 or parts not in (1, 2, *_open(parts)):
        raise NodeError(f"input 'signal' must be [batch, length, 1 or 2], got {x}")
    if not isinstance(parts, int):
        require_equal_dims(parts, 2, f"the last dim of {x} and the parts of a complex number")
    if not node.has(2) and not node.has(3):
        raise NodeError("one of the inputs 'window' and 'frame_length' must be there")
    if node.has(2) and node.type(2).rank != 1:
        raise NodeError(f"input 'window' must have one dim, got {node.type(2)}")
    onesided = node.attr.bool("onesided", 1)
    if not isinstance(x.shape[1], int) or (node.has(2) and not isinstance(node.type(2).shape[0], int)):
        return open_stft(node, onesided)
    window = node.type(2).shape[0] if node.has(2) else 0
    assert isinstance(window, int)
    if node.value(1).is_constant and (not node.has(3) or node.value(3).is_constant):
        step, length = int(node.scalar(1)), int(node.scalar(3, 0)) or window
        if not isinstance(length, int) or not 0 < length <= x.shape[1] or step < 1:
            raise NodeError(f"frames of {length} elements every {step} do not fit a signal of {x.shape[1]}")
        require_table("where the frames begin", (x.shape[1] - length) // step + 1)
        starts = np.arange(0, x.shape[1] - length + 1, step)
        return _frames(node, node.constant(starts), len(starts), length, onesided)
    return _stft_of_run_time(node, x.shape[1], window, onesided)


def _stft_of_run_time(node: Node, size: int, window: int, onesided: bool) -> ir.Value:
    """Convert STFT with a run-time step or length: compute what makes the declared shape."""
    declared = node.declared(0)
    if declared is None or len(declared) != 4:
        return open_stft(node, onesided)
    count, bins = declared[1], declared[2]
    lengths = [2 * bins - 2, 2 * bins - 1] if onesided else [bins]
    if node.has(3) and node.value(3).is_constant:
        lengths = [int(node.scalar(3))]
    elif not node.has(3):
        lengths = [window]
    step = node.emit("cast", scalar(node, 1), dtype="i64")
    require_table("where the frames begin", count)
    starts = node.emit("multiply", node.constant(np.arange(count)), step)
    given = node.emit("cast", scalar(node, 3), dtype="i64") if node.has(3) else node.constant(np.int64(lengths[0]))
    result = fits = None
    for length in lengths:
        if not 0 < length <= size or (node.has(2) and window != length):
            continue
        made = _frames(node, starts, count, length, onesided)
        room = node.emit(
            "subtract", node.constant(np.int64(size - length)), node.emit("multiply", step, _whole(node, count - 1))
        )
        one = node.emit("logical_and", node.emit("equal", given, _whole(node, length)), _between(node, room, step))
        result = made if result is None else node.emit("where", one, made, result)
        fits = one if fits is None else node.emit("logical_or", fits, one)
    if fits is None or result is None:
        raise NodeError(f"no length of frames makes the shape {list(declared)} that is declared")
    return required(node, fits, "inputs 'frame_step' and 'frame_length' are others", result)


def _whole(node: Node, number: int) -> ir.Value:
    return node.constant(np.int64(number))


def _between(node: Node, room: ir.Value, step: ir.Value) -> ir.Value:
    """Return whether the signal continues after the last frame, but by less than one step."""
    return node.emit("logical_and", node.emit("greater_equal", room, _whole(node, 0)), node.emit("less", room, step))


def _frames(node: Node, starts: ir.Value, count: int, length: int, onesided: bool) -> ir.Value:
    """Return the transforms of frames that start at these positions."""
    if count * length > MAX_POSITIONS:
        raise NodeError(f"{count} frames of {length} elements are too many")
    column = node.emit("reshape", starts, shape=(count, 1))
    positions = node.emit("add", column, node.constant(np.arange(length)[None]))
    frames = node.emit("gather", node[0], positions, axis=1)
    if node.has(2):
        window = node.emit("reshape", node[2], shape=(length, 1))
        frames = node.emit("multiply", frames, window)
    parts = node.type(0).shape[-1]
    assert isinstance(parts, int)
    return _transformed(node, frames, _matrix(length, parts, length, False, onesided), 2)


def _transformed(node: Node, rows: ir.Value, matrix: np.ndarray, parts: int) -> ir.Value:
    """Multiply [..., size, parts] with a matrix [size * parts, length * parts]; return [..., length, parts]."""
    *outer, size, given = type_of(rows).shape
    flat = node.emit("reshape", rows, shape=(*outer, size * given))
    product = node.emit("matmul", flat, node.constant(matrix, type_of(rows)))
    return node.emit("reshape", product, shape=(*outer, matrix.shape[1] // parts, parts))


def _open(dim: Dim) -> tuple[Dim, ...]:
    """Return the dim itself if it is dynamic."""
    return () if isinstance(dim, int) else (dim,)


def _number(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


def _angles(size: int, count: int, length: int) -> np.ndarray:
    """Return 2 pi n k / length, [size, count]; the product is reduced first, to keep precision."""
    if not 0 < length <= LONGEST:
        raise NodeError(f"a transform of length {length} is not supported: from 1 to {LONGEST} are")
    if size > LONGEST:
        raise NodeError(f"a transform of {size} elements is not supported: at most {LONGEST} are")
    return 2 * np.pi / length * (np.outer(np.arange(size), np.arange(count)) % length)


def _matrix(size: int, parts: int, length: int, inverse: bool, onesided: bool) -> np.ndarray:
    """Return [size * parts, count * 2], which maps values to their complex transform.

    Elements beyond `length` are cut off.
    """
    count = length // 2 + 1 if onesided else length
    angles = _angles(size, count, length)
    real, imaginary = np.cos(angles), (1 if inverse else -1) * np.sin(angles)
    matrix = np.zeros((size, parts, count, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = real, imaginary
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -imaginary, real
    matrix[length:] = 0
    return matrix.reshape(size * parts, count * 2) / (length if inverse else 1)


def _inverse_real(size: int, length: int) -> np.ndarray:
    """Return the matrix from half a spectrum to its real signal: the other half is its mirror image."""
    angles = _angles(size, length, length)
    weights = np.full((size, 1), 2.0)
    weights[0] = 1
    if length % 2 == 0 and length // 2 < size:
        weights[length // 2] = 1
    weights[length // 2 + 1 :] = 0
    matrix = np.stack([np.cos(angles) * weights, -np.sin(angles) * weights], axis=1)
    return matrix.reshape(size * 2, length) / length
