"""Memory of large arrays, which is used again.

The first write to memory that is new to a process takes much longer than a later one: 0.75 s of processor time for the
309 MB of a vocabulary's weights, 0.02 s if they were written before (Linux in a virtual machine).
"""

from __future__ import annotations

import ctypes
import weakref
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from mirlo.runtime.system import map_repeated, unmap_memory

LEAST_BYTES = 1 << 20
"""Smaller arrays are those of numpy."""
MOST_BYTES = 1 << 30
"""The most memory that is kept while no array uses it."""

_Block = npt.NDArray[np.uint8]
_free: defaultdict[int, list[_Block]] = defaultdict(list)
"""Blocks that no array uses, by their size."""


def empty_array(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of one dim, whose elements are not set; its memory is used again after its last view is gone."""
    size = count * np.dtype(dtype).itemsize
    if size < LEAST_BYTES:
        return np.empty(count, dtype)
    block = _take(1 << (size - 1).bit_length())
    array = np.frombuffer(block.data, dtype, count)  # no view of an array: `array` lives as long as its own views
    weakref.finalize(array, _give_back, block).atexit = False
    return array


def repeating_array(content: npt.NDArray[Any], count: int, room: int) -> npt.NDArray[Any]:
    """Return an array of `count` elements that repeat a content, with as many as `room` before and after them.

    Those are not set. A content of whole pages is in memory once, where the system can do that: caches have all of it.
    """
    repeats, size = count // max(len(content), 1), content.itemsize
    mapped = None
    if repeats > 1:
        rest = count - repeats * len(content)
        mapped = map_repeated(content.data.cast("B"), room * size, repeats, (rest + room) * size)
    if mapped is None:
        whole = empty_array(count + 2 * room, content.dtype)
        inside = whole[room : room + repeats * len(content)]
        inside.reshape(repeats, len(content))[:] = content
    else:
        bytes_of_all = (ctypes.c_char * mapped[1]).from_address(mapped[0])
        whole = np.frombuffer(memoryview(bytes_of_all), content.dtype, count + 2 * room)
        weakref.finalize(whole, unmap_memory, *mapped).atexit = False
    first = room + repeats * len(content)
    whole[first : room + count] = content[: count - repeats * len(content)]
    return whole


def release_memory() -> None:
    """Return the memory that no array uses to the system."""
    _free.clear()


def _take(room: int) -> _Block:
    for size in sorted(each for each in _free if each >= room):
        if _free[size]:
            return _free[size].pop()
    return np.empty(room, np.uint8)


def _give_back(block: _Block) -> None:
    if sum(size * len(blocks) for size, blocks in _free.items()) + block.size <= MOST_BYTES:
        _free[block.size].append(block)
