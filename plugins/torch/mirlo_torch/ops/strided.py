"""Reads and writes of a contiguous tensor by strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.frontend import Dim, Tensor, TensorType, UnsupportedOperation
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_PLACES = 1 << 20
"""Elements whose places are computed when importing."""


def _numbers(dims: Sequence[Dim]) -> tuple[int, ...]:
    numbers = tuple(dim for dim in dims if isinstance(dim, int))
    if len(numbers) < len(dims):
        raise UnsupportedOperation("reads memory by strides of dynamic sizes: use slices, permute or unfold")
    return numbers


@converter("aten.as_strided.default")
def as_strided(
    op: AtenOperation, x: Tensor, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None = None
) -> Tensor:
    """Convert `as_strided` of a contiguous tensor: a view, or a gather at constant positions."""
    val = op.node.args[0].meta["val"]
    if not val.is_contiguous() or val.storage_offset():
        raise UnsupportedOperation("reads memory by strides: use slices, permute or unfold")
    dense: Dim = 1
    for length, step in zip(reversed(size), reversed(stride), strict=True):
        if length != 1 and step != dense:
            break
        dense = dense * length
    else:
        if not offset and dense == x.type.elements:
            return x.reshape(op.shape)
    indices = _places(x, size, stride, offset)
    flat = x.reshape((x.type.elements,))
    if not indices.size:
        return op.constant(0, op.dtype).expand(op.shape)
    return flat.gather(op.constant(indices, TensorType.of((), "i64").dtype, indices.shape), axis=0)


def _places(x: Tensor, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None) -> npt.NDArray[np.int64]:
    """Return the position of each element of a strided tensor in the memory of a contiguous one."""
    lengths, steps = _numbers(size), _numbers(stride)
    (begin, elements) = _numbers((offset or 0, x.type.elements))
    if math.prod(lengths) > MAX_PLACES:
        raise UnsupportedOperation("reads memory by strides: use slices, permute or unfold")
    indices = np.full(lengths, begin)
    for axis, step in enumerate(steps):
        indices += (np.arange(lengths[axis]) * step).reshape(-1, *[1] * (len(lengths) - axis - 1))
    if indices.size and indices.max() >= elements:
        raise UnsupportedOperation("reads memory beyond the tensor")
    return indices


@converter("aten.as_strided_scatter.default")
def as_strided_scatter(
    op: AtenOperation, x: Tensor, source: Tensor, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None = None
) -> Tensor:
    """Convert writes to a strided part of a contiguous tensor."""
    val = op.node.args[0].meta["val"]
    if not val.is_contiguous() or val.storage_offset():
        raise UnsupportedOperation("writes memory by strides: use slice_scatter or diagonal_scatter")
    indices = _places(x, size, stride, offset)
    if np.unique(indices).size != indices.size:
        raise UnsupportedOperation("writes elements more than once")
    if not indices.size:
        return x
    flat, new = x.reshape((x.type.elements,)), source.cast(op.dtype).reshape((indices.size,))
    at = op.constant(indices.reshape(-1, 1), TensorType.of((), "i64").dtype, (indices.size, 1))
    return op.emit("scatter_nd", flat, at, new).reshape(x.shape)
