"""Threads that are at the same instruction: a register is an array over them, or has one element for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mirlo.testing.ptx.types import Array


class Group:
    """Threads of a batch, in ascending order, and where they are."""

    __slots__ = ("at", "batch", "fenced", "regs", "tids")

    def __init__(self, batch: Any, tids: Array, regs: list[Any], at: int) -> None:
        self.batch = batch
        self.tids = tids
        self.regs = regs
        self.at = at
        self.fenced: Any = None
        """The registers at the last `wgmma.fence`."""

    @property
    def size(self) -> int:
        return len(self.tids)

    def spread(self, values: Array) -> Array:
        """Return values with an element for each thread."""
        return values if len(values) == len(self.tids) else np.broadcast_to(values, self.tids.shape)

    def part(self, mask: Array, live: Iterable[int], at: int) -> Group:
        """Return the threads that a mask chooses, with the registers that they still need."""
        regs: list[Any] = [None] * len(self.regs)
        size = len(self.tids)
        for i in live:
            value = self.regs[i]
            regs[i] = value[mask] if value is not None and len(value) == size and size > 1 else value
        return Group(self.batch, self.tids[mask], regs, at)


def merged(groups: Sequence[Group], live: Iterable[int]) -> Group:
    """Merge groups that reached the same instruction; `live`: the registers that are still needed."""
    first = groups[0]
    tids = np.sort(np.concatenate([group.tids for group in groups]))
    places = [np.searchsorted(tids, group.tids) for group in groups]
    regs: list[Any] = [None] * len(first.regs)
    for i in live:
        values = [group.regs[i] for group in groups]
        known = next((value for value in values if value is not None), None)
        if known is None:
            continue
        if all(value is known or (value is not None and len(value) == 1 and len(known) == 1 and value[0] == known[0])
               for value in values):  # fmt: skip
            regs[i] = known if len(known) == 1 else None
            if regs[i] is not None:
                continue
        result = np.zeros(len(tids), known.dtype)
        for value, place in zip(values, places, strict=True):
            # A way on which it was never written leaves zeros: it is not used by these threads.
            if value is not None:
                result[place] = value
        regs[i] = result
    return Group(first.batch, tids, regs, first.at)
