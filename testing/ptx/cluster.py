"""Blocks of a cluster: their common barrier, and addresses in each other's shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Read, Step
from mirlo.testing.ptx.ranks import with_rank
from mirlo.testing.ptx.text import PtxInstruction
from mirlo.testing.ptx.warp import Ending, whole_warps


class ClusterBarrier:
    """The barrier of each cluster of a batch: all threads that have not ended arrive, and wait."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        size = batch.cluster * batch.block_size
        self._size = size
        self._phase = np.zeros(len(batch.alive) // size, np.int64)
        self._arrived = np.full(len(batch.alive), -1, np.int64)
        """The phase that each thread has arrived in."""
        self._waiting: list[tuple[Group, int]] = []

    def arrive(self, group: Group) -> None:
        """Record the arrival of threads."""
        phase = self._phase[group.tids // self._size]
        if (self._arrived[group.tids] == phase).any():
            raise KernelError("a thread arrives at the cluster's barrier twice")
        self._arrived[group.tids] = phase
        if self._batch.races is not None:
            self._batch.races.leave(("cluster", int(phase[0])), self._batch.warp_of[group.tids])
        self.settle()

    def wait(self, group: Group, then: int) -> list[Group]:
        """Return the threads that go on at once; the others wait."""
        if (self._arrived[group.tids] < 0).any():
            raise KernelError("a thread waits at the cluster's barrier, and has not arrived")
        self._waiting.append((group, then))
        return self._released()

    def settle(self) -> None:
        """See which clusters are complete."""
        if not (self._arrived >= 0).any():
            return
        alive = self._batch.alive.reshape(-1, self._size)
        here = self._arrived.reshape(-1, self._size) >= self._phase[:, None]
        full = (here | ~alive).all(1) & (here & alive).any(1)
        if full.any():
            self._phase[full] += 1
            for group in self._released():
                self._batch.push(group)

    def _released(self) -> list[Group]:
        passed, kept = [], []
        for group, then in self._waiting:
            done = self._arrived[group.tids] < self._phase[group.tids // self._size]
            live = self._batch.kernel.blocks[then].live
            if done.any():
                passed.append(group.part(done, live, then))
                if self._batch.races is not None:
                    arrived = int(self._arrived[passed[-1].tids[0]])
                    self._batch.races.learn(("cluster", arrived), self._batch.warp_of[passed[-1].tids])
            if not done.all():
                kept.append((group.part(~done, live, group.at), then))
        self._waiting = kept
        return passed

    def waiting(self) -> Iterator[tuple[Group, str]]:
        """Return a description of the waiting threads."""
        for group, _ in self._waiting:
            yield group, "at the barrier of the cluster"


def cluster_barrier(p: KernelPreparation, i: PtxInstruction, then: int) -> tuple[Ending | None, Read | None]:
    """Execute `barrier.cluster.arrive` or `.wait`."""
    if p.version < (9, 0):
        raise PtxError("clusters need sm_90")
    meets = whole_warps(p, i, then)[1] if i.has("aligned") else None
    if i.has("arrive"):

        def arrive(group: Group) -> list[Group]:
            group.at = then
            group.batch.cluster_barrier.arrive(group)
            return [group]

        return arrive, meets
    return lambda group: group.batch.cluster_barrier.wait(group, then), meets


def _mapa(p: KernelPreparation, i: PtxInstruction) -> Step:
    if p.version < (9, 0):
        raise PtxError("mapa needs sm_90")
    kind = i.kind
    address, rank, write = p.read(i.operands[1], kind), p.read(i.operands[2], "u32"), p.write(i.operands[0])

    def step(group: Group) -> None:
        ranks = rank(group)
        if int(ranks.max()) >= group.batch.cluster:
            raise KernelError(f"block {int(ranks.max())} of a cluster of {group.batch.cluster}")
        write(group, with_rank(address(group), ranks))

    return step


def _setmaxnreg(p: KernelPreparation, i: PtxInstruction) -> Step:
    count = int(p.read(i.operands[0], "u32")(None)[0])  # type: ignore[arg-type]
    if p.target != "sm_90a" and p.version < (10, 0):
        raise PtxError("setmaxnreg needs sm_90a")
    if count % 8 or not 24 <= count <= 256:
        raise PtxError(f"{count} registers: expected a multiple of 8 from 24 to 256")
    if "maxnreg" not in p.function.directives and "reqntid" not in p.function.directives:
        raise PtxError("setmaxnreg needs .maxnreg")
    return lambda group: None


CLUSTER: dict[str, Builder] = {"mapa": _mapa, "setmaxnreg": _setmaxnreg}
