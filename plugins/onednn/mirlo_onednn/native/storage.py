"""Storage of values: memory of the caller, constants, and an arena shared by values with disjoint lifetimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mirlo_onednn.native.desc import Desc

ALIGNMENT = 64
HUGE = 1 << 60


@dataclass(eq=False)
class Storage:
    """A piece of memory."""

    kind: str
    """`boundary`: an array of the caller; `constant`; `arena`."""
    bytes: int
    boundary: int = -1
    """The index of the call's array."""
    array: np.ndarray | None = None
    """The array of a constant."""
    first: int = HUGE
    last: int = -1
    """Numbers of the first and the last step that use it."""
    offset: int = 0
    """Offset in the arena."""

    def used_by(self, step: int) -> None:
        """Record a use."""
        self.first, self.last = min(self.first, step), max(self.last, step)


@dataclass(frozen=True, eq=False)
class PrimitiveValue:
    """A tensor, or a part of one: its memory and layout."""

    desc: Desc
    storage: Storage
    offset: int = 0
    """Bytes from the start of the storage."""
    converted: list[PrimitiveValue] = field(default_factory=list)
    """The same tensor in other layouts."""
    views: list[PrimitiveValue] = field(default_factory=list)
    """Other tensors in the same memory."""

    def view_as(self, desc: Desc) -> PrimitiveValue:
        """Return a view of the same memory."""
        return PrimitiveValue(desc, self.storage, self.offset)

    @property
    def is_whole(self) -> bool:
        """Return whether a value covers its whole storage."""
        return self.offset == 0 and self.desc.bytes == self.storage.bytes


def aligned(count: int) -> np.ndarray:
    """Allocate bytes aligned to 64."""
    array = np.empty(count + ALIGNMENT, np.uint8)
    start = -array.ctypes.data % ALIGNMENT
    return array[start : start + count]


def plan_arena(storages: Sequence[Storage]) -> int:
    """Assign an offset to every storage of the arena, largest first at the lowest free place; return the total size."""
    placed: list[Storage] = []
    size = 0
    for storage in sorted((s for s in storages if s.kind == "arena" and s.last >= 0), key=lambda s: -s.bytes):
        overlapping = [p for p in placed if p.first <= storage.last and storage.first <= p.last]
        offset = 0
        for other in sorted(overlapping, key=lambda p: p.offset):
            if other.offset - offset >= storage.bytes:
                break
            offset = max(offset, _up(other.offset + other.bytes))
        storage.offset = offset
        placed.append(storage)
        size = max(size, _up(offset + storage.bytes))
    return size


def _up(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT
