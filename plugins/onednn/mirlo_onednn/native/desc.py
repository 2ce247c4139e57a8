"""Memory descriptors: shape, element type and layout of a tensor."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

from mirlo_onednn.native import api
from mirlo_onednn.native.library import OneDnnError


class Desc:
    """A layout of a shape; with format `any` the library chooses it."""

    def __init__(self, owned: api.Owned, shape: Sequence[int], dtype: str) -> None:
        self._owned = owned
        self.shape = tuple(shape)
        self.dtype = dtype

    @property
    def pointer(self) -> int:
        """Return the address of the descriptor."""
        return int(self._owned.pointer)

    @property
    def bytes(self) -> int:
        """Return the size of a tensor in bytes, padding included."""
        return int(api.typed_library().dnnl_memory_desc_get_size(self.pointer))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Desc):
            return NotImplemented
        return bool(api.typed_library().dnnl_memory_desc_equal(self.pointer, other.pointer))

    __hash__ = None  # type: ignore[assignment]

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Return the strides of the axes, or None if the layout has blocks."""
        blocks, array = ctypes.c_int(), ctypes.POINTER(ctypes.c_int64)()
        api.call("memory_desc_query", self.pointer, api.QUERY_INNER_BLOCKS, ctypes.byref(blocks))
        if blocks.value:
            return None
        api.call("memory_desc_query", self.pointer, api.QUERY_STRIDES, ctypes.byref(array))
        return tuple(array[: len(self.shape)])

    @property
    def is_dense(self) -> bool:
        """Return whether the elements are contiguous, except for the padding of blocks."""
        strides = self.strides
        steps = [] if strides is None else [(s, dim) for s, dim in zip(strides, self.shape, strict=True) if dim > 1]
        expected = 1
        for step, dim in sorted(steps):
            if step != expected:
                return False
            expected *= dim
        return True

    def reshaped(self, shape: Sequence[int]) -> Desc | None:
        """Return the same memory with another shape, or None if this layout does not allow it."""
        if tuple(shape) == self.shape:
            return self
        if math.prod(shape) != math.prod(self.shape):
            both = sorted(" x ".join(map(str, dims)) for dims in (self.shape, shape))
            raise OneDnnError(f"a reshape between {' and '.join(both)} does not keep the number of elements")
        # The library's own function is not asked: it takes a dim of 1 out of layouts where that is padded to a block.
        strides = self.strides
        steps = None if strides is None else reshaped_strides(self.shape, strides, shape)
        return None if steps is None else strided(shape, self.dtype, steps)

    def permuted(self, axes: Sequence[int]) -> Desc:
        """Return the same memory with its axes in another order: axis i of the result is axis `axes[i]`."""
        if tuple(axes) == tuple(range(len(axes))):
            return self
        strides = self.strides
        if strides is not None:
            return strided([self.shape[axis] for axis in axes], self.dtype, [strides[axis] for axis in axes])
        # The library wants to know where each axis goes.
        places = [axes.index(axis) for axis in range(len(axes))]
        array = (ctypes.c_int * len(places))(*places)
        handle = api.create_object("memory_desc_permute_axes", "memory_desc_destroy", self.pointer, array)
        return Desc(handle, [self.shape[axis] for axis in axes], self.dtype)


def reshaped_strides(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> list[int] | None:
    """Return the strides for another shape of as many elements, or None if there are none."""
    if 0 in wanted:
        return [1] * len(wanted)
    old = [(dim, stride) for dim, stride in zip(shape, strides, strict=True) if dim != 1]
    result: list[int] = []
    place = 0
    # Groups of axes with the same number of elements on both sides: the old ones must follow one another without gaps.
    axis = 0
    while axis < len(wanted):
        group, count = [wanted[axis]], wanted[axis]
        axis += 1
        if count == 1:
            result.append(1)
            continue
        size, start = 1, place
        while size != count:
            if size < count:
                size *= old[place][0]
                place += 1
            else:
                group.append(wanted[axis])
                count *= wanted[axis]
                axis += 1
        parts = old[start:place]
        if any(outer[1] != inner[0] * inner[1] for outer, inner in zip(parts, parts[1:], strict=False)):
            return None
        stride = parts[-1][1]
        steps: list[int] = []
        for dim in reversed(group):
            steps.insert(0, stride)
            stride *= dim
        result += steps
    return result


def strided(shape: Sequence[int], dtype: str, strides: Sequence[int]) -> Desc:
    """Return a layout without blocks.

    The stride of a dim of 1 has no effect on addresses, but the library is slow for unknown orders of strides: it is
    set as if the dim were outside of those that follow it.
    """
    strides, extent = list(strides), 1
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            strides[axis] = extent
        else:
            extent = max(extent, strides[axis] * shape[axis])
    handle = api.create_object(
        "memory_desc_create_with_strides", "memory_desc_destroy",
        len(shape), api.dims(shape), api.DATA_TYPES[dtype], api.dims(strides),
    )  # fmt: skip
    return Desc(handle, shape, dtype)


def row_major(shape: Sequence[int], dtype: str) -> Desc:
    """Return a row-major layout; a scalar is a vector of one element, since the library has no rank 0."""
    shape = tuple(shape) or (1,)
    strides = [1]
    for dim in reversed(shape[1:]):
        strides.insert(0, strides[0] * dim)
    return strided(shape, dtype, strides)


def any_layout(shape: Sequence[int], dtype: str) -> Desc:
    """Return a layout that the library chooses."""
    handle = api.create_object(
        "memory_desc_create_with_tag", "memory_desc_destroy",
        len(shape), api.dims(shape), api.DATA_TYPES[dtype], api.FORMAT_ANY,
    )  # fmt: skip
    return Desc(handle, shape, dtype)


def of_primitive(primitive_desc: int, what: int, index: int, shape: Sequence[int], dtype: str) -> Desc:
    """Return the layout that a primitive chose for one of its tensors."""
    pointer = api.typed_library().dnnl_primitive_desc_query_md(primitive_desc, what, index)
    return Desc(api.create_object("memory_desc_clone", "memory_desc_destroy", pointer), shape, dtype)


def bytes_of_primitive(primitive_desc: int, what: int) -> int:
    """Return the bytes of one of the tensors of a primitive."""
    functions = api.typed_library()
    return int(functions.dnnl_memory_desc_get_size(functions.dnnl_primitive_desc_query_md(primitive_desc, what, 0)))
