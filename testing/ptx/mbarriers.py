"""Barriers in shared memory that count arrivals and bytes: section 9.7.13.15 of the PTX manual.

A thread that finds a phase incomplete waits until it is complete, which `try_wait` may do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Read, Step
from mirlo.testing.ptx.text import PtxInstruction, PtxSymbol
from mirlo.testing.ptx.types import Array
from mirlo.testing.ptx.warp import Ending

MOST = (1 << 20) - 1
"""Arrivals and bytes that a barrier counts to."""
Key = tuple[int, int]


@dataclass
class PhaseState:
    """A barrier."""

    expected: int
    pending: int
    bytes: int = 0
    phase: int = 0


class MBarriers:
    """Those of the blocks of a batch, by block and address, and the threads that wait."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._states: dict[Key, PhaseState] = {}
        self._waiting: list[tuple[Group, Array, Array]] = []

    def state(self, key: Key) -> PhaseState:
        """Return the barrier at an address."""
        recorded = self._states.get(key)
        if recorded is None:
            raise KernelError(f"there is no mbarrier at {key[1]} of the shared memory of block {key[0]}")
        return recorded

    def init(self, keys: list[Key], counts: list[int]) -> None:
        """Make barriers."""
        for key, count in zip(keys, counts, strict=True):
            if key[1] % 8 or not 1 <= count <= MOST:
                raise KernelError(f"a barrier at {key[1]} for {count} arrivals")
            self._states[key] = PhaseState(count, count)

    def drop(self, keys: list[Key]) -> None:
        """Execute `inval`."""
        for key in keys:
            self.state(key)
            del self._states[key]

    def arrive(self, key: Key, count: int = 1, expect: int = 0) -> None:
        """Record arrivals at a barrier, and bytes that it waits for."""
        state = self.state(key)
        if count > state.pending:
            raise KernelError(f"{count} arrivals at a barrier that waits for {state.pending} more")
        state.bytes += expect
        state.pending -= count
        self._settle(key, state)

    def copied(self, key: Key, count: int) -> None:
        """Count bytes that have arrived."""
        state = self.state(key)
        state.bytes -= count
        self._settle(key, state)

    def _settle(self, key: Key, state: PhaseState) -> None:
        if not -MOST <= state.bytes <= MOST:
            raise KernelError(f"a barrier counts {state.bytes} bytes")
        if state.pending or state.bytes:
            return
        state.phase += 1
        if self._batch.races is not None:
            self._batch.races.renew(key, (*key, state.phase))
        state.pending = state.expected
        kept = []
        for group, blocks, addresses in self._waiting:
            done = (blocks == key[0]) & (addresses == key[1])
            if not done.any():
                kept.append((group, blocks, addresses))
                continue
            live = self._batch.kernel.blocks[group.at].live
            self._batch.push(group.part(done, live, group.at) if not done.all() else group)
            if not done.all():
                kept.append((group.part(~done, live, group.at), blocks[~done], addresses[~done]))
        self._waiting = kept

    def is_complete(self, key: Key, parity: int) -> bool:
        """Return whether the phase of a parity is over: the barrier is in the next one."""
        return self.state(key).phase % 2 != parity

    def wait(self, group: Group, blocks: Array, addresses: Array) -> None:
        """Block threads until the phases that they found incomplete are complete."""
        self._waiting.append((group, blocks, addresses))

    def waiting(self) -> Iterator[tuple[Group, str]]:
        """Return a description of the waiting threads and their barriers."""
        for group, blocks, addresses in self._waiting:
            key = int(blocks[0]), int(addresses[0])
            state = self.state(key)
            yield (
                group,
                (
                    f"at the mbarrier at {key[1]} of block {key[0]}, which misses {state.pending} of {state.expected} "
                    f"arrivals and {state.bytes} bytes in phase {state.phase}"
                ),
            )


def keys_of(group: Group, addresses: Array) -> list[Key]:
    """Return the places of the barriers that threads name."""
    blocks, offsets = group.batch.in_cluster(group, group.spread(addresses))
    return list(zip(blocks.tolist(), offsets.tolist(), strict=True))


def _mbarrier(p: KernelPreparation, i: PtxInstruction) -> Step:
    action = i.modifiers[0]
    needed = (9, 0) if "expect_tx" in i.modifiers or "shared::cluster" in i.modifiers else (8, 0)
    if p.version < needed:
        raise PtxError(f"{i.opcode} needs sm_{needed[0]}{needed[1]}")
    if action == "init":
        address, count = p.address(i.operands[0]), p.read(i.operands[1], "u32")
        return lambda group: group.batch.mbarriers.init(
            keys_of(group, address(group)), group.spread(count(group)).tolist()
        )
    if action == "inval":
        only = p.address(i.operands[0])
        return lambda group: group.batch.mbarriers.drop(keys_of(group, only(group)))
    if action == "arrive" and "noComplete" not in i.modifiers:
        return _arrive(p, i)
    if action == "expect_tx":
        place, size = p.address(i.operands[0]), p.read(i.operands[1], "u32")

        def expect(group: Group) -> None:
            for key, more in zip(keys_of(group, place(group)), group.spread(size(group)).tolist(), strict=True):
                group.batch.mbarriers.arrive(key, 0, more)

        return expect
    raise PtxError(f"'{i.opcode}' is not known")


def _arrive(p: KernelPreparation, i: PtxInstruction) -> Step:
    target = i.operands[0]
    write = None if target == PtxSymbol("_") else p.write(target)
    address = p.address(i.operands[1])
    number = p.read(i.operands[2], "u32") if len(i.operands) > 2 else None
    expects = i.has("expect_tx")
    if write is not None and i.has("shared::cluster"):
        raise PtxError("an arrival at another block's barrier has no result")

    def step(group: Group) -> None:
        keys = keys_of(group, address(group))
        values = [1] * len(keys) if number is None else group.spread(number(group)).tolist()
        states = np.array([group.batch.mbarriers.state(key).phase for key in keys], np.uint64)
        races = group.batch.races
        for key, value, tid in zip(keys, values, group.tids, strict=True):
            if races is not None:
                races.leave(key, group.batch.warp_of[tid : tid + 1])
            group.batch.mbarriers.arrive(key, *((1, value) if expects else (value,)))
        if write is not None:
            write(group, states)

    return step


def wait_for_phase(p: KernelPreparation, i: PtxInstruction, then: int) -> tuple[Ending | None, Read | None]:
    """Execute `try_wait` or `test_wait` by parity: threads block until the phase is complete."""
    if i.modifiers[0] not in ("try_wait", "test_wait"):
        return None, None
    if "parity" not in i.modifiers:
        raise PtxError("waiting for a state of a barrier, not for a parity, is not known")
    if i.modifiers[0] == "try_wait" and p.version < (9, 0):
        raise PtxError("mbarrier.try_wait needs sm_90")
    write, address, parity = p.write(i.operands[0]), p.address(i.operands[1]), p.read(i.operands[2], "u32")

    def ending(group: Group) -> list[Group]:
        batch = group.batch
        keys = keys_of(group, address(group))
        wanted = group.spread(parity(group)).tolist()
        known: dict[tuple[Key, int], bool] = {}
        for pair in set(zip(keys, wanted, strict=True)):
            known[pair] = batch.mbarriers.is_complete(*pair)
        done = np.array([known[pair] for pair in zip(keys, wanted, strict=True)])
        if not done.all():
            live = batch.kernel.blocks[group.at].live
            late = group if not done.any() else group.part(~done, live, group.at)
            places = np.array(keys, np.int64)[~done]
            batch.mbarriers.wait(late, places[:, 0], places[:, 1])
            if late is group:
                return []
            group = group.part(done, live, group.at)
        if batch.races is not None:
            for key, tid in zip(keys_of(group, address(group)), group.tids, strict=True):
                batch.races.learn((*key, batch.mbarriers.state(key).phase), batch.warp_of[tid : tid + 1])
        write(group, np.ones(1, np.bool_))
        group.at = then
        return [group]

    return ending, None


MBARRIERS: dict[str, Builder] = {"mbarrier": _mbarrier}
