"""Races on shared memory: accesses of two warps, one of them a write, that nothing puts in an order.

Each warp has a clock, and knows of every other one's as of the last barrier by which it heard of it. Each byte has a
record of its last writer, and of its readers since then. The threads of a warp count as one, and so do all copies by
tensor maps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.testing.ptx.errors import KernelError
from mirlo.testing.ptx.types import BITS, Array


class Races:
    """The clocks of the warps of a batch, which is one cluster, and what its bytes know."""

    def __init__(self, batch: Any, size: int) -> None:
        self._batch = batch
        self._warps = batch.count * batch.warps_per_block
        everybody = self._warps + 1
        self.copies = self._warps
        """The index of asynchronous copies, after the warps."""
        self._known = np.zeros((everybody, everybody), np.int64)
        """Of each the clocks of all that it knows of."""
        np.fill_diagonal(self._known, 1)
        self._writer = np.zeros(size, np.int32)
        self._written = np.zeros(size, np.int64)
        self._value = np.zeros(size, np.uint8)
        """What was written last, or will have been when copies have come."""
        self._read = np.zeros((size, everybody), np.int32)
        self._left: dict[Any, Array] = {}
        """The knowledge of the warps that arrived at each barrier."""

    # Accesses

    def touch(self, tids: Array, places: Array, size: int, values: Array | None = None) -> None:
        """Record an access to elements of this size; addresses count elements, `values` are written ones."""
        bytes_ = (np.broadcast_to(places, tids.shape)[:, None] * size + np.arange(size)).reshape(-1)
        warps = np.repeat(self._batch.warp_of[tids], size)
        if values is None:
            self.read(warps, bytes_)
        else:
            whole = np.broadcast_to(values.view(BITS[size]), tids.shape)
            self.write(warps, bytes_, np.ascontiguousarray(whole).view(np.uint8))

    def read(self, warps: Array, places: Array) -> None:
        """Record that each of these warps reads a byte."""
        self._check_written(warps, places, "reads", np.ones(1, np.bool_))
        self._read[places, warps] = self._known[warps, warps]

    def write(self, warps: Array, places: Array, values: Array | None) -> None:
        """Record that each of these warps writes a different byte; without `values` they are not known yet."""
        self._check_written(warps, places, "writes", np.ones(1, np.bool_))
        touched = np.flatnonzero(self._read[places].any(1))
        if len(touched):
            late = self._read[places[touched]] > self._known[warps[touched]]
            late[np.arange(len(touched)), warps[touched]] = False
            if late.any():
                row, reader = (int(one[0]) for one in np.nonzero(late))
                self._complain(int(warps[touched][row]), int(places[touched][row]), reader, "read", "writes")
        self._writer[places] = warps
        if values is not None:
            self._value[places] = values
        wrong = self._writer[places] != warps
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            self._complain(int(warps[at]), int(places[at]), int(self._writer[places[at]]), "written", "writes")
        self._written[places] = self._known[warps, warps]
        self._read[places] = 0

    def write_of_copy(self, places: Array) -> None:
        """Record the write of a copy: whether it may happen was checked when it was issued."""
        self._writer[places] = self.copies
        self._written[places] = self._known[self.copies, self.copies]
        self._read[places] = 0

    def _check_written(self, warps: Array, places: Array, does: str, where: Array) -> None:
        writers = self._writer[places]
        wrong = (writers != warps) & (self._written[places] > self._known[warps, writers]) & where
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            self._complain(int(warps[at]), int(places[at]), int(writers[at]), "written", does)

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
        """Record that warps arrive at a barrier, which passes their accesses on to the waiting warps."""
        warps = np.unique(warps)
        before = self._left.get(key)
        known = self._known[warps].max(0)
        self._left[key] = known if before is None else np.maximum(before, known)
        self._known[warps, warps] += 1

    def learn(self, key: Any, warps: Array) -> None:
        """Record that warps continue after a barrier."""
        left = self._left.get(key)
        if left is not None:
            warps = np.unique(warps)
            self._known[warps] = np.maximum(self._known[warps], left)

    def renew(self, key: Any, then: Any = None) -> None:
        """Begin a barrier anew; `then`: where what was known there is kept."""
        left = self._left.pop(key, None)
        if then is not None and left is not None:
            self._left[then] = left
