"""Arenas: the scratch memory of a call, one per call in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from mirlo.runtime.container import empty_aligned
from mirlo.runtime.errors import ArtifactError


class Arena(NamedTuple):
    """Scratch memory of one call."""

    memory: np.ndarray | None
    address: int
    nbytes: int


class ArenaPool:
    """Arenas, made when they are needed; a few idle ones are kept for the next calls, and replaced by larger ones.

    `nbytes` is the size of an arena where a call asks for no other.
    """

    def __init__(self, nbytes: int, keep: int = 2) -> None:
        self.nbytes = nbytes
        # Appending to a full deque drops its oldest arena; both ends are safe from several threads.
        self._idle: deque[Arena] = deque(maxlen=keep)

    def take(self, nbytes: int | None = None) -> Arena:
        """An arena that is the caller's alone until it is given back."""
        wanted = self.nbytes if nbytes is None else nbytes
        try:
            arena = self._idle.pop()
        except IndexError:
            return _new(wanted)
        return arena if arena.nbytes >= wanted else _new(wanted)

    def give_back(self, arena: Arena) -> None:
        """Keep an arena for the next call."""
        self._idle.append(arena)

    @contextmanager
    def arena(self, nbytes: int | None = None) -> Iterator[int]:
        """The address of an arena that is the caller's alone until the block ends; 0 if none is needed."""
        arena = self.take(nbytes)
        try:
            yield arena.address
        finally:
            self.give_back(arena)

    @property
    def idle(self) -> int:
        """How many arenas wait for a call."""
        return len(self._idle)

    def release(self) -> None:
        """Gives the memory of the idle arenas back."""
        self._idle.clear()


def _new(nbytes: int) -> Arena:
    if not nbytes:
        return Arena(None, 0, 0)
    try:
        memory = empty_aligned(np.dtype(np.uint8), (nbytes,))
        return Arena(memory, memory.__array_interface__["data"][0], nbytes)
    except (MemoryError, ValueError):
        raise ArtifactError(
            f"the model needs {nbytes} bytes of scratch memory for a call, more than there is: free some memory, or "
            "compile the model for smaller inputs"
        ) from None
