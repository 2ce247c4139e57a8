"""Accesses by indices, and resampling of images."""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import Dim, Tensor, UnsupportedOperation
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter


@converter("gather")
def gather(op: TosaOperation) -> Tensor:
    """Convert `gather`: each batch has its own values and indices."""
    return _rows(op, *op.operands)


def _rows(op: TosaOperation, values: Tensor, indices: Tensor) -> Tensor:
    if values.shape[0] == 1:
        return values.gather(indices.reshape(indices.shape[1:]), axis=1)
    batch, count, channels = values.shape
    return values.reshape((batch * count, channels)).gather(_of_all(op, indices, count))


@converter("row_gather")
def row_gather(op: TosaOperation) -> Tensor:
    """Convert `row_gather`: consecutive rows from each index on, their number in the third operand."""
    values, indices, count = op.operands[0], op.operands[1], int(op.number(2, "a number of rows"))
    if count == 1:
        return _rows(op, values, indices)
    following = indices.expand_dims(2) + indices.like(np.arange(count))
    return _rows(op, values, following.reshape((indices.shape[0], indices.shape[1] * count)))


@converter("scatter")
def scatter(op: TosaOperation) -> Tensor:
    """Convert `scatter`: replace rows of each batch at its own indices."""
    values, indices, rows = op.operands
    batch, count, channels = values.shape
    flat = _of_all(op, indices, count).reshape((*indices.shape, 1))
    result = op.emit("scatter_nd", values.reshape((batch * count, channels)), flat, rows)
    return result.reshape(values.shape)


def _of_all(op: TosaOperation, indices: Tensor, count: Dim) -> Tensor:
    """Convert indices into a batch to indices into all batches; invalid ones stay invalid."""
    wide = indices.cast("i64")
    return wide + (op.index_vector(indices.shape[0]) * op.size(count)).reshape((indices.shape[0], 1))


@converter("resize")
def resize(op: TosaOperation) -> Tensor:
    """Convert `resize`; positions are fractions of integers, so that neighbors and weights are constants."""
    x = op.operands[0]
    scale, offset, border = (op.numbers(index, "a scale and offsets that are known") for index in (1, 2, 3))
    sizes = x.shape[1:3]
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedOperation("needs a known height and width")
    is_nearest = op.word("mode") == "NEAREST_NEIGHBOR"
    if not is_nearest and not x.dtype.is_float:
        x = x.cast(op.declared().dtype)
    for axis in (1, 2):
        size, (up, down) = sizes[axis - 1], scale[2 * axis - 2 : 2 * axis]
        if min(up, down) < 1:
            raise UnsupportedOperation(f"scales by {up} / {down}: expected positive numbers")
        count = ((int(size) - 1) * up - offset[axis - 1] + border[axis - 1]) // down + 1
        positions = np.arange(count) * down + offset[axis - 1]
        x = _nearest(x, axis, positions, up) if is_nearest else _linear(x, axis, positions, up)
    return x


def _neighbours(x: Tensor, axis: int, positions: np.ndarray, unit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the elements before and after positions, and the distances from the former, in 1 / unit."""
    first = positions // unit
    size = x.shape[axis]
    assert isinstance(size, int)
    return np.clip(first, 0, size - 1), np.clip(first + 1, 0, size - 1), positions - first * unit


def _nearest(x: Tensor, axis: int, positions: np.ndarray, unit: int) -> Tensor:
    first, following, part = _neighbours(x, axis, positions, unit)
    return _taken(x, axis, np.where(2 * part >= unit, following, first))


def _linear(x: Tensor, axis: int, positions: np.ndarray, unit: int) -> Tensor:
    """Interpolate along an axis; integers are scaled by the unit, since they are not divided by it."""
    first, following, part = _neighbours(x, axis, positions, unit)
    shape = [-1 if i == axis else 1 for i in range(x.rank)]
    whole, near = (1.0, part / unit) if x.dtype.is_float else (unit, part)
    weights = [x.like(np.asarray(each).reshape(shape)) for each in (whole - near, near)]
    if not part.any():
        only = _taken(x, axis, first)
        return only if x.dtype.is_float or unit == 1 else only * unit
    return _taken(x, axis, first) * weights[0] + _taken(x, axis, following) * weights[1]


def _taken(x: Tensor, axis: int, indices: np.ndarray) -> Tensor:
    size = x.shape[axis]
    if isinstance(size, int) and np.array_equal(indices, np.arange(size)):
        return x
    return x.gather(x.builder.constant(indices.astype(np.int64), "i64"), axis=axis)
