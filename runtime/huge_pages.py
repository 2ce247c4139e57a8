"""Arrays next to each other in huge pages, which a core reads faster than small ones: by 1.2 to 1.8 times.

An allocator gives huge pages to large arrays only, and the ends of these are in small pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mirlo.runtime import system
from mirlo.runtime.container import ALIGNMENT, empty_aligned
from mirlo.runtime.errors import OutOfMemoryError
from mirlo.runtime.memory import LARGE, require_available

PAGE = 1 << 21
"""Bytes of a huge page, and the least for which blocks are worth it."""
BLOCK = 1 << 28
"""Most bytes of a block of several arrays: it is in memory until none of them is used."""

Kind = tuple[np.dtype, tuple[int, ...]]


def empty_together(kinds: Sequence[Kind], folder: Path | None = None) -> Iterable[np.ndarray]:
    """Yield new arrays of these types, aligned to cache lines, in blocks that are allocated when they are reached.

    With a folder the blocks are mapped from temporary files in it.
    """
    first = 0
    while first < len(kinds):
        total, stop = _bytes(kinds[first]), first + 1
        while stop < len(kinds) and total + _bytes(kinds[stop]) <= BLOCK:
            total, stop = total + _bytes(kinds[stop]), stop + 1
        yield from _block(kinds[first:stop], total, folder)
        first = stop


def empty_mapped(nbytes: int) -> np.ndarray:
    """Return new bytes that the system gets back when they are freed: the C library would keep them for later calls.

    What fills huge pages is in such: they take a tenth of the time of small ones. The rest is in small pages, so
    that no more memory is used. Few bytes are the C library's.
    """
    if nbytes < PAGE or not system.has_huge_pages():
        return empty_aligned(np.dtype(np.uint8), (nbytes,))
    if nbytes >= LARGE:
        require_available(nbytes)
    memory = system.map_memory(nbytes + PAGE, in_huge_pages=False)
    block = np.frombuffer(memory, np.uint8)
    start = -block.ctypes.data % PAGE
    system.use_huge_pages(memory, start, nbytes // PAGE * PAGE)
    return block[start : start + nbytes]


def _block(kinds: Sequence[Kind], total: int, folder: Path | None) -> Iterable[np.ndarray]:
    if total < PAGE:
        yield from (empty_aligned(*kind) for kind in kinds)
        return
    if total >= LARGE and folder is None:
        require_available(total)
    try:
        memory = system.map_memory(total + PAGE) if folder is None else system.map_temporary(total + PAGE, folder)
    except MemoryError:
        raise OutOfMemoryError(f"{total} bytes are needed at once, more than there is") from None
    except OSError as error:
        raise OutOfMemoryError(f"a file of {total} bytes in '{folder}': {error.strerror or error}") from None
    block = np.frombuffer(memory, np.uint8)
    at = -block.ctypes.data % PAGE
    for dtype, shape in kinds:
        count = int(np.prod(shape, dtype=np.int64))
        yield block[at : at + count * dtype.itemsize].view(dtype).reshape(shape)
        at += _bytes((dtype, shape))


def _bytes(kind: Kind) -> int:
    """Return the bytes of an array, up to where the next one begins; vectors may read after its last element."""
    dtype, shape = kind
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return -(-nbytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT
