"""Arenas: the scratch memory of a call, one per call in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.inputs import empty_aligned


class Arena(NamedTuple):
    """Scratch memory of one call."""

    memory: np.ndarray | None
    address: int | None


class ArenaPool:
    """Arenas of one size, made when they are needed; a few idle ones are kept for the next calls."""

    def __init__(self, nbytes: int, keep: int = 2) -> None:
        self.nbytes = nbytes
        # Appending to a full deque drops its oldest arena; both ends are safe from several threads.
        self._idle: deque[Arena] = deque(maxlen=keep)

    def take(self) -> Arena:
        """An arena that is the caller's alone until it is given back."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new()

    def give_back(self, arena: Arena) -> None:
        """Keep an arena for the next call."""
        self._idle.append(arena)

    @contextmanager
    def arena(self) -> Iterator[int | None]:
        """The address of an arena that is the caller's alone until the block ends; None if none is needed."""
        arena = self.take()
        try:
            yield arena.address
        finally:
            self.give_back(arena)

    def _new(self) -> Arena:
        if not self.nbytes:
            return Arena(None, None)
        try:
            memory = empty_aligned(np.dtype(np.uint8), (self.nbytes,))
            return Arena(memory, memory.__array_interface__["data"][0])
        except (MemoryError, ValueError):
            raise ArtifactError(
                f"the model needs {self.nbytes} bytes of scratch memory for a call, more than there is: free some "
                "memory, or compile the model for smaller inputs"
            ) from None

    @property
    def idle(self) -> int:
        """How many arenas wait for a call."""
        return len(self._idle)

    def release(self) -> None:
        """Gives the memory of the idle arenas back."""
        self._idle.clear()
