"""Where buffers lie in one arena: offsets such that buffers alive at one time do not overlap."""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64


@dataclass
class Interval:
    """A buffer: its size, and the first and last step at which it is alive."""

    size: int
    first: int
    last: int
    offset: int = 0

    def overlaps(self, other: Interval) -> bool:
        return self.first <= other.last and other.first <= self.last


def place(buffers: list[Interval]) -> int:
    """Set the offset of each buffer; returns the size of the arena. Largest first, each as low as it fits."""
    placed: list[Interval] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.first)):
        low = 0
        for other in sorted((o for o in placed if o.overlaps(buffer)), key=lambda o: o.offset):
            if low + buffer.size <= other.offset:
                break
            low = max(low, _aligned(other.offset + other.size))
        buffer.offset = low
        placed.append(buffer)
        total = max(total, _aligned(low + buffer.size))
    return total


def lower_bound(buffers: list[Interval]) -> int:
    """Bytes that are alive at the worst moment: no plan needs less."""
    steps = sorted({b.first for b in buffers})
    return max((sum(_aligned(b.size) for b in buffers if b.first <= s <= b.last) for s in steps), default=0)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
