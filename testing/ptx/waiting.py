"""What threads wait for: barriers of a block, and asynchronous copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.errors import KernelError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.memory import UNDER_WAY
from mirlo.testing.ptx.types import Array

BARRIERS = 16
"""That a block has."""


class BlockBarriers:
    """The barriers of the blocks of a batch, with arrived and waiting threads."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._arrived = np.zeros((batch.count, BARRIERS), np.int64)
        self._expected = np.zeros((batch.count, BARRIERS), np.int64)
        self._waiting: dict[int, list[tuple[Group, int]]] = {}

    def arrive(self, group: Group, number: int, count: int | None, then: int, waits: bool) -> list[Group]:
        """Record that threads arrive at a barrier; waiting groups continue at `then`."""
        if not 0 <= number < BARRIERS:
            raise KernelError(f"there are {BARRIERS} barriers, found number {number}")
        wanted = self._batch.block_size if count is None else count
        if count is not None and (count % 32 or not 0 < count <= self._batch.block_size):
            raise KernelError(f"a barrier for {count} threads: expected a multiple of 32 up to the block's size")
        blocks = self._batch.block_of(group)
        arrived, expected = self._arrived[:, number], self._expected[:, number]
        touched = np.bincount(blocks, minlength=self._batch.count)
        other = (touched > 0) & (expected != 0) & (expected != wanted)
        if other.any():
            before = int(expected[other][0])
            raise KernelError(f"barrier {number} is used for {before} and for {wanted} threads at the same time")
        arrived += touched
        if (arrived > wanted)[touched > 0].any():
            raise KernelError(f"more than {wanted} threads come to barrier {number}")
        expected[touched > 0] = wanted
        full = arrived == expected
        full &= expected > 0
        arrived[full] = expected[full] = 0
        self._tell(group, number, full)
        if waits:
            self._waiting.setdefault(number, []).append((group, then))
        else:
            group.at = then
        return [*self._released(number, full), *([] if waits else [group])]

    def _tell(self, group: Group, number: int, full: Array) -> None:
        """Report arrivals to the detector of races, and the blocks whose barrier is complete."""
        races = self._batch.races
        if races is None:
            return
        blocks = self._batch.block_of(group)
        for block in np.unique(blocks).tolist():
            races.leave(("barrier", block, number), self._batch.warp_of[group.tids[blocks == block]])
        for block in np.flatnonzero(full).tolist():
            races.renew(("barrier", block, number), ("passed", block, number))

    def _released(self, number: int, full: Array) -> Iterator[Group]:
        for group in self._those_of(number, full):
            if self._batch.races is not None:
                blocks = self._batch.block_of(group)
                for block in np.unique(blocks).tolist():
                    warps = self._batch.warp_of[group.tids[blocks == block]]
                    self._batch.races.learn(("passed", block, number), warps)
            yield group

    def _those_of(self, number: int, full: Array) -> Iterator[Group]:
        kept = []
        for group, then in self._waiting.pop(number, ()):
            done = full[self._batch.block_of(group)]
            if done.all():
                group.at = then
                yield group
            elif not done.any():
                kept.append((group, then))
            else:
                live = self._batch.kernel.blocks[then].live
                yield group.part(done, live, then)
                kept.append((group.part(~done, live, group.at), then))
        if kept:
            self._waiting[number] = kept

    def waiting(self) -> Iterator[tuple[Group, str]]:
        """Return a description of the waiting threads and their barriers."""
        for number, groups in self._waiting.items():
            for group, _ in groups:
                block = int(group.tids[0]) // self._batch.block_size
                here, wanted = self._arrived[block, number], self._expected[block, number]
                yield group, f"at barrier {number}, to which {here} of {wanted} threads have come"


@dataclass
class _Copy:
    """A copy to shared memory in flight, its threads, and its group of copies."""

    tids: Array
    numbers: Array
    places: Array
    values: Array
    size: int


class Copies:
    """`cp.async`: copied bytes are visible only after a wait."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._closed = np.zeros(len(batch.alive), np.int64)
        """How many groups of copies each thread has closed."""
        self._under_way: list[_Copy] = []

    def start(self, group: Group, addresses: Array, values: Array, size: int) -> None:
        """Begin to copy."""
        shared = self._batch.shared
        places = shared.places(self._batch.block_of(group), group.spread(addresses), size)
        shared.mark(places, size, UNDER_WAY)
        if self._batch.races is not None:
            self._batch.races.touch(group.tids, places, size, group.spread(values))
        self._under_way.append(_Copy(group.tids, self._closed[group.tids], places, group.spread(values), size))

    def close(self, group: Group) -> None:
        """Put what was begun since the last time in one group."""
        self._closed[group.tids] += 1

    def wait(self, group: Group, left: int | None) -> None:
        """Finish the copies of threads but those of their last groups; None: all, also those that are in no group."""
        chosen = np.zeros(len(self._batch.alive), np.bool_)
        chosen[group.tids] = True
        rest = []
        for copy in self._under_way:
            done = chosen[copy.tids]
            if left is not None:
                done = done & (copy.numbers < self._closed[copy.tids] - left)
            if done.all():
                self._finish(copy.tids, copy.places, copy.values, copy.size)
                continue
            if done.any():
                self._finish(copy.tids[done], copy.places[done], copy.values[done], copy.size)
                left_over = ~done
                copy = _Copy(copy.tids[left_over], copy.numbers[left_over], copy.places[left_over],
                             copy.values[left_over], copy.size)  # fmt: skip
            rest.append(copy)
        self._under_way = rest

    def _finish(self, tids: Array, places: Array, values: Array, size: int) -> None:
        self._batch.shared.put(places, values, size)
        if self._batch.races is not None:
            self._batch.races.touch(tids, places, size, values)
