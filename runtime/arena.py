"""Arenas: the intermediate buffers of a call, one arena per call in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from mirlo.runtime.container import empty_aligned
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.huge_pages import empty_mapped

SPARE = 8
"""Part of a larger arena that is allocated in addition, as calls may grow step by step."""


class Arena(NamedTuple):
    """The memory of the intermediate buffers of one call."""

    memory: np.ndarray | None
    address: int
    nbytes: int


class ArenaPool:
    """A pool of arenas, allocated on demand; a few idle ones are cached, and replaced by larger ones.

    `nbytes` is the default size of an arena.
    """

    def __init__(self, nbytes: int, keep: int = 2) -> None:
        self.nbytes = nbytes
        # Appending to a full deque drops its oldest arena; both ends are thread-safe.
        self._idle: deque[Arena] = deque(maxlen=keep)

    def share(self, other: ArenaPool) -> None:
        """Cache arenas together with another pool, of a model that is called at other times."""
        self._idle = other._idle

    def take(self, nbytes: int | None = None) -> Arena:
        """Return an arena for exclusive use until it is given back."""
        wanted = self.nbytes if nbytes is None else nbytes
        try:
            arena = self._idle.pop()
        except IndexError:
            return _new(wanted)
        return arena if arena.nbytes >= wanted else _new(wanted + wanted // SPARE)

    def give_back(self, arena: Arena) -> None:
        """Return an arena to the pool for later calls."""
        self._idle.append(arena)

    @contextmanager
    def arena(self, nbytes: int | None = None) -> Iterator[int]:
        """Yield the address of an arena for exclusive use within the block; 0 if none is needed."""
        arena = self.take(nbytes)
        try:
            yield arena.address
        finally:
            self.give_back(arena)

    def empty(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return a new array, for a result or for a tensor of a data-dependent size."""
        return empty_aligned(dtype, shape)

    @property
    def idle(self) -> int:
        """Return the number of idle arenas."""
        return len(self._idle)

    def release(self) -> None:
        """Free the idle arenas."""
        self._idle.clear()


def _new(nbytes: int) -> Arena:
    if not nbytes:
        return Arena(None, 0, 0)
    try:
        memory = empty_mapped(nbytes)
        return Arena(memory, memory.__array_interface__["data"][0], nbytes)
    except (MemoryError, ValueError):
        raise ArtifactError(
            f"the model needs {nbytes} bytes of scratch memory for a call, more than there is: free some memory, or "
            "compile the model for smaller inputs"
        ) from None
