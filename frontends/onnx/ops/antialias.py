"""Resizing with antialiasing: along each axis, one product with a weight matrix."""

from __future__ import annotations

import math

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, type_of

_RADIUS = {"linear": 1.0, "cubic": 2.0}


def resize_antialiased(
    node: Node, shape: tuple[Dim, ...], scales: list[float], mode: str, coordinates: str
) -> ir.Value:
    """Convert a Resize with 'antialias': the kernel is as wide as the input range of one output element."""
    x = node.type(0)
    if mode not in _RADIUS or coordinates == "tf_crop_and_resize":
        raise NodeError(
            f"attribute 'antialias' = 1 is not supported with mode '{mode}' and coordinates '{coordinates}'"
        )
    sizes = [size for size in shape if isinstance(size, int)]
    if not x.is_static or len(sizes) != len(shape):
        raise NodeError(f"attribute 'antialias' = 1 needs a known shape, got {x}")
    cubic_coeff = node.attr.float("cubic_coeff_a", -0.75)
    exclude_outside = node.attr.bool("exclude_outside", 0)
    node.attr.ignore("nearest_mode", "extrapolation_value")
    result = node[0]
    for axis, (old, new) in enumerate(zip(x.static_shape, sizes, strict=True)):
        if old == new and scales[axis] == 1:
            continue
        reach = _reach(min(scales[axis], 1.0), mode)
        require_table(f"the weights of axis {axis}", new, max(old, 2 * reach + 1), element_bytes=4)
        centres = _centres(old, new, scales[axis], coordinates)
        weights = _weights(centres, old, min(scales[axis], 1.0), mode, cubic_coeff, exclude_outside)
        result = _along(node, result, node.constant(weights, x), axis)
    return result


def _centres(old: int, new: int, scale: float, coordinates: str) -> np.ndarray:
    """Return the input coordinates of the output elements."""
    at = np.arange(new, dtype=np.float64)
    length = scale * old
    match coordinates:
        case "align_corners":
            return at * (old - 1) / (length - 1) if length != 1 else np.zeros(new)
        case "asymmetric":
            return at / scale
        case "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if length != 1 else np.full(new, -0.5)
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            return old / 2 * (1 - new / length) + (at + 0.5) / scale - 0.5
    raise NodeError(
        f"attribute 'coordinate_transformation_mode' = '{coordinates}' is not supported with 'antialias' = 1"
    )


def _reach(scale: float, mode: str) -> int:
    """Return the elements of the input that the kernel covers on each side of its centre."""
    return math.ceil(_RADIUS[mode] / scale) + 1


def _weights(
    centres: np.ndarray, size: int, scale: float, mode: str, cubic_coeff: float, exclude_outside: bool
) -> np.ndarray:
    """Return [new, old] weights of each input element in each output element. The input is extended by its edges."""
    reach = _reach(scale, mode)
    steps = np.arange(-reach, reach + 1)
    positions = np.floor(centres)[:, None].astype(np.int64) + steps
    distance = np.abs(positions - centres[:, None]) * scale
    values = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, cubic_coeff)
    if exclude_outside:
        values = np.where((positions >= 0) & (positions < size), values, 0)
    values /= values.sum(axis=1, keepdims=True)
    weights = np.zeros((len(centres), size))
    rows = np.broadcast_to(np.arange(len(centres))[:, None], positions.shape)
    np.add.at(weights, (rows, np.clip(positions, 0, size - 1)), values)
    return weights


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _along(node: Node, x: ir.Value, weights: ir.Value, axis: int) -> ir.Value:
    """Multiply x with the weights along an axis."""
    rank = type_of(x).rank
    if axis == rank - 1:
        return node.emit("matmul", x, weights, transpose_rhs=True)
    if axis == rank - 2:
        return node.emit("matmul", weights, x)
    order = [*(i for i in range(rank) if i != axis), axis]
    product = node.emit("matmul", node.emit("permute", x, axes=order), weights, transpose_rhs=True)
    return node.emit("permute", product, axes=[order.index(i) for i in range(rank)])
