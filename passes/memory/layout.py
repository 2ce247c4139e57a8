"""Layout of the arena: offsets such that buffers alive at the same time do not overlap.

Buffers of static sizes are packed first. Those of symbolic sizes share *slots* after them: a slot is as large as
the largest of its buffers, no two of which are alive at the same time. Its size and the offset of the next slot are
expressions that compiled code evaluates in each call.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import field
from functools import cache, partial
from itertools import accumulate

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import ALIGNMENT, aligned
from mirlo.runtime.records import dataclass


@dataclass
class Interval:
    """A buffer: its size and its live range, from the first to the last step."""

    size: Dim
    first: int
    last: int
    offset: Dim = 0
    is_late: bool = False
    """Whether its size is unknown before the call: it is not part of the arena."""


@dataclass
class _ArenaSlot:
    size: Dim
    estimate: int
    """The estimate of the size."""
    members: list[Interval] = field(default_factory=list)
    """In the order of their steps: no two of them are alive at the same time."""

    def has_room(self, buffer: Interval) -> bool:
        """Return whether no member is alive together with a buffer."""
        at = bisect_left(self.members, buffer.first, key=_first_step)
        ends_before = at == 0 or self.members[at - 1].last < buffer.first
        return ends_before and (at == len(self.members) or self.members[at].first > buffer.last)

    def add(self, buffer: Interval) -> None:
        insort(self.members, buffer, key=_first_step)


def _first_step(buffer: Interval) -> int:
    return buffer.first


def assign_offsets(buffers: Sequence[Interval], alignment: int = ALIGNMENT) -> Dim:
    """Set the offset of each buffer, a multiple of `alignment`; return the size of the arena."""
    total: Dim = _pack_static([b for b in buffers if isinstance(b.size, int)], alignment)
    for slot in _slots([b for b in buffers if not isinstance(b.size, int)], alignment):
        for buffer in slot.members:
            buffer.offset = total
        total = total + slot.size
    return total


def _pack_static(buffers: Sequence[Interval], alignment: int) -> int:
    """Pack buffers of static sizes, largest first, each at the lowest free offset."""
    placed: list[tuple[int, int, int, int]] = []  # by offset: where each begins and ends, and its first and last step
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-_static_size(b.size), b.first)):
        size, first, last, low = _static_size(buffer.size), buffer.first, buffer.last, 0
        for begin, end, start, stop in placed:
            if start <= last and first <= stop:
                if low + size <= begin:
                    break
                if end > low:
                    low = end
        buffer.offset = low
        end = _static_size(aligned(low + size, alignment))
        insort(placed, (low, end, first, last))
        total = max(total, end)
    return total


def _slots(buffers: Sequence[Interval], alignment: int) -> list[_ArenaSlot]:
    """Assign buffers of symbolic sizes to slots: largest first, each to the slot that grows least."""
    slots: list[_ArenaSlot] = []
    estimate, padded = cache(D.estimate_dim), cache(partial(aligned, alignment=alignment))  # many have equal sizes
    for buffer in sorted(buffers, key=lambda b: (-estimate(b.size), b.first)):
        size = padded(buffer.size)
        free = [slot for slot in slots if slot.has_room(buffer)]
        wanted = estimate(size)
        best = min(free, key=lambda s: (max(s.estimate, wanted) - s.estimate, s.estimate), default=None)
        if best is None:
            slots.append(_ArenaSlot(size, wanted, [buffer]))
            continue
        if best.size != size:
            best.size = D.maximum(best.size, size)
            best.estimate = estimate(best.size)
        best.add(buffer)
    return slots


def _static_size(size: Dim) -> int:
    assert isinstance(size, int)
    return size


def lower_bound(buffers: Sequence[Interval]) -> int:
    """Return the peak of live bytes of buffers of static sizes: no plan needs less."""
    changes: list[tuple[int, int]] = []  # by step: what is allocated, after what is free
    for buffer in buffers:
        if isinstance(buffer.size, int):
            size = _static_size(aligned(buffer.size))
            changes += [(buffer.first, size), (buffer.last + 1, -size)]
    return max(accumulate(size for _, size in sorted(changes)), default=0)


__all__ = ["ALIGNMENT", "Interval", "lower_bound", "assign_offsets"]
