"""Gather and scatter.

A negative index counts from the end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mirlo.dialects.core.attributes import Int, Str
from mirlo.dialects.core.conditions import require_at_most, require_elements, require_equal
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.traits import Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings, meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    INTEGER,
    normalize_axis,
    require_equal_dims,
    require_equal_shapes,
    require_kind,
    same_dtype,
)

REDUCTIONS = ("none", "add", "mul", "max", "min")


class Gather(RelaxOp, name="gather"):
    """numpy's `take`: slices of x at `indices` along the axis."""

    TRAITS = (Trait.SUBSET,)
    PRECISION = Precision.STORED
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.gather)
    sharding = staticmethod(shardings.gather)
    x = operand()
    indices = operand()
    axis = Int(0)

    @staticmethod
    def infer(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
        require_kind(indices, INTEGER, "indices")
        axis = normalize_axis(axis, x.rank)
        shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        _require_indexed(x, (axis,), indices, shape)
        return x.with_shape(shape)


class GatherElements(RelaxOp, name="gather_elements"):
    """numpy's `take_along_axis`: `indices` holds, for each element of the result, its position along the axis."""

    TRAITS = (Trait.SUBSET,)
    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x, indices, *, axis: np.take_along_axis(x, indices, axis))
    sharding = staticmethod(shardings.gather_elements)
    x = operand()
    indices = operand()
    axis = Int(0)

    @staticmethod
    def infer(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
        _require_element_indices(x, indices, axis)
        _require_indexed(x, (axis % x.rank,), indices, indices.shape)
        return x.with_shape(indices.shape)


class GatherNd(RelaxOp, name="gather_nd"):
    """Slices of x at points: the last dim of `indices` holds coordinates in the dims after the `batch_dims`."""

    TRAITS = (Trait.SUBSET,)
    PRECISION = Precision.MOVES
    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.gather_nd)
    x = operand()
    indices = operand()
    batch_dims = Int(0)

    @staticmethod
    def infer(x: TensorType, indices: TensorType, *, batch_dims: int) -> TensorType:
        depth = _point_size(x, indices, batch_dims)
        for i in range(batch_dims):
            require_equal_dims(x.shape[i], indices.shape[i], f"batch dim {i} of {x} and indices {indices}")
        shape = (*indices.shape[:-1], *x.shape[batch_dims + depth :])
        _require_indexed(x, range(batch_dims, batch_dims + depth), indices, shape)
        return x.with_shape(shape)


class ScatterElements(RelaxOp, name="scatter_elements"):
    """A copy of x in which `updates` are written (or combined) at the positions along the axis in `indices`."""

    meaning = staticmethod(array_meanings.scatter_elements)
    x = operand()
    indices = operand()
    updates = operand()
    axis = Int(0)
    reduction = Str("none", choices=REDUCTIONS)

    @staticmethod
    def infer(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduction: str) -> TensorType:
        same_dtype("operand and updates", x, updates)
        _require_element_indices(x, indices, axis)
        require_equal_shapes(updates.shape, indices.shape, "updates and indices")
        return x


class ScatterNd(RelaxOp, name="scatter_nd"):
    """A copy of x in which slices `updates` are written (or combined) at the points in the last dim of `indices`."""

    meaning = staticmethod(array_meanings.scatter_nd)
    sharding = staticmethod(shardings.scatter_nd)
    x = operand()
    indices = operand()
    updates = operand()
    reduction = Str("none", choices=REDUCTIONS)

    @staticmethod
    def infer(x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str) -> TensorType:
        same_dtype("operand and updates", x, updates)
        depth = _point_size(x, indices, 0)
        expected = (*indices.shape[:-1], *x.shape[depth:])
        require_equal_shapes(updates.shape, expected, f"updates and the slices of {x} at indices {indices}")
        return x


class OneHot(RelaxOp, name="one_hot"):
    """One-hot encoding: the result is `on` where its position along the new axis equals the index, else `off`.

    `values` is [off, on].
    """

    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.one_hot)
    indices = operand()
    values = operand()
    depth = Int()
    axis = Int(-1)

    @staticmethod
    def infer(indices: TensorType, values: TensorType, *, depth: int, axis: int) -> TensorType:
        require_kind(indices, ("int", "uint", "float"), "indices")
        text = f"values must be [off, on], a vector of 2, got {values}"
        if values.rank != 1:
            raise OpError(text)
        require_equal(values.shape[0], 2, text)
        if depth < 0:
            raise OpError(f"depth must not be negative, got {depth}")
        axis = normalize_axis(axis, indices.rank + 1)
        return values.with_shape((*indices.shape[:axis], depth, *indices.shape[axis:]))


def _require_element_indices(x: TensorType, indices: TensorType, axis: int) -> None:
    require_kind(indices, INTEGER, "indices")
    axis = normalize_axis(axis, x.rank)
    if indices.rank != x.rank:
        raise OpError(f"indices must have the rank of the operand {x}, got {indices}")
    for i, (size, count) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i != axis:
            require_at_most(count, size, f"dim {i} of indices {indices} must not exceed that of the operand {x}")


def _require_indexed(x: TensorType, axes: Iterable[int], indices: TensorType, shape: tuple[Dim, ...]) -> None:
    """Require that the axes that are indexed are not empty, if the result of this shape has elements."""
    for axis in axes:
        require_elements(x.shape[axis], shape, f"axis {axis} of the operand {x}, which {indices} indexes, is empty")


def _point_size(x: TensorType, indices: TensorType, batch_dims: int) -> int:
    """Return how many coordinates a point has."""
    require_kind(indices, INTEGER, "indices")
    if not 0 <= batch_dims < min(x.rank, max(indices.rank, 1)) and batch_dims != 0:
        raise OpError(f"batch_dims must be less than the ranks of {x} and {indices}, got {batch_dims}")
    depth = indices.shape[-1] if indices.rank else None
    if not isinstance(depth, int):
        raise OpError(f"the last dim of indices, the size of a point, must be a number, got {indices}")
    if not 1 <= depth <= x.rank - batch_dims:
        raise OpError(f"points of {depth} coordinates do not fit the {x.rank - batch_dims} dims of {x} to index")
    return depth
