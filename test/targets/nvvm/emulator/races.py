"""Races on shared memory: accesses of two warps, one of them a write, that nothing puts in an order.

Each warp has a clock, and knows of every other one's as of the last barrier by which it heard of it. A byte knows who
wrote it last and who has read it since. The threads of a warp count as one, and so do all copies by tensor maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.errors import KernelError
from emulator.group import Group
from emulator.types import Array

if TYPE_CHECKING:
    from emulator.machine import Batch


class Races:
    """The clocks of the warps of a batch, which is one cluster, and what its bytes know."""

    def __init__(self, batch: Batch, size: int) -> None:
        self._batch = batch
        self._warps = batch.count * batch.warps_per_block
        everybody = self._warps + 1
        self.copies = self._warps
        """The number of those who copy, behind the warps."""
        self._known = np.zeros((everybody, everybody), np.int64)
        """Of each the clocks of all that it knows of."""
        np.fill_diagonal(self._known, 1)
        self._writer = np.zeros(size, np.int32)
        self._written = np.zeros(size, np.int64)
        self._read = np.zeros((size, everybody), np.int32)
        self._left: dict[Any, Array] = {}
        """What those who came to a barrier knew, by barrier."""

    # Accesses

    def touch(self, group: Group, places: Array, size: int, writes: bool) -> None:
        """Threads access elements of so many bytes, whose places are counted in elements."""
        bytes_ = (group.spread(places)[:, None] * size + np.arange(size)).reshape(-1)
        warps = np.repeat(self._batch.warp_of[group.tids], size)
        self.access(warps, bytes_, writes)

    def access(self, warps: Array, places: Array, writes: bool) -> None:
        """Each of these warps accesses a byte."""
        self._check(warps, places, self._writer[places], self._written[places], "written")
        clocks = self._known[warps, warps]
        if not writes:
            self._read[places, warps] = clocks
            return
        known, read = self._known, self._read
        touched = np.flatnonzero(read[places].any(1))
        if len(touched):
            late = read[places[touched]] > known[warps[touched]]
            late[np.arange(len(touched)), warps[touched]] = False
            if late.any():
                row, other = (int(one[0]) for one in np.nonzero(late))
                self._complain(int(warps[touched][row]), int(places[touched][row]), other, "read", "writes")
        self._writer[places] = warps
        other_wins = self._writer[places] != warps
        if other_wins.any():
            at = int(np.flatnonzero(other_wins)[0])
            self._complain(int(warps[at]), int(places[at]), int(self._writer[places[at]]), "written", "writes")
        self._written[places] = clocks
        self._read[places] = 0

    def write_of_copy(self, places: Array) -> None:
        """A copy comes: whether it may was seen when it was begun."""
        self._writer[places] = self.copies
        self._written[places] = self._known[self.copies, self.copies]
        self._read[places] = 0

    def _check(self, warps: Array, places: Array, others: Array, clocks: Array, did: str) -> None:
        wrong = (others != warps) & (clocks > self._known[warps, others])
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            self._complain(int(warps[at]), int(places[at]), int(others[at]), did, "touches")

    def _complain(self, warp: int, place: int, other: int, did: str, does: str) -> None:
        each, stride = self._batch.warps_per_block, self._batch.shared.stride
        who = f"warp {other % each} of block {other // each} has"
        if other == self.copies:
            who = "a copy by a tensor map has"
        raise KernelError(
            f"a race: warp {warp % each} of block {warp // each} {does} byte {place % stride} of the shared memory of "
            f"block {place // stride}, which {who} {did} with no barrier between"
        )

    # Order

    def leave(self, key: Any, warps: Array) -> None:
        """Warps come to a barrier: who waits there will know what they know."""
        warps = np.unique(warps)
        before = self._left.get(key)
        known = self._known[warps].max(0)
        self._left[key] = known if before is None else np.maximum(before, known)
        self._known[warps, warps] += 1

    def learn(self, key: Any, warps: Array) -> None:
        """Warps go on behind a barrier."""
        left = self._left.get(key)
        if left is not None:
            warps = np.unique(warps)
            self._known[warps] = np.maximum(self._known[warps], left)

    def renew(self, key: Any, then: Any = None) -> None:
        """Begin a barrier anew; `then`: where what was known there is kept."""
        left = self._left.pop(key, None)
        if then is not None and left is not None:
            self._left[then] = left
