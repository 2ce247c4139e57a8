"""Memory between inaccessible pages, and executables whose calls have all of theirs there."""

from __future__ import annotations

import math

import numpy as np

from mirlo.runtime.arena import Arena, ArenaPool
from mirlo.runtime.container import ALIGNMENT
from mirlo.runtime.errors import OutOfMemoryError
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.system import GuardedPages

MAX_BYTES = 1 << 28
"""Bytes of the largest piece: filling more takes long, and shows nothing else."""


class GuardedMemory:
    """Memory of calls: each piece ends at an inaccessible page, or begins after one.

    Bytes between a piece and its page, which alignment leaves, have the value `fill`, as have pieces before the call.
    """

    def __init__(self, at_end: bool) -> None:
        self._at_end, self._fill = at_end, 0
        self._pieces: list[tuple[str, np.ndarray, int, int]] = []

    def begin(self, fill: int) -> None:
        """Begin a call in memory filled with a byte; pieces of earlier calls are no longer watched."""
        self._fill = fill
        self._pieces.clear()

    def piece(self, nbytes: int, alignment: int, what: str) -> tuple[np.ndarray, GuardedPages]:
        """Return new bytes and the pages that they are in."""
        if nbytes > MAX_BYTES:
            raise OutOfMemoryError(f"{nbytes} bytes of guarded memory, at most {MAX_BYTES}")
        pages = GuardedPages(max(nbytes, 1))
        whole = np.frombuffer(pages.content, np.uint8)
        whole[:] = self._fill
        start = (whole.size - nbytes) // alignment * alignment if self._at_end else 0
        self._pieces.append((what, whole, start, start + nbytes))
        return whole[start : start + nbytes], pages

    def read_only(self, array: np.ndarray, alignment: int | None = None) -> np.ndarray:
        """Return a copy in pages that can only be read, aligned to its elements unless an alignment is given."""
        content, pages = self.piece(array.nbytes, alignment or array.dtype.itemsize, "what is read only")
        content[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        pages.make_read_only()
        return content.view(array.dtype).reshape(array.shape)

    def executable(self, compiled: Executable) -> Executable:
        """Return an executable of the same code whose weights, arena and new arrays are guarded."""
        store = ParameterStore()
        for spec in compiled.artifact.params:
            store.add(spec.name, self.read_only(compiled.weight(spec.name), ALIGNMENT))
        return Executable(compiled.artifact, store, arenas=_GuardedArenas(compiled.artifact.arena_bytes, self))

    def overwritten(self) -> str | None:
        """Return the bytes that were written outside of a piece, between it and its page, or None."""
        for what, whole, start, stop in self._pieces:
            count = int(np.count_nonzero(whole[:start] != self._fill) + np.count_nonzero(whole[stop:] != self._fill))
            if count:
                return f"{count} bytes beside {what} were overwritten"
        return None


class _GuardedArenas(ArenaPool):
    """Arenas and arrays of a call in guarded memory, each used once."""

    def __init__(self, nbytes: int, memory: GuardedMemory) -> None:
        super().__init__(nbytes)
        self._memory = memory

    def take(self, nbytes: int | None = None) -> Arena:
        """Return a new arena of exactly this size."""
        wanted = self.nbytes if nbytes is None else nbytes
        if not wanted:
            return Arena(None, 0, 0)
        content, _ = self._memory.piece(wanted, ALIGNMENT, "the arena")
        return Arena(content, content.__array_interface__["data"][0], wanted)

    def give_back(self, arena: Arena) -> None:
        """Release the arena: each call has its own."""

    def empty(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return a new array in guarded memory, of bytes on a multiple of what their number is one of, up to 8."""
        nbytes = math.prod(shape) * dtype.itemsize
        alignment = max(dtype.itemsize, min(nbytes & -nbytes, 8))
        return self._memory.piece(nbytes, alignment, "a result")[0].view(dtype).reshape(shape)
