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
from fragments import KINDS, rounded_to_tf32
from simt import Block, dtype_of

GROUP = 128
MEMORY = 227 * 1024
REGISTERS = 65536
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


class Unit:
    """What the warpgroups of a block share."""

    def __init__(self, groups: int):
        self.memory = np.full(MEMORY, 0x99, np.uint8)
        self.allocated: list[int] = [0]
        self.barriers: dict[int, Barrier] = {}
        self.changed = threading.Condition()
        self.together = threading.Barrier(groups)
        self.registers: dict[int, int] = {}
        self.failure: BaseException | None = None

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
            done = self.changed.wait_for(lambda: self.failure or self.barriers[address].turn != turn, PATIENCE)
            assert done, "a wait that never ends"
            assert self.failure is None, "another warpgroup failed"


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
        return np.ascontiguousarray(bytes_).view(self.kind)[:, :, 0]


class Sums:
    """The sums of a warpgroup in registers, 64 rows; products that are under way change them."""

    def __init__(self, count: int, dtype: Any):
        self.values = np.zeros((GROUP, count), dtype)
        self.under_way = 0

    def add(self, product: np.ndarray) -> None:
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
        assert (value == 0).all()
        self.env[op.results[0]] = Sums(kind.count(str(op.operands[0].type)), value.dtype)

    # Barriers and copies

    def nvvm_mbarrier_init(self, op: Any, mask: np.ndarray) -> None:
        assert mask.sum() == 1, "one thread makes a barrier"
        at, arrivals = (self._one(value, mask) for value in op.operands)
        assert at not in self.unit.barriers and at % 8 == 0
        self.unit.barriers[at] = Barrier(arrivals)

    def nvvm_fence_mbarrier_init(self, op: Any, mask: np.ndarray) -> None:
        assert self.unit.barriers

    def nvvm_mbarrier_arrive(self, op: Any, mask: np.ndarray) -> None:
        self.unit.note(self._one(op.operands[0], mask), int(mask.sum()), 0)

    def nvvm_mbarrier_arrive_expect_tx(self, op: Any, mask: np.ndarray) -> None:
        assert mask.sum() == 1
        at, count = (self._one(value, mask) for value in op.operands)
        self.unit.note(at, 1, count)

    def nvvm_mbarrier_try_wait_parity(self, op: Any, mask: np.ndarray) -> None:
        at, turn = (self._one(value, mask) for value in list(op.operands)[:2])
        self.unit.wait(at, turn)

    def nvvm_cp_async_bulk_tensor_shared_cluster_global(self, op: Any, mask: np.ndarray) -> None:
        assert mask.sum() == 1, "one thread starts a copy"
        target, source, *corner, barrier = list(op.operands)
        at = self._one(target, mask)
        assert at % 1024 == 0, "tiles begin where the permutation does"
        data = self.env[source].read([self._one(value, mask) for value in corner])
        self.unit.memory[permuted(at + np.arange(data.size))] = data
        self.unit.note(self._one(barrier, mask), 0, -data.size)

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

        def finish() -> None:
            a, b = left.read(self.unit.memory, m, k), right.read(self.unit.memory, n, k)
            wide = sums.values.dtype
            sums.add(a.astype(wide) @ b.astype(wide).T)

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
        assert held.under_way == 0, "sums are read while products are under way"
        (position,) = op.attributes["position"]
        self.env[op.results[0]] = held.values[:, position]


def run_block(body: Any, position: tuple[int, int, int], threads: int, arguments: list[Any]) -> None:
    """Run one block of a kernel, all its warpgroups at the same time."""
    groups = threads // GROUP
    unit = Unit(groups)

    def run(number: int) -> None:
        try:
            group = Warpgroup(unit, number, position)
            group.env.update(zip(body.arguments, arguments, strict=True))
            group.run(body, np.ones(GROUP, bool))
        except BaseException as error:
            with unit.changed:
                unit.failure = unit.failure or error
                unit.changed.notify_all()
            unit.together.abort()

    workers = [threading.Thread(target=run, args=(number,)) for number in range(groups)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if unit.failure is not None:
        raise unit.failure
    assert all(barrier.bytes == 0 for barrier in unit.barriers.values()), "copies that nobody waited for"
