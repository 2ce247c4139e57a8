"""Interpolation along one axis: coordinates, kernels and weights, written once for arrays and for elements of loops.

With sizes that are known, they are evaluated by numpy into the table of an axis. With others, `as_scalar_function`
makes expressions of them, which are evaluated at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.budget import fits_table, require_table
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.relax.vision import CORNERS, CROP, RATIO
from mirlo.runtime.records import dataclass

RADIUS = {"linear": 1, "cubic": 2}
"""How far the kernels reach, in elements."""
HALFWAY = 1e-6
"""How near to the middle of two elements a coordinate is in the middle, as ONNX Runtime takes it."""


@dataclass(frozen=True)
class AxisTable:
    """Per output element: the indices that it reads, their weights, and whether it is outside of the operand."""

    indices: np.ndarray
    weights: np.ndarray
    outside: np.ndarray

    @property
    def taps(self) -> int:
        return int(self.indices.shape[1])

    @property
    def is_identity(self) -> bool:
        return self.affine == (1, 0, 1)

    @property
    def affine(self) -> tuple[int, int, int] | None:
        """Return (scale, offset, divisor) if a single index (i * scale + offset) // divisor is read, else None."""
        if self.taps != 1 or self.outside.any():
            return None
        read = self.indices[:, 0]
        indices = np.arange(len(read))
        factor = int(read[1] - read[0]) if len(read) > 1 else 0
        start = int(read[0])
        if np.array_equal(read, indices * factor + start):
            return factor, start, 1
        repeat = int((read == start).sum())
        if np.array_equal(read, indices // repeat + start):
            return 1, start * repeat, repeat
        return None


def is_affordable(op: ir.OpView, shape: Sequence[int], output: Sequence[int]) -> bool:
    """Return whether tables of `relax.resize` for axes of these sizes may be computed at compile time."""
    pairs = zip(shape, output, strict=True)
    return all(fits_table(*_table_shape(op, i, size, count)) for i, (size, count) in enumerate(pairs) if count)


def _table_shape(op: ir.OpView, axis: int, size: int, count: int) -> tuple[int, ...]:
    return count, 1 if op.mode == "nearest" else 2 * _reach(op, _scale(op, axis, size, count))


def _scale(op: ir.OpView, axis: int, size: int, count: int) -> float:
    return float(op.scales[axis]) if op.scales else count / size


def _reach(op: ir.OpView, scale: float) -> int:
    """Return how many elements on each side of a coordinate have a weight."""
    radius = RADIUS[op.mode]
    return math.ceil(radius / scale) if op.antialias and scale < 1 else radius


def axis_table(op: ir.OpView, axis: int, size: int, count: int) -> AxisTable:
    """Return the table of `relax.resize` for an axis resized from `size` to `count` elements."""
    require_table(f"where axis {axis} is read", *_table_shape(op, axis, size, count))
    scale = _scale(op, axis, size, count)
    region = (op.roi[axis], op.roi[axis + len(op.roi) // 2]) if op.roi else (0.0, 1.0)
    number = DTYPES[coordinate_type(op)].to_numpy().type
    numbers = [number(each) for each in (size, count, factor_of(scale, size, kind=op.coordinates), *region)]
    at = coordinate(np.arange(count).astype(number), *numbers, kind=op.coordinates)
    outside = (at < 0) | (at > size - 1) if op.coordinates == CROP else np.zeros(count, bool)
    if op.mode == "nearest":
        indices = nearest(at, rounding=op.nearest)[:, None]
        weights = np.ones((count, 1))
    else:
        reach = _reach(op, scale)
        indices = np.floor(at)[:, None] + np.arange(1 - reach, reach + 1)
        weights = tap_weight(at[:, None], indices, size, scale, **tap_options(op))
        if is_normalized(op):
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


def coordinate_type(op: ir.OpView) -> str:
    """Return the type of coordinates: their rounding decides which element is nearest, and hardly affects weights."""
    return "f32" if op.mode == "nearest" else "f64"


def factor_of(scale: np.ndarray | float, size: float, *, kind: str) -> np.ndarray | float:
    """Return the factor of the scale for a kind of coordinates, in f64: a divisor, or a multiplier."""
    if kind == RATIO:
        return 1.0 / scale
    # As in ONNX's reference, the end follows from the scale, not from the last whole element.
    return scale * size - 1.0 if kind in (CORNERS, CROP) else scale


def coordinate(
    i: np.ndarray, size: float, count: float, factor: float, begin: float, end: float, *, kind: str
) -> np.ndarray:
    """Return the coordinates of output elements in the operand; see `factor_of`."""
    if kind == RATIO:
        return i * factor
    if kind == "asymmetric":
        return i / factor
    is_one = np.equal(count, 1.0)
    if kind in (CORNERS, CROP):
        last, steps = size - 1.0, np.where(is_one, 1.0, factor)
        if kind == CORNERS:
            return np.where(is_one, 0.0, i * last / steps)
        return np.where(is_one, (begin + end) * 0.5 * last, begin * last + i * (end - begin) * last / steps)
    middle = (i + 0.5) / factor
    if kind == "tf_half_pixel_for_nn":
        return middle
    if kind == "half_pixel_symmetric":
        return size * 0.5 * (1.0 - count / (factor * size)) + (middle - 0.5)
    if kind == "pytorch_half_pixel":
        return np.where(is_one, 0.0, middle - 0.5)
    return middle - 0.5


def nearest(at: np.ndarray, *, rounding: str) -> np.ndarray:
    """Return the indices next to coordinates."""
    below: np.ndarray = np.floor(at)
    if rounding == "round_prefer_floor":
        is_above = at - below >= 0.5 + HALFWAY
    elif rounding == "round_prefer_ceil":
        is_above = at - below > 0.5 - HALFWAY
    elif rounding == "ceil":
        is_above = at > below
    else:
        return below
    result: np.ndarray = np.where(is_above, below + 1.0, below)
    return result


def tap_weight(
    at: np.ndarray, index: np.ndarray, size: float, scale: float,
    *, mode: str, cubic_coeff: float, antialias: bool, exclude_outside: bool,
) -> np.ndarray:  # fmt: skip
    """Return the weights of the operand's elements at coordinates; see `is_normalized`."""
    distance = np.abs(at - index)
    if antialias:  # the kernel is as wide as the range of the operand that an output element stands for
        distance = distance * np.minimum(scale, 1.0)
    weight = keys_kernel(distance, a=cubic_coeff) if mode == "cubic" else np.maximum(1.0 - distance, 0.0)
    return np.where((index < 0.0) | (index >= size), 0.0, weight) if exclude_outside else weight


class TapOptions(TypedDict):
    """The options of weights besides coordinates."""

    mode: str
    cubic_coeff: float
    antialias: bool
    exclude_outside: bool


def tap_options(op: ir.OpView) -> TapOptions:
    """Return the options of `tap_weight` for an operator."""
    return {
        "mode": op.mode, "cubic_coeff": op.cubic_coeff, "antialias": op.antialias,
        "exclude_outside": op.exclude_outside,
    }  # fmt: skip


def is_normalized(op: ir.OpView) -> bool:
    """Return whether weights must be divided by their sum, which is not 1."""
    return bool(op.antialias or op.exclude_outside)


def keys_kernel(distance: np.ndarray, *, a: float) -> np.ndarray:
    """Evaluate Keys' cubic kernel."""
    near, far = keys_near(distance, a=a), keys_far(distance, a=a)
    return np.where(distance <= 1.0, near, np.where(distance < 2.0, far, 0.0))


def keys_near(distance: np.ndarray, *, a: float) -> np.ndarray:
    """Evaluate Keys' cubic kernel at distances up to 1."""
    result: np.ndarray = ((a + 2) * distance - (a + 3)) * distance * distance + 1.0
    return result


def keys_far(distance: np.ndarray, *, a: float) -> np.ndarray:
    """Evaluate Keys' cubic kernel at distances from 1 to 2."""
    result: np.ndarray = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return result
