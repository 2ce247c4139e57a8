"""Products of a warpgroup: section 9.7.15 of the PTX manual. Both factors, or the second, are read from shared memory.

Sums are in no register until they were waited for, and what is read must not change until then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.matrix import LANES, product_of
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Step
from mirlo.testing.ptx.residues import MatrixFactor
from mirlo.testing.ptx.text import Imm, PtxInstruction, Vector
from mirlo.testing.ptx.types import TYPES, Array

WARPGROUP = 128
LINES = 64
RESERVED = 0b11 << 14 | 0b11 << 30 | 0b111 << 46 | 0x3FF << 52
"""Bits of a matrix descriptor that are in no field."""
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "s8": 32, "u8": 32, "e4m3": 32, "e5m2": 32}


@dataclass(frozen=True)
class Described:
    """What a descriptor says: places in bytes."""

    start: int
    leading: int
    stride: int
    swizzle: int


def described(bits: int) -> Described:
    """Decode a matrix descriptor."""
    if bits & RESERVED:
        raise KernelError(f"bits that are reserved in a matrix descriptor are set: {bits & RESERVED:#x}")
    if bits >> 49 & 7:
        raise KernelError("descriptors with a base offset are not known")
    fields = (bits & 0x3FFF, bits >> 16 & 0x3FFF, bits >> 32 & 0x3FFF)
    start, leading, stride = (field << 4 for field in fields)
    return Described(start, leading, stride, bits >> 62)


def places(tile: Described, lines: int, depth: int, size: int, across: bool) -> Array:
    """Return the places of the elements of a matrix: `lines` with `depth` numbers of `size` bytes each.

    `across`: numbers of neighbouring lines lie side by side (M-major or N-major), not those of a line (K-major).
    """
    if tile.swizzle != 1:
        raise KernelError(f"swizzling mode {tile.swizzle} is not known")
    line, number = np.arange(lines)[:, None], np.arange(depth)[None]
    if across:
        # ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)), in bytes.
        in_row = 128 // size
        at = line % in_row * size + line // in_row * tile.leading + number % 8 * 128 + number // 8 * tile.stride
    else:
        # ((8,m),(T,2k)):((8T,SBO),(1,T)), in bytes.
        at = line % 8 * 128 + line // 8 * tile.stride + number * size
    at = at + tile.start
    return at ^ (at >> 7 & 7) << 4


Read = list[tuple[Array, Array]]
"""Places in shared memory, and the bytes that were there."""


@dataclass
class _Product:
    """Products of one warpgroup in flight."""

    tids: Array
    number: int
    """Of the group of products."""
    registers: tuple[int, ...]
    sums: Array
    """By thread and register."""
    read: Read


class Products:
    """The products in flight of a batch, by the first thread of a warpgroup."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._under_way: dict[int, list[_Product]] = {}
        self._closed: dict[int, int] = {}
        """Groups that were closed."""

    def sums(self, group: Group, registers: tuple[int, ...], keeps: bool) -> Array:
        """Return the accumulators of products in flight or in registers; they are unused if they are not kept."""
        result = np.zeros((group.size, len(registers)), np.uint32)
        for first in range(0, group.size, WARPGROUP):
            mine = slice(first, first + WARPGROUP)
            products = self._under_way.get(int(group.tids[first]), [])
            if any(set(p.registers) & set(registers) and p.registers != registers for p in products):
                raise KernelError("sums of another shape are under way in these registers")
            before = next((product for product in reversed(products) if product.registers == registers), None)
            if before is not None:
                result[mine] = before.sums
            elif keeps:
                if any(group.regs[n] is None for n in registers):
                    raise KernelError("sums begin with registers that were not written, or are still under way")
                for column, n in enumerate(registers):
                    result[mine, column] = group.spread(group.regs[n])[mine]
        return result

    def start(self, group: Group, registers: tuple[int, ...], sums: Array, read: list[Read]) -> None:
        """Start products; until they complete, their accumulators are in no register."""
        for n, first in enumerate(range(0, group.size, WARPGROUP)):
            tids = group.tids[first : first + WARPGROUP]
            closed, mine = self._closed.get(int(tids[0]), 0), sums[first : first + WARPGROUP]
            product = _Product(tids, closed, registers, mine, read[n])
            self._note(product)
            self._under_way.setdefault(int(tids[0]), []).append(product)
        for n in registers:
            group.regs[n] = None

    def close(self, group: Group) -> None:
        """Execute `commit_group`."""
        for first in group.tids[::WARPGROUP].tolist():
            self._closed[first] = self._closed.get(first, 0) + 1

    def wait(self, group: Group, left: int) -> None:
        """Finish products but those of the last groups."""
        for at in range(0, group.size, WARPGROUP):
            first = int(group.tids[at])
            products = self._under_way.get(first, [])
            done = [one for one in products if one.number < self._closed.get(first, 0) - left]
            rest = [one for one in products if one.number >= self._closed.get(first, 0) - left]
            self._under_way[first] = rest
            for product in done:
                self._check(product)
                self._note(product)
            late = {one.registers for one in rest}
            for registers, product in {one.registers: one for one in done}.items():
                if registers not in late:
                    self._write(group, at, product)

    @staticmethod
    def _write(group: Group, at: int, product: _Product) -> None:
        for column, n in enumerate(product.registers):
            known = group.regs[n]
            values = np.zeros(group.size, np.uint32) if known is None else group.spread(known).copy()
            values[at : at + WARPGROUP] = product.sums[:, column]
            group.regs[n] = values

    def _note(self, product: _Product) -> None:
        """Report to the detector of races that all warps of a warpgroup read until the products are done."""
        batch = self._batch
        if batch.races is not None:
            for at, _ in product.read:
                for warp in np.unique(batch.warp_of[product.tids]).tolist():
                    batch.races.read(np.full(at.size, warp), at.reshape(-1))

    def _check(self, product: _Product) -> None:
        shared = self._batch.shared
        for at, bytes_ in product.read:
            if not np.array_equal(shared.bytes[at], bytes_):
                raise KernelError("shared memory was written while a product read it")


def _factor(group: Group, bits: list[int], lines: int, kind: str, across: bool, read: list[Read]) -> Array:
    """Return an operand of each warpgroup from shared memory."""
    size, depth = TYPES[kind].itemsize, _DEPTHS[kind]
    blocks = group.batch.block_of(group)[::WARPGROUP].tolist()
    shared = group.batch.shared
    result = np.empty((len(bits), lines, depth), TYPES[kind])
    for n, (one, block) in enumerate(zip(bits, blocks, strict=True)):
        at = places(described(one), lines, depth, size, across)
        bytes_at = at[:, :, None] + np.arange(size)
        if int(bytes_at.max()) >= shared.size:
            raise KernelError(f"a factor reaches to {int(bytes_at.max())} of {shared.size} bytes of shared memory")
        bytes_at = bytes_at + block * shared.stride
        shared.check_for_units(bytes_at)
        tile = shared.bytes[bytes_at]
        read[n].append((bytes_at, tile))
        result[n] = tile.view(TYPES[kind]).reshape(lines, depth)
    return result


def _from_registers(group: Group, words: list[Array], kind: str) -> Array:
    """Return the left operand, 16 rows per warp, in the fragments of `mma`."""
    size, depth = TYPES[kind].itemsize, _DEPTHS[kind]
    each = 4 // size
    numbers = np.ascontiguousarray(np.stack(words, 1)).view(TYPES[kind]).reshape(-1, 4, 32, 4, each)
    result = np.empty((len(numbers), 4, 16, depth), TYPES[kind])
    for register in range(4):
        rows = LANES[:, None] // 4 + 8 * (register % 2)
        columns = LANES[:, None] % 4 * each + np.arange(each) + 4 * each * (register // 2)
        result[:, :, rows, columns] = numbers[:, :, :, register]
    return result.reshape(-1, LINES, depth)


def _to_sums(numbers: Array) -> Array:
    """Convert matrices of 64 lines to the accumulators of threads and their registers."""
    columns = numbers.shape[2]
    element = np.arange(columns // 2)
    thread = np.arange(WARPGROUP)[:, None]
    rows = thread // 32 * 16 + thread % 32 // 4 + 8 * (element // 2 % 2)
    at = element // 4 * 8 + thread % 4 * 2 + element % 2
    return np.ascontiguousarray(numbers[:, rows, at]).reshape(-1, columns // 2)


def _from_sums(values: Array, columns: int) -> Array:
    element = np.arange(columns // 2)
    thread = np.arange(WARPGROUP)[:, None]
    rows = thread // 32 * 16 + thread % 32 // 4 + 8 * (element // 2 % 2)
    at = element // 4 * 8 + thread % 4 * 2 + element % 2
    result = np.empty((len(values) // WARPGROUP, LINES, columns), values.dtype)
    result[:, rows, at] = values.reshape(-1, WARPGROUP, columns // 2)
    return result


def _uniform(group: Group, values: Array) -> list[int]:
    """Return a value of each warpgroup, which all its threads must have."""
    rows = group.spread(values).reshape(-1, WARPGROUP)
    if (rows != rows[:, :1]).any():
        raise KernelError("threads of a warpgroup have different descriptors")
    return [int(value) for value in rows[:, 0]]


def check_warpgroups(group: Group) -> None:
    """Raise an error if not all threads of a warpgroup are here, in order."""
    size = group.batch.block_size
    rows = group.tids.reshape(-1, WARPGROUP) if group.size % WARPGROUP == 0 else group.tids[None]
    if rows.shape[1] != WARPGROUP or (rows[:, 0] % size % WARPGROUP).any() or (np.diff(rows, axis=1) != 1).any():
        raise KernelError("not all threads of the warpgroup are here")


def _product(p: KernelPreparation, i: PtxInstruction) -> Step:
    if p.target != "sm_90a":
        raise PtxError("wgmma needs sm_90a")
    shape = next(m for m in i.modifiers if m.startswith("m64n"))
    columns, depth = map(int, shape[4:].split("k"))
    sum_kind, a_kind, b_kind = i.modifiers[-3:]
    if _DEPTHS.get(a_kind) != depth or _DEPTHS.get(b_kind) != depth or columns % 8 or not 8 <= columns <= 256:
        raise PtxError(f"'{i.opcode}' is not known")
    if sum_kind not in ("f32", "s32") or (sum_kind == "s32" and columns % 16 and columns > 24):
        raise PtxError(f"sums of {sum_kind} are not known for {shape}")
    out, a, b, scale, *rest = i.operands
    registers = tuple(p.number(part.name) for part in p.parts(out))  # type: ignore[union-attr]
    if len(registers) != columns // 2:
        raise PtxError(f"{columns // 2} sums a thread are expected, found {len(registers)}")
    in_registers = isinstance(a, Vector)
    left = [p.read(part, "b32") for part in p.parts(a)] if in_registers else [p.read(a, "b64")]
    right, keeps = p.read(b, "b64"), p.read(scale, "pred")
    flags = [one.bits for one in rest if isinstance(one, Imm)]
    signs, is_transposed = _flags(flags, a_kind, in_registers)
    dtype = TYPES[sum_kind]

    def step(group: Group) -> None:
        check_warpgroups(group)
        if group.fenced is None:
            raise KernelError("products begin without wgmma.fence")
        products = group.batch.products
        kept = group.spread(keeps(group)).reshape(-1, WARPGROUP)
        if (kept != kept[:, :1]).any():
            raise KernelError("threads of a warpgroup differ in whether sums are kept")
        before = products.sums(group, registers, bool(kept.any()))
        _check_fence(group, (*registers, *_numbers_of(p, a)))
        read: list[Read] = [[] for _ in range(group.size // WARPGROUP)]
        if in_registers:
            x = _from_registers(group, [group.spread(one(group)) for one in left], a_kind)
        else:
            x = _factor(group, _uniform(group, left[0](group)), LINES, a_kind, bool(is_transposed[0]), read)
        y = _factor(group, _uniform(group, right(group)), columns, b_kind, bool(is_transposed[1]), read)
        sums = np.where(kept[:, :1, None], _from_sums(before.view(dtype), columns), dtype.type(0))
        left_factor, right_factor = MatrixFactor(x, a_kind), MatrixFactor(y, b_kind, is_transposed=True)
        result = product_of(p.residues, left_factor, right_factor, sums, signs[0] * signs[1])
        products.start(group, registers, _to_sums(result).view(np.uint32), read)

    return step


def _numbers_of(p: KernelPreparation, operand: Any) -> tuple[int, ...]:
    parts: Any = operand.parts if isinstance(operand, Vector) else ()
    return tuple(p.number(part.name) for part in parts)


def _check_fence(group: Group, registers: tuple[int, ...]) -> None:
    """Raise an error if a register was written after the last fence."""
    for n in registers:
        now = group.regs[n]
        if now is not None and now is not group.fenced[n]:
            raise KernelError("a register of a product was written after wgmma.fence")


def _flags(flags: list[int], kind: str, in_registers: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the signs of the operands, and which are transposed."""
    values = [flag - (1 << 64) if flag >> 63 else flag for flag in flags]
    count = 2 if kind in ("tf32", "e4m3", "e5m2") else 0 if kind in ("s8", "u8") else 3 if in_registers else 4
    if len(values) != count or any(v not in (-1, 1) for v in values[:2]) or any(v not in (0, 1) for v in values[2:]):
        raise PtxError(f"{values} after the factors: expected {count} numbers")
    signs = (values[0], values[1]) if values else (1, 1)
    is_transposed = (0, 0) if count < 3 else (0, values[2]) if count == 3 else (values[2], values[3])
    return signs, is_transposed


def _wgmma(p: KernelPreparation, i: PtxInstruction) -> Step:
    if i.modifiers[0] == "mma_async":
        return _product(p, i)
    if i.modifiers[0] == "fence":

        def fence(group: Group) -> None:
            check_warpgroups(group)
            group.fenced = list(group.regs)

        return fence
    if i.modifiers[0] == "commit_group":
        return lambda group: group.batch.products.close(group)
    (left,) = i.operands
    assert isinstance(left, Imm)
    count = left.bits
    return lambda group: group.batch.products.wait(group, count)


WGMMA: dict[str, Builder] = {"wgmma": _wgmma}
