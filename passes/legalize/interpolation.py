"""Interpolation along one axis, computed at compile time: the indices and weights of each output element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.dialects.core.budget import fits_table, require_table

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir


@dataclass(frozen=True)
class AxisTable:
    """Per output element: the indices that it reads, their weights, and whether it is outside of the operand."""

    indices: np.ndarray
    weights: np.ndarray
    outside: np.ndarray

    @property
    def taps(self) -> int:
        return self.indices.shape[1]

    @property
    def is_identity(self) -> bool:
        return self.affine == (1, 0, 1)

    @property
    def affine(self) -> tuple[int, int, int] | None:
        """Return (scale, offset, divisor) if a single index (i * scale + offset) // divisor is read, else None."""
        if self.taps != 1 or self.outside.any():
            return None
        read = self.indices[:, 0]
        places = np.arange(len(read))
        factor = int(read[1] - read[0]) if len(read) > 1 else 0
        start = int(read[0])
        if np.array_equal(read, places * factor + start):
            return factor, start, 1
        repeat = int((read == start).sum())
        if np.array_equal(read, places // repeat + start):
            return 1, start * repeat, repeat
        return None


def is_affordable(op: Any, counts: Sequence[int]) -> bool:
    """Return whether tables of `relax.resize` for axes of these sizes may be computed at compile time."""
    return all(fits_table(*_table_shape(op, count)) for count in counts)


def _table_shape(op: ir.OpView, count: int) -> tuple[int, ...]:
    return count, {"nearest": 1, "cubic": 4}.get(op.mode, 2)


def axis_table(op: Any, axis: int, size: int, count: int) -> AxisTable:
    """Return the table of `relax.resize` for an axis resized from `size` to `count` elements."""
    require_table(f"where axis {axis} is read", *_table_shape(op, count))
    scale = op.scales[axis] if op.scales else count / size
    at = _coordinates(op, axis, size, count, scale)
    outside = (at < 0) | (at > size - 1) if op.coordinates == "tf_crop_and_resize" else np.zeros(count, bool)
    if op.mode == "nearest":
        indices = _nearest(at, op.nearest)[:, None]
        weights = np.ones((count, 1))
    else:
        low = np.floor(at)
        offsets = np.arange(-1, 3) if op.mode == "cubic" else np.arange(2)
        indices = low[:, None] + offsets
        distance = np.abs(at[:, None] - indices)
        weights = _cubic(distance, op.cubic_coeff) if op.mode == "cubic" else 1.0 - distance
        if op.exclude_outside:
            weights = np.where((indices < 0) | (indices >= size), 0.0, weights)
            weights /= weights.sum(axis=1, keepdims=True)
    inside = np.clip(indices, 0, size - 1).astype(np.int32)
    return _single(AxisTable(inside, weights.astype(np.float32), outside))


def _single(table: AxisTable) -> AxisTable:
    """Reduce to one tap if all others have weight 0 or read the same element."""
    heaviest = np.abs(table.weights).argmax(axis=1)[:, None]
    chosen = np.take_along_axis(table.indices, heaviest, 1)
    if np.where(table.indices == chosen, 0, table.weights).any():
        return table
    return AxisTable(chosen, np.ones_like(chosen, dtype=np.float32), table.outside)


def _coordinates(op: ir.OpView, axis: int, size: int, count: int, scale: float) -> np.ndarray:
    """Return the coordinates of the output elements in the operand."""
    i = np.arange(count, dtype=np.float64)
    kind = op.coordinates
    if kind == "asymmetric":
        return i / scale
    if kind == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if kind == "align_corners":
        return i * (size - 1) / (count - 1) if count > 1 else np.zeros(1)
    if kind == "tf_crop_and_resize":
        start, end = op.roi[axis], op.roi[axis + len(op.roi) // 2]
        if count == 1:
            return np.array([0.5 * (start + end) * (size - 1)])
        return start * (size - 1) + i * (end - start) * (size - 1) / (count - 1)
    if kind == "pytorch_half_pixel" and count == 1:
        return np.zeros(1)
    half = (i + 0.5) / scale - 0.5
    if kind == "half_pixel_symmetric":
        return size / 2 * (1 - count / (scale * size)) + half
    return half


def _nearest(at: np.ndarray, mode: str) -> np.ndarray:
    if mode == "round_prefer_floor":
        return np.ceil(at - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(at + 0.5)
    return np.floor(at) if mode == "floor" else np.ceil(at)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Evaluate Keys' cubic kernel."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
