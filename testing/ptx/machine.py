"""Kernels executed: blocks of threads in batches, groups of threads that are at the same place one after the other.

The group at the lowest place goes first, so that threads meet again after branches and loops. A group that waits, at a
barrier or for other threads of its warp, goes on when it may; if no group can, the kernel hangs, which is an error.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.testing.ptx.bulk import BulkCopies
from mirlo.testing.ptx.cluster import ClusterBarrier
from mirlo.testing.ptx.errors import KernelError
from mirlo.testing.ptx.flow import arguments_of
from mirlo.testing.ptx.group import Group, merged
from mirlo.testing.ptx.kernel import Code, PtxKernel
from mirlo.testing.ptx.mbarriers import MBarriers
from mirlo.testing.ptx.memory import GlobalMemory, Windows
from mirlo.testing.ptx.prepare import Step
from mirlo.testing.ptx.races import Races
from mirlo.testing.ptx.ranks import OFFSETS, RANK_SHIFT
from mirlo.testing.ptx.tensormemory import TensorMemory
from mirlo.testing.ptx.types import Array
from mirlo.testing.ptx.waiting import BlockBarriers, Copies
from mirlo.testing.ptx.wgmma import WARPGROUP, Products

WARP = 32
MOST_THREADS = 1 << 15
"""Threads of a batch; more do not fit the processor's caches."""
MOST_BLOCKS = 2_000_000
"""Basic blocks that a batch executes before it is said not to end."""
MOST_SHARED = 1 << 26
"""Bytes of all their shared memory."""


class Batch:
    """Blocks of threads that are executed together."""

    def __init__(
        self, kernel: PtxKernel, memory: GlobalMemory, grid: Sequence[int], block: Sequence[int], params: bytes,
        asked: int, blocks: Array, cluster: int, races: bool = False,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.memory = memory
        self.params = params
        self.block_size = size = int(np.prod(block))
        self.count = len(blocks)
        self.cluster = cluster
        self.threads = _threads(block, self.count)
        self.blocks = _blocks(grid, blocks, cluster)
        shared = kernel.shared_size + asked
        self.same = _same(grid, block, asked, shared, cluster)
        self.shared = Windows(self.count, shared, "shared", 1024)
        if cluster > 1:
            self.shared.offsets = self._own_offsets
        self.local = Windows(self.count * size, kernel.local_size, "local", 16, undefined=True)
        self.alive = np.ones(self.count * size, np.bool_)
        self.warps_per_block = -(-size // WARP)
        tids = np.arange(self.count * size)
        self.warp_of = tids // size * self.warps_per_block + tids % size // WARP
        self.races = Races(self, self.count * self.shared.stride) if races else None
        self.barriers = BlockBarriers(self)
        self.copies = Copies(self)
        self.bulk = BulkCopies(self)
        self.mbarriers = MBarriers(self)
        self.cluster_barrier = ClusterBarrier(self)
        self.products = Products(self)
        self.tensor = TensorMemory(self)
        self.parked: dict[int, list[Group]] = {}
        self._queue: list[tuple[int, int, Group]] = []
        self._pushed = 0
        self._executed = 0

    def block_of(self, group: Group) -> Array:
        """Return the index in the batch of each thread's block."""
        return group.tids // self.block_size

    def block_of_threads(self, tids: Array) -> Array:
        """Return the index in the batch of these threads' blocks."""
        return tids // self.block_size

    def load_shared(self, group: Group, blocks: Array, addresses: Array, size: int) -> Array:
        """Return elements of the blocks' shared memory."""
        if self.races is not None:
            self.races.touch(group.tids, self.shared.places(blocks, addresses, size), size)
        return self.shared.load(blocks, addresses, size)

    def store_shared(self, group: Group, blocks: Array, addresses: Array, values: Array, size: int) -> None:
        """Write such elements."""
        if self.races is not None:
            self.races.touch(group.tids, self.shared.places(blocks, addresses, size), size, values)
        self.shared.store(blocks, addresses, values, size)

    def push(self, group: Group) -> None:
        """Resume a group in its turn."""
        self._pushed += 1
        heapq.heappush(self._queue, (group.at, self._pushed, group))

    def run(self) -> None:
        """Execute all threads to their end."""
        tids = np.arange(self.count * self.block_size)
        self.push(Group(self, tids, [None] * self.kernel.registers, 0))
        while self._queue or self.bulk.finish() or self.tensor.finish():
            if not self._queue:
                continue
            self._run_group(self._pop())
        waiting = self._who_waits()
        if waiting:
            raise KernelError(f"the kernel '{self.kernel.name}' hangs:\n{waiting}")
        self.tensor.check_freed()

    def _pop(self) -> Group:
        at, _, group = heapq.heappop(self._queue)
        same = [group]
        while self._queue and self._queue[0][0] == at:
            same.append(heapq.heappop(self._queue)[2])
        same += self.parked.pop(at, ())
        return merged(same, self.kernel.blocks[at].live) if len(same) > 1 else group

    def _run_group(self, group: Group) -> None:
        blocks, queue = self.kernel.blocks, self._queue
        while True:
            self._executed += 1
            if self._executed > MOST_BLOCKS:
                raise KernelError(f"the kernel '{self.kernel.name}' does not end: {group.size} threads go round")
            code = blocks[group.at]
            step: Any = None
            try:
                if code.meets is not None:
                    ready = self._meet(group, code)
                    if ready is None:
                        return
                    group = ready
                for step in code.steps:
                    step(group)
                step = None
                following = code.ending(group)
            except (KernelError, AttributeError, TypeError, IndexError, ValueError) as error:
                raise self._located(error, code, step, group) from error
            if len(following) == 1 and (not queue or queue[0][0] > following[0].at):
                group = following[0]
                if group.at in self.parked:
                    self.push(group)
                    return
                continue
            for one in following:
                self.push(one)
            return

    def _meet(self, group: Group, code: Code) -> Group | None:
        """Return the threads whose warps have arrived as far as the instruction needs them; the others wait."""
        assert code.meets is not None
        if group.size == len(self.alive):
            return group
        wanted = group.spread(code.meets(group)).astype(np.uint32)
        lanes = np.uint32(1) << self.threads["%laneid"][group.tids]
        here = np.zeros(self.count * self.warps_per_block, np.uint32)
        warps = self.warp_of[group.tids]
        np.bitwise_or.at(here, warps, lanes)
        ready = wanted & ~here[warps] == 0
        if code.instructions[0].name == "wgmma":
            warpgroups = group.tids // WARPGROUP
            ready &= np.bincount(warpgroups, ready)[warpgroups] == WARPGROUP
        if ready.all():
            return group
        rest = group.part(~ready, code.live, group.at)
        self.parked.setdefault(group.at, []).append(rest)
        return group.part(ready, code.live, group.at) if ready.any() else None

    def alive_lanes(self, group: Group) -> Array:
        """Return the lanes of each thread's warp that have not ended, as masks."""
        masks = np.zeros(self.count * self.warps_per_block, np.uint32)
        lanes = np.uint32(1) << self.threads["%laneid"]
        np.bitwise_or.at(masks, self.warp_of[self.alive], lanes[self.alive])
        return masks[self.warp_of[group.tids]]

    def in_cluster(self, group: Group, addresses: Array) -> tuple[Array, Array]:
        """Return the block, and the offset there, of addresses in the shared memory of a cluster: the rank is above."""
        ranks = (addresses >> np.uint64(RANK_SHIFT)).astype(np.int64)
        own = self.block_of(group)
        # A constant address is in the block's own memory; others have the rank plus one above.
        blocks = np.where(ranks == 0, own, own // self.cluster * self.cluster + ranks - 1)
        return blocks, addresses & np.uint64(OFFSETS)

    def rank_of(self, group: Group) -> Array:
        """Return the rank of each thread's block in its cluster."""
        return self.block_of(group) % self.cluster

    def _own_offsets(self, blocks: Array, addresses: Array) -> Array:
        """Return the offsets of addresses in the shared memory of these blocks."""
        ranks = (addresses >> np.uint64(RANK_SHIFT)).astype(np.int64)
        if ((ranks != 0) & (ranks - 1 != blocks % self.cluster)).any():
            raise KernelError("an address in the shared memory of another block of the cluster")
        return addresses & addresses.dtype.type(OFFSETS)

    # What is wrong

    def _located(self, error: Exception, code: Code, step: Step | None, group: Group) -> Exception:
        number = len(code.instructions) - 1 if step is None else code.steps.index(step)
        i = code.instructions[number]
        unset = [name for name in sorted(arguments_of(i)) if self._unset(name, group)]
        if isinstance(error, KernelError):
            what = str(error)
        elif unset:
            what = f"{', '.join(unset)} is read before it is written"
        else:
            return error
        block, thread = divmod(int(group.tids[0]), self.block_size)
        where = f"kernel '{self.kernel.name}', line {i.line}, {i.opcode}"
        place = tuple(int(self.blocks[f"%ctaid.{axis}"][block % len(self.blocks["%ctaid.x"])]) for axis in "xyz")
        return KernelError(f"{where}: {what} ({group.size} threads, from thread {thread} of block {place})")

    def _unset(self, name: str, group: Group) -> bool:
        number = self.kernel.numbers.get(name)
        return number is not None and group.regs[number] is None

    def _who_waits(self) -> str:
        lines = []
        parked = [group for groups in self.parked.values() for group in groups]
        late = [(group, "for the rest of their warps") for group in parked]
        for kind in (self.barriers, self.mbarriers, self.cluster_barrier):
            late += kind.waiting()
        for group, why in late:
            warps = sorted({(int(t) // self.block_size, int(t) % self.block_size // WARP) for t in group.tids})
            i = self.kernel.blocks[group.at].instructions[-1]
            some = ", ".join(f"{warp} of block {block}" for block, warp in warps[:8])
            lines.append(f"  line {i.line}, {i.opcode}: {group.size} threads wait {why}, of warps {some}")
        return "\n".join(lines)


def _threads(block: Sequence[int], count: int) -> dict[str, Array]:
    size = int(np.prod(block))
    linear = np.tile(np.arange(size, dtype=np.uint32), count)
    x, y = np.uint32(block[0]), np.uint32(block[1])
    return {
        "%tid.x": linear % x, "%tid.y": linear // x % y, "%tid.z": linear // (x * y),
        "%laneid": linear % np.uint32(WARP), "%warpid": linear // np.uint32(WARP),
    }  # fmt: skip


def _blocks(grid: Sequence[int], blocks: Array, cluster: int) -> dict[str, Array]:
    linear = blocks.astype(np.uint32)
    x, y = np.uint32(grid[0]), np.uint32(grid[1])
    zero, wide = np.zeros(1, np.uint32), np.uint32(cluster)
    return {
        "%ctaid.x": linear % x, "%ctaid.y": linear // x % y, "%ctaid.z": linear // (x * y),
        "%cluster_ctaid.x": linear % x % wide, "%cluster_ctaid.y": zero, "%cluster_ctaid.z": zero,
        "%cluster_ctarank": linear % x % wide, "%clusterid.x": linear % x // wide, "%clusterid.y": linear // x % y,
        "%clusterid.z": linear // (x * y),
    }  # fmt: skip


def _same(grid: Sequence[int], block: Sequence[int], asked: int, shared: int, cluster: int) -> dict[str, Array]:
    specials = {"%dynamic_smem_size": asked, "%total_smem_size": shared, "%cluster_nctarank": cluster}
    clusters, sizes = (grid[0] // cluster, grid[1], grid[2]), (cluster, 1, 1)
    for n, axis in enumerate("xyz"):
        specials |= {f"%ntid.{axis}": block[n], f"%nctaid.{axis}": grid[n], f"%nclusterid.{axis}": clusters[n],
                  f"%cluster_nctaid.{axis}": sizes[n]}  # fmt: skip
    return {name: np.array([value], np.uint32) for name, value in specials.items()}
