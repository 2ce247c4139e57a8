"""Tensor memory and its products: `tcgen05`, section 9.7.16 of the PTX manual, for one block and 128 rows.

Products come as late as they may: when no thread can go on without them. What is loaded is in no register until it was
waited for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.matrix import product_of
from mirlo.testing.ptx.mbarriers import Key, keys_of
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Step
from mirlo.testing.ptx.residues import MatrixFactor
from mirlo.testing.ptx.text import PtxInstruction
from mirlo.testing.ptx.types import TYPES, Array
from mirlo.testing.ptx.wgmma import Described, places

LANES, COLUMNS, WARP = 128, 512, 32
DEPTH_BYTES = 32
_FORMATS: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "bf16"}, "tf32": {2: "tf32"}, "f8f6f4": {0: "e4m3", 1: "e5m2"}, "i8": {0: "u8", 1: "s8"},
}  # fmt: skip
_SUMS = {"f16": {1: "f32"}, "tf32": {1: "f32"}, "f8f6f4": {1: "f32"}, "i8": {2: "s32"}}


@dataclass(frozen=True)
class _Product:
    block: int
    column: int
    kinds: tuple[str, str, str]
    sources: tuple[Array, Array]
    """Places in shared memory of both factors, by byte."""
    keeps: bool


class TensorMemory:
    """The tensor memory of the blocks of a batch, and the products in flight."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._data = np.zeros((0, LANES, COLUMNS), np.uint32)
        self._known = np.zeros((0, LANES, COLUMNS), np.bool_)
        self._owned = np.zeros((0, COLUMNS), np.bool_)
        self._under_way: list[_Product | tuple[Key, int]] = []
        """Products, and barriers to arrive at after them, with the warp that said so."""
        self._loaded: dict[int, list[tuple[tuple[int, ...], Array]]] = {}
        """Registers and their values, by warp."""

    def allocate(self, block: int, count: int) -> int:
        """Allocate columns; return the first."""
        if not len(self._owned):
            blocks = self._batch.count
            self._data = np.zeros((blocks, *self._data.shape[1:]), self._data.dtype)
            self._known = np.zeros((blocks, *self._known.shape[1:]), self._known.dtype)
            self._owned = np.zeros((blocks, COLUMNS), np.bool_)
        if count not in (32, 64, 128, 256, 512):
            raise KernelError(f"{count} columns of tensor memory: expected a power of two from 32 to 512")
        for first in range(0, COLUMNS, count):
            if not self._owned[block, first : first + count].any():
                self._owned[block, first : first + count] = True
                return first
        raise KernelError(f"there are not {count} columns of tensor memory left")

    def free(self, block: int, column: int, count: int) -> None:
        """Give columns back."""
        self._check(block, column, count)
        self._owned[block, column : column + count] = False
        self._known[block, :, column : column + count] = False

    def check_freed(self) -> None:
        """Raise an error if a block ended with memory of its own."""
        if self._owned.any():
            raise KernelError(f"{int(self._owned.any(0).sum())} columns of tensor memory were not deallocated")

    def _check(self, block: int, column: int, count: int) -> None:
        if not len(self._owned) or not self._owned[block, column : column + count].all() or column + count > COLUMNS:
            raise KernelError(f"columns {column} to {column + count} of tensor memory were not allocated")

    def start(self, product: _Product, columns: int, warp: int) -> None:
        """Put a product in flight."""
        self._check(product.block, product.column, columns)
        if self._batch.races is not None:
            for at in product.sources:
                self._batch.races.read(np.full(at.size, warp), at.reshape(-1))
        self._under_way.append(product)

    def commit(self, key: Key, warp: int) -> None:
        """Arrive at a barrier when all products so far are done."""
        self._batch.mbarriers.state(key)
        self._under_way.append((key, warp))

    def finish(self) -> bool:
        """Complete all products; return whether there were any."""
        waiting, self._under_way = self._under_way, []
        for one in waiting:
            if isinstance(one, _Product):
                self._multiply(one)
                continue
            key, warp = one
            if self._batch.races is not None:
                self._batch.races.leave(key, np.array([warp]))
            self._batch.mbarriers.arrive(key)
        return bool(waiting)

    def _multiply(self, product: _Product) -> None:
        shared = self._batch.shared
        left, right, kind = product.kinds
        factors: list[MatrixFactor] = []
        for at, name in zip(product.sources, (left, right), strict=True):
            shared.check_for_units(at)
            numbers = shared.bytes[at].view(TYPES[name])[..., 0]
            factors.append(MatrixFactor(numbers, name, is_transposed=bool(factors)))
        columns = len(factors[1].numbers)
        where = (product.block, slice(None), slice(product.column, product.column + columns))
        if product.keeps and not self._known[where].all():
            raise KernelError("a product adds to tensor memory that was never written")
        sums = self._data[where].view(TYPES[kind]) if product.keeps else np.zeros((LANES, columns), TYPES[kind])
        result = product_of(self._batch.kernel.residues, factors[0], factors[1], sums)
        self._data[where] = result.view(np.uint32)
        self._known[where] = True

    def load(self, group: Group, address: Array, registers: tuple[int, ...]) -> None:
        """16 lanes of each warp, in the fragments of `mma`."""
        count = len(registers)
        lane, register = np.arange(WARP)[:, None], np.arange(count)[None]
        rows = lane // 4 + 8 * (register // 2 % 2)
        columns = register // 4 * 8 + lane % 4 * 2 + register % 2
        for at in range(0, group.size, WARP):
            warp, place = int(self._batch.warp_of[group.tids[at]]), int(address[at])
            block, first_lane, column = int(group.tids[at]) // self._batch.block_size, place >> 16, place & 0xFFFF
            if (address[at : at + WARP] != place).any():
                raise KernelError("threads of a warp load different places of tensor memory")
            if first_lane // WARP != warp % self._batch.warps_per_block % 4 or first_lane % 16:
                raise KernelError(f"warp {warp % self._batch.warps_per_block} may not load from lane {first_lane}")
            self._check(block, column, 2 * count)
            late = any(
                isinstance(p, _Product) and p.block == block and column <= p.column < column + 2 * count
                for p in self._under_way
            )
            if late or not self._known[block, first_lane + rows, column + columns].all():
                raise KernelError("tensor memory is loaded before its products were waited for")
            values = self._data[block, first_lane + rows, column + columns]
            self._loaded.setdefault(warp, []).append((registers, values))
        for n in registers:
            group.regs[n] = None

    def wait(self, group: Group) -> None:
        """Finish loads: registers have what was loaded."""
        warps = self._batch.warp_of[group.tids[::WARP]].tolist()
        parts = [self._loaded.pop(warp, []) for warp in warps]
        for number, (registers, _) in enumerate(parts[0]):
            values = np.concatenate([part[number][1] for part in parts])
            for column, n in enumerate(registers):
                group.regs[n] = np.ascontiguousarray(values[:, column])


def _sources(group: Group, n: int, bits: int, lines: int, kind: str, across: bool) -> Array:
    """Return where the bytes of a factor are."""
    if bits >> 46 & 7 != 1 or bits >> 61 != 2 or bits >> 49 & 7:
        raise KernelError(f"the descriptor {bits:#x} is not known")
    start, leading, stride = ((bits >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    size, shared = TYPES[kind].itemsize, group.batch.shared
    at = places(Described(start, leading, stride, 1), lines, DEPTH_BYTES // size, size, across)
    bytes_at = at[:, :, None] + np.arange(size)
    if int(bytes_at.max()) >= shared.size:
        raise KernelError(f"a factor reaches to {int(bytes_at.max())} of {shared.size} bytes of shared memory")
    return bytes_at + int(group.tids[n]) // group.batch.block_size * shared.stride


def _mma(p: KernelPreparation, i: PtxInstruction) -> Step:
    kind = next((m[6:] for m in i.modifiers if m.startswith("kind::")), "")
    if kind not in _FORMATS or not i.has("cta_group::1"):
        raise PtxError(f"'{i.opcode}' is not known")
    target, *rest = i.operands
    column, numbers = p.address(target), [p.read(one, "u64") for one in rest[:2]]
    instruction, keeps = p.read(rest[2], "u32"), p.read(rest[3], "pred")

    def step(group: Group) -> None:
        words, left, right = (group.spread(one(group)).tolist() for one in (instruction, *numbers))
        wheres, kept = group.spread(column(group)).tolist(), group.spread(keeps(group)).tolist()
        for n in range(group.size):
            word = int(words[n])
            formats = _FORMATS[kind].get(word >> 7 & 7), _FORMATS[kind].get(word >> 10 & 7)
            sums, columns, rows = _SUMS[kind].get(word >> 4 & 3), (word >> 17 & 63) << 3, (word >> 24 & 31) << 4
            if None in formats or sums is None or word & 0xE080600F or rows != LANES or columns % 16 or columns > 256:
                raise KernelError(f"the instruction descriptor {word:#x} is not known")
            a, b = str(formats[0]), str(formats[1])
            sources = (
                _sources(group, n, int(left[n]), rows, a, bool(word >> 15 & 1)),
                _sources(group, n, int(right[n]), columns, b, bool(word >> 16 & 1)),
            )
            if wheres[n] >> 16:
                raise KernelError("products of 128 rows begin at lane 0")
            block = int(group.tids[n]) // group.batch.block_size
            product = _Product(block, int(wheres[n]), (a, b, str(sums)), sources, bool(kept[n]))
            group.batch.tensor.start(product, columns, int(group.batch.warp_of[group.tids[n]]))

    return step


def _tcgen05(p: KernelPreparation, i: PtxInstruction) -> Step:
    if p.target != "sm_100a":
        raise PtxError("tcgen05 needs sm_100a")
    action = i.modifiers[0]
    if action == "mma":
        return _mma(p, i)
    if action.startswith("fence::") or action == "relinquish_alloc_permit":
        return lambda group: None
    if action == "wait::ld":
        return lambda group: group.batch.tensor.wait(group)
    if action == "commit":
        barrier = p.address(i.operands[0])

        def commit(group: Group) -> None:
            for key, tid in zip(keys_of(group, barrier(group)), group.tids, strict=True):
                group.batch.tensor.commit(key, int(group.batch.warp_of[tid]))

        return commit
    if action == "ld" and i.has("16x256b"):
        registers = tuple(p.number(part.name) for part in p.parts(i.operands[0]))  # type: ignore[union-attr]
        source = p.address(i.operands[1])
        return lambda group: group.batch.tensor.load(group, group.spread(source(group)), registers)
    if action in ("alloc", "dealloc"):
        return _allocation(p, i, action == "alloc")
    raise PtxError(f"'{i.opcode}' is not known")


def _allocation(p: KernelPreparation, i: PtxInstruction, gets: bool) -> Step:
    where: Any = p.address(i.operands[0]) if gets else p.read(i.operands[0], "u32")
    count = p.read(i.operands[1], "u32")

    def step(group: Group) -> None:
        batch = group.batch
        blocks, counts = batch.block_of(group)[::WARP], group.spread(count(group))[::WARP]
        at = group.spread(where(group))[::WARP]
        for n, block in enumerate(blocks.tolist()):
            if gets:
                first = np.array([batch.tensor.allocate(block, int(counts[n]))], np.uint32)
                one = group.part(np.arange(group.size) == n * WARP, (), group.at)
                batch.store_shared(one, blocks[n : n + 1], at[n : n + 1], first, 4)
            else:
                batch.tensor.free(block, int(at[n]), int(counts[n]))

    return step


TENSOR_MEMORY: dict[str, Builder] = {"tcgen05": _tcgen05}
