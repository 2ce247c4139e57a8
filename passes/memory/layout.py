"""Where buffers lie in one arena: offsets such that buffers alive at one time do not overlap.

Buffers whose sizes are numbers are packed first. Those whose sizes depend on symbols share *slots* behind them: a slot
is as large as the largest of its buffers, none of which are alive at one time, so that its size, and where the next one
begins, are expressions that compiled code computes when the model is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import ALIGNMENT, aligned


@dataclass
class Interval:
    """A buffer: its size, and the first and last step at which it is alive."""

    size: Dim
    first: int
    last: int
    offset: Dim = 0
    is_late: bool = False
    """Whether nobody knows before the call how large it is: it is no part of the arena."""

    def overlaps(self, other: Interval) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass
class _Slot:
    size: Dim
    members: list[Interval] = field(default_factory=list)


def place(buffers: Sequence[Interval]) -> Dim:
    """Set the offset of each buffer; returns the size of the arena."""
    total: Dim = _place_fixed([b for b in buffers if isinstance(b.size, int)])
    for slot in _slots([b for b in buffers if not isinstance(b.size, int)]):
        for buffer in slot.members:
            buffer.offset = total
        total = total + slot.size
    return total


def _place_fixed(buffers: Sequence[Interval]) -> int:
    """Largest first, each as low as it fits."""
    placed: list[Interval] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-_number(b.size), b.first)):
        low = 0
        for other in sorted((o for o in placed if o.overlaps(buffer)), key=lambda o: _number(o.offset)):
            if low + _number(buffer.size) <= _number(other.offset):
                break
            low = max(low, _number(aligned(other.offset + other.size)))
        buffer.offset = low
        placed.append(buffer)
        total = max(total, _number(aligned(low + buffer.size)))
    return total


def _slots(buffers: Sequence[Interval]) -> list[_Slot]:
    """The slots of buffers of symbolic sizes: largest first, each in the slot that grows least for it."""
    slots: list[_Slot] = []
    for buffer in sorted(buffers, key=lambda b: (-D.guess(b.size), b.first)):
        size = aligned(buffer.size)
        free = [slot for slot in slots if not any(other.overlaps(buffer) for other in slot.members)]
        best = min(
            free, key=lambda s: (D.guess(D.maximum(s.size, size)) - D.guess(s.size), D.guess(s.size)), default=None
        )
        if best is None:
            slots.append(_Slot(size, [buffer]))
            continue
        best.size = D.maximum(best.size, size)
        best.members.append(buffer)
    return slots


def _number(size: Dim) -> int:
    assert isinstance(size, int)
    return size


def lower_bound(buffers: Sequence[Interval]) -> int:
    """Bytes that are alive at the worst moment, of buffers of known sizes: no plan needs less."""
    fixed = [(_number(aligned(b.size)), b) for b in buffers if isinstance(b.size, int)]
    steps = sorted({b.first for _, b in fixed})
    return max((sum(size for size, b in fixed if b.first <= s <= b.last) for s in steps), default=0)


__all__ = ["ALIGNMENT", "Interval", "lower_bound", "place"]
