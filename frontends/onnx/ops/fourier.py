"""Fourier transforms: products with a constant matrix, which is fast for the lengths that audio models use."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of
from mirlo.frontends.onnx.registry import converter

LONGEST = 8192
"""Longer transforms would need matrices of hundreds of megabytes."""


MOST_POSITIONS = 2**24
"""Elements of all frames of a signal: ten minutes of speech, say."""


@converter("DFT", since=17)
def dft_attribute(node: Node) -> Any:
    return _dft(node, node.attr.int("axis", 1))


@converter("DFT", since=20)
def dft(node: Node) -> Any:
    return _dft(node, int(node.scalar(2, -2)))


def _dft(node: Node, axis: int) -> Any:
    """Along one axis of a tensor whose last dim holds the real and perhaps the imaginary part."""
    x = node.type(0)
    if not -x.rank <= axis < x.rank or axis % x.rank == x.rank - 1 or x.shape[-1] not in (1, 2):
        raise NodeError(f"the axis is {axis} of {x}, of which the last dim must be 1 or 2 and cannot be transformed")
    axis %= x.rank
    size, parts = x.shape[axis], x.shape[-1]
    if not isinstance(size, int) or not isinstance(parts, int):
        raise NodeError(f"the length must be known, got {x}")
    inverse, onesided = node.attr.bool("inverse", 0), node.attr.bool("onesided", 0)
    default = 2 * (size - 1) if inverse and onesided else size
    length = int(node.scalar(1, default))
    matrix = _inverse_real(size, length) if inverse and onesided else _matrix(size, parts, length, inverse, onesided)
    order = [*(i for i in range(x.rank) if i not in (axis, x.rank - 1)), axis, x.rank - 1]
    rows = node.emit("permute", node[0], axes=order)
    result = _transformed(node, rows, matrix, 1 if inverse and onesided else 2)
    return node.emit("permute", result, axes=[order.index(i) for i in range(x.rank)])


@converter("STFT", since=17)
def stft(node: Node) -> Any:
    """Frames of the signal, times a window, each transformed."""
    x, step = node.type(0), int(node.scalar(1))
    parts = x.shape[-1]
    if x.rank != 3 or not isinstance(x.shape[1], int) or not isinstance(parts, int) or parts not in (1, 2):
        raise NodeError(f"input 'signal' must be [batch, a known length, 1 or 2], got {x}")
    length = int(node.scalar(3, 0)) or (node.type(2).shape[0] if node.has(2) else 0)
    if not isinstance(length, int) or not 0 < length <= x.shape[1] or step < 1:
        raise NodeError(f"frames of {length} elements every {step} do not fit a signal of {x.shape[1]}")
    onesided = node.attr.bool("onesided", 1)
    if (x.shape[1] - length) // step * length > MOST_POSITIONS:
        raise NodeError(f"frames of {length} elements every {step} of a signal of {x.shape[1]} are too many")
    starts = np.arange(0, x.shape[1] - length + 1, step)
    positions = node.constant(starts[:, None] + np.arange(length))
    frames = node.emit("gather", node[0], positions, axis=1)
    if node.has(2):
        window = node.emit("reshape", node[2], shape=(length, 1))
        frames = node.emit("multiply", frames, window)
    return _transformed(node, frames, _matrix(length, parts, length, False, onesided), 2)


def _transformed(node: Node, rows: Any, matrix: np.ndarray, parts: int) -> Any:
    """[..., size, parts] times a matrix [size * parts, length * parts], as [..., length, parts]."""
    *outer, size, given = type_of(rows).shape
    flat = node.emit("reshape", rows, shape=(*outer, size * given))
    product = node.emit("matmul", flat, node.constant(matrix, type_of(rows)))
    return node.emit("reshape", product, shape=(*outer, matrix.shape[1] // parts, parts))


def _angles(size: int, count: int, length: int) -> np.ndarray:
    """2 pi n k / length, [size, count]; the product is reduced first, so that large ones keep their digits."""
    if not 0 < length <= LONGEST:
        raise NodeError(f"a transform of length {length} is not supported: from 1 to {LONGEST} are")
    return 2 * np.pi / length * (np.outer(np.arange(size), np.arange(count)) % length)


def _matrix(size: int, parts: int, length: int, inverse: bool, onesided: bool) -> np.ndarray:
    """[size * parts, count * 2]: takes numbers to their complex transform; what is beyond `length` is cut off."""
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
    """What takes half a spectrum to the real signal that it is of: the other half is its mirror image."""
    angles = _angles(size, length, length)
    weights = np.full((size, 1), 2.0)
    weights[0] = 1
    if length % 2 == 0 and length // 2 < size:
        weights[length // 2] = 1
    weights[length // 2 + 1 :] = 0
    matrix = np.stack([np.cos(angles) * weights, -np.sin(angles) * weights], axis=1)
    return matrix.reshape(size * 2, length) / length
