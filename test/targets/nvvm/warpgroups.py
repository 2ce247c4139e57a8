"""Kernels of warpgroups executed without a GPU: those that copy and those that multiply run at the same time.

Each warpgroup is a thread of Python, which runs its 128 threads step by step together; they meet at barriers in shared
memory only. What the PTX manual says of these is written down here once more: boxes of tensor maps, permuted in groups
of eight rows of 128 bytes; descriptors of matrices; products that are done when they are waited for, and not before.
"""

from __future__ import annotations

import math
import re
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from assembly import Register, run_assembly
from fragments import KINDS, rounded_to_tf32, seen
from simt import Block, dtype_of

from mirlo.dialects.bindings import ir

GROUP = 128
MEMORY = 227 * 1024
REGISTERS = 65536
MAPPED = 1 << 32
"""Between the addresses of the blocks of a cluster, as one of them sees the others."""
PATIENCE = 30.0
"""Seconds after which a wait is taken to be one for ever."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor in memory as the copying engine sees it; dims from the innermost on."""

    memory: np.ndarray
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    format: str

    def read(self, corner: list[int]) -> np.ndarray:
        """The numbers of a box, zero beyond the edges, as bytes."""
        size = self.memory.itemsize
        assert self.box[0] * size == 128 and all(side <= 256 for side in self.box), "a box that cannot be"
        assert all(stride % 16 == 0 for stride in self.strides), "lines that do not begin at multiples of 16 bytes"
        at: Any = np.zeros((), np.int64)
        inside: Any = np.ones((), bool)
        for first, count, dim, stride in zip(corner, self.box, self.dims, (size, *self.strides), strict=True):
            place = first + np.arange(count)
            inside = ((place >= 0) & (place < dim)).reshape(-1, *[1] * inside.ndim) & inside
            at = (place * stride // size).reshape(-1, *[1] * at.ndim) + at
        numbers = np.where(inside, self.memory[np.where(inside, at, 0)], 0).astype(self.memory.dtype)
        return (rounded_to_tf32(numbers) if self.format == "tf32" else numbers).reshape(-1).view(np.uint8)


class Barrier:
    """A barrier in shared memory, that counts arrivals and bytes."""

    def __init__(self, arrivals: int):
        self.arrivals = self.missing = arrivals
        self.bytes = 0
        self.turn = 0

    def note(self, arrivals: int, count: int) -> None:
        self.missing -= arrivals
        self.bytes += count
        assert self.missing >= 0, "more arrivals than a barrier waits for"
        if self.missing == 0 and self.bytes == 0:
            self.missing, self.turn = self.arrivals, self.turn ^ 1


class Cluster:
    """Blocks that reach each other's shared memory."""

    def __init__(self, blocks: int, groups: int):
        self.together = threading.Barrier(blocks * groups)
        self.failure: BaseException | None = None
        self.units = [Unit(groups, self) for _ in range(blocks)]

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.together.abort()
        for unit in self.units:
            unit.together.abort()
            with unit.changed:
                unit.changed.notify_all()


class Unit:
    """What the warpgroups of a block share."""

    def __init__(self, groups: int, cluster: Cluster):
        self.cluster = cluster
        self.memory = np.full(MEMORY, 0x99, np.uint8)
        self.allocated: list[int] = [0]
        self.barriers: dict[int, Barrier] = {}
        self.changed = threading.Condition()
        self.together = threading.Barrier(groups)
        self.registers: dict[int, int] = {}
        self.meetings: dict[int, int] = {}
        """Threads that came so far to each of the numbered barriers."""

    def meet(self, number: int, count: int, waits: bool) -> None:
        """A warpgroup comes to a barrier that opens whenever so many threads have come."""
        with self.changed:
            before = self.meetings.get(number, 0)
            self.meetings[number] = before + GROUP
            self.changed.notify_all()
            if waits:
                opens = before // count * count + count

                def is_open() -> bool:
                    return self.cluster.failure is not None or self.meetings[number] >= opens

                assert self.changed.wait_for(is_open, PATIENCE), "a barrier that never opens"
                assert self.cluster.failure is None, "another warpgroup failed"

    def place(self, number: int, size: int) -> int:
        """Where the memory of this number begins."""
        with self.changed:
            if number + 1 == len(self.allocated):
                self.allocated.append(self.allocated[-1] + -(-size // 1024) * 1024)
                assert self.allocated[-1] <= MEMORY, "more shared memory than there is"
            return self.allocated[number]

    def note(self, address: int, arrivals: int, count: int) -> None:
        with self.changed:
            self.barriers[address].note(arrivals, count)
            self.changed.notify_all()

    def wait(self, address: int, turn: int) -> None:
        with self.changed:
            barrier = self.barriers[address]
            done = self.changed.wait_for(lambda: self.cluster.failure or barrier.turn != turn, PATIENCE)
            assert done, "a wait that never ends"
            assert self.cluster.failure is None, "another warpgroup failed"


def permuted(address: Any) -> Any:
    """Where a byte is: pieces of 16 bytes change places by the number of their row."""
    return address ^ (address >> 7 & 7) << 4


@dataclass(frozen=True)
class Matrix:
    """A matrix in shared memory, by its descriptor."""

    descriptor: int
    kind: Any
    along_sums: bool

    def read(self, memory: np.ndarray, lines: int, steps: int) -> np.ndarray:
        """Lines by steps."""
        start, beside, below = (16 * (self.descriptor >> at & 0x3FFF) for at in (0, 16, 32))
        assert self.descriptor >> 62 & 3 == 1, "only permutations of 128 bytes are known here"
        size = np.dtype(self.kind).itemsize
        line, step = np.arange(lines)[:, None], np.arange(steps)[None, :]
        if self.along_sums:
            at = line // 8 * below + line % 8 * 128 + step * size
        else:
            assert size == 2, "only 16-bit numbers are turned"
            at = line // 64 * beside + line % 64 * size + step // 8 * below + step % 8 * 128
        bytes_ = memory[permuted(start + at)[:, :, None] + np.arange(size)]
        return seen(np.ascontiguousarray(bytes_).view(self.kind)[:, :, 0])


class Sums:
    """The sums of a warpgroup in registers, 64 rows; products that are under way change them."""

    def __init__(self, count: int, dtype: Any):
        # Nobody has written them.
        self.values = np.full((GROUP, count), 77 if np.dtype(dtype).kind == "i" else np.nan, dtype)
        self.under_way = 0

    def add(self, product: np.ndarray, begins: bool) -> None:
        """Add a product, or have it replace what is there."""
        if begins:
            self.values[:] = 0
        lanes = np.arange(GROUP)
        for register in range(self.values.shape[1]):
            block, half, i = register // 4, register // 2 % 2, register % 2
            row = lanes // 32 * 16 + lanes % 32 // 4 + 8 * half
            self.values[lanes, register] += product[row, 8 * block + lanes % 4 * 2 + i]
        self.under_way -= 1


class Warpgroup(Block):
    """One of the warpgroups of a block."""

    def __init__(self, unit: Unit, number: int, position: tuple[int, int, int]):
        super().__init__(GROUP, position)
        self.unit = unit
        self.number = number
        self.count = 0
        self.bases: dict[Any, int] = {}
        self.products: list[Any] = []
        self.under_way: list[list[Any]] = []
        self.fenced = False
        self.unpublished = False

    def _one(self, value: Any, mask: np.ndarray) -> int:
        """What all threads agree on."""
        numbers = np.unique(self.env[value][mask])
        assert len(numbers) == 1, "threads disagree"
        return int(numbers[0])

    def gpu_thread_id(self, op: Any, mask: np.ndarray) -> None:
        super().gpu_thread_id(op, mask)
        if self._dim(op) == 0:
            self.env[op.results[0]] += self.number * GROUP

    def scf_if(self, op: Any, mask: np.ndarray) -> None:
        """A branch that no thread takes is left out: what is in it may concern the whole warpgroup."""
        if len(op.results):
            super().scf_if(op, mask)
            return
        condition = self.env[op.operands[0]]
        for region, taken in zip(op.regions, (mask & condition, mask & ~condition), strict=True):
            if taken.any() and len(region.blocks):
                self.run(region.blocks[0], taken)

    def gpu_barrier(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all()
        self.unit.together.wait(PATIENCE)

    def memref_alloc(self, op: Any, mask: np.ndarray) -> None:
        kind = op.results[0].type
        size = math.prod(kind.shape) * np.dtype(dtype_of(kind)).itemsize
        base = self.unit.place(self.count, size)
        self.count += 1
        self.env[op.results[0]] = self.unit.memory[base : base + size].view(dtype_of(kind))
        self.bases[op.results[0]] = base

    def memref_extract_aligned_pointer_as_index(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = np.full(GROUP, self.bases[op.operands[0]])

    def _same(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.env[op.operands[0]]

    llvm_inttoptr = llvm_addrspacecast = _same

    def builtin_unrealized_conversion_cast(self, op: Any, mask: np.ndarray) -> None:
        kind = str(op.results[0].type)
        if not kind.startswith("!llvm.struct"):
            self._same(op, mask)
            return
        value = self.env[op.operands[0]]
        self.env[op.results[0]] = Sums(kind.count(str(op.operands[0].type)), value.dtype)

    # Barriers and copies

    def nvvm_mbarrier_init(self, op: Any, mask: np.ndarray) -> None:
        assert mask.sum() == 1, "one thread makes a barrier"
        at, arrivals = (self._one(value, mask) for value in op.operands)
        assert at not in self.unit.barriers and at % 8 == 0
        self.unit.barriers[at] = Barrier(arrivals)

    def nvvm_fence_mbarrier_init(self, op: Any, mask: np.ndarray) -> None:
        assert self.unit.barriers

    def memref_view(self, op: Any, mask: np.ndarray) -> None:
        assert self._one(op.operands[1], mask) == 0
        self.env[op.results[0]] = self.env[op.operands[0]].view(dtype_of(op.results[0].type))

    def nvvm_cp_async_wait_group(self, op: Any, mask: np.ndarray) -> None:
        waiting = len(self.groups)
        super().nvvm_cp_async_wait_group(op, mask)
        self.unpublished |= len(self.groups) < waiting

    def nvvm_fence_proxy(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all()
        self.unpublished = False

    def nvvm_mbarrier_arrive(self, op: Any, mask: np.ndarray) -> None:
        assert not self.unpublished, "products may not see what threads copied"
        places, counts = np.unique(self.env[op.operands[0]][mask], return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            unit = self.unit if place < MAPPED else self.unit.cluster.units[place // MAPPED - 1]
            unit.note(place % MAPPED, count, 0)

    def nvvm_mapa(self, op: Any, mask: np.ndarray) -> None:
        address, rank = (self.env[value] for value in op.operands)
        self.env[op.results[0]] = address + (rank.astype(np.int64) + 1) * MAPPED

    def nvvm_cluster_arrive(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all()

    def nvvm_cluster_wait(self, op: Any, mask: np.ndarray) -> None:
        self.unit.cluster.together.wait(PATIENCE)

    def nvvm_mbarrier_arrive_expect_tx(self, op: Any, mask: np.ndarray) -> None:
        assert mask.sum() == 1
        at, count = (self._one(value, mask) for value in op.operands)
        self.unit.note(at, 1, count)

    def nvvm_mbarrier_try_wait_parity(self, op: Any, mask: np.ndarray) -> None:
        at, turn = (self._one(value, mask) for value in list(op.operands)[:2])
        self.unit.wait(at, turn)

    def nvvm_cp_async_bulk_tensor_shared_cluster_global(self, op: Any, mask: np.ndarray) -> None:
        assert mask.sum() == 1, "one thread starts a copy"
        *_, everyone, hint, predicate = sizes = list(op.attributes["operandSegmentSizes"])
        assert (hint, predicate) == (0, 0) and sizes[:2] == [1, 1]
        target, source, *corner, barrier = list(op.operands)[: 3 + sizes[2]]
        at, number = self._one(target, mask), self._one(barrier, mask)
        assert at % 1024 == 0, "tiles begin where the permutation does"
        data = self.env[source].read([self._one(value, mask) for value in corner])
        units = [self.unit]
        if everyone:
            chosen = self._one(op.operands[3 + sizes[2]], mask)
            units = [unit for i, unit in enumerate(self.unit.cluster.units) if chosen >> i & 1]
            assert chosen >> len(self.unit.cluster.units) == 0, "a block that is not in the cluster"
        for unit in units:
            unit.memory[permuted(at + np.arange(data.size))] = data
            unit.note(number, 0, -data.size)

    # Products

    def nvvm_setmaxregister(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all()
        self.unit.registers[self.number] = op.attributes["regCount"].value
        if len(self.unit.registers) == self.unit.together.parties:
            assert sum(self.unit.registers.values()) * GROUP <= REGISTERS, "more registers than there are"

    def nvvm_wgmma_fence_aligned(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all()
        self.fenced = True

    def nvvm_wgmma_mma_async(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all() and self.fenced
        sums = self.env[op.operands[0]]
        m, n, k = map(int, re.findall(r"= (\d+)", str(op.attributes["shape"])))
        kinds = [KINDS[re.search(r"<(\w+)>", str(op.attributes[name])).group(1)] for name in ("typeA", "typeB")]
        left_along = "row" in str(op.attributes["layoutA"])
        right_along = "col" in str(op.attributes["layoutB"])
        assert m == 64 and sums.values.shape[1] == n // 2 and k * np.dtype(kinds[0]).itemsize == 32
        left = Matrix(self._one(op.operands[1], mask), kinds[0], left_along)
        right = Matrix(self._one(op.operands[2], mask), kinds[1], right_along)
        sums.under_way += 1
        begins = "zero" in str(op.attributes["scaleD"])

        def finish() -> None:
            a, b = left.read(self.unit.memory, m, k), right.read(self.unit.memory, n, k)
            wide = sums.values.dtype
            sums.add(a.astype(wide) @ b.astype(wide).T, begins)

        self.products.append(finish)
        self.env[op.results[0]] = sums

    def nvvm_wgmma_commit_group_sync_aligned(self, op: Any, mask: np.ndarray) -> None:
        self.under_way.append(self.products)
        self.products = []

    def nvvm_wgmma_wait_group_sync_aligned(self, op: Any, mask: np.ndarray) -> None:
        while len(self.under_way) > op.attributes["group"].value:
            for finish in self.under_way.pop(0):
                finish()
        self.fenced = False

    def llvm_extractvalue(self, op: Any, mask: np.ndarray) -> None:
        held = self.env[op.operands[0]]
        if not isinstance(held, Sums):
            super().llvm_extractvalue(op, mask)
            return
        (position,) = op.attributes["position"]
        # Only what waits may take registers while products are under way; anything else does not know them.
        known = held.under_way == 0
        self.env[op.results[0]] = held.values[:, position] if known else Register(held, position)

    def llvm_inline_asm(self, op: Any, mask: np.ndarray) -> None:
        text = ir.StringAttr(op.attributes["asm_string"]).value
        if "wgmma" not in text:
            super().llvm_inline_asm(op, mask)
            return
        assert mask.all(), "a warpgroup multiplies together"
        run_assembly(self, op, text)

    def nvvm_barrier(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all()
        self.unit.meet(*(self._one(value, mask) for value in op.operands), waits=True)

    def nvvm_barrier_arrive(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all()
        self.unit.meet(*(self._one(value, mask) for value in op.operands), waits=False)


def run_cluster(body: Any, positions: list[tuple[int, int, int]], threads: int, arguments: list[Any]) -> None:
    """Run the blocks of a cluster, all their warpgroups at the same time."""
    groups = threads // GROUP
    cluster = Cluster(len(positions), groups)

    def run(rank: int, number: int) -> None:
        try:
            group = Warpgroup(cluster.units[rank], number, positions[rank])
            group.env.update(zip(body.arguments, arguments, strict=True))
            group.run(body, np.ones(GROUP, bool))
        except BaseException as error:
            cluster.fail(error)

    numbers = [(rank, number) for rank in range(len(positions)) for number in range(groups)]
    workers = [threading.Thread(target=run, args=pair) for pair in numbers]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if cluster.failure is not None:
        raise cluster.failure
    left = [barrier for unit in cluster.units for barrier in unit.barriers.values() if barrier.bytes]
    assert not left, "copies that nobody waited for"
