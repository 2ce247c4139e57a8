"""The matrix units of a warp: sections 9.7.14 of the PTX manual (ldmatrix, stmatrix, mma.sync).

Fragments are described as the manual draws them: `group` is a lane divided by four, `quad` the rest; a register has
several neighbouring numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Read, Step
from mirlo.testing.ptx.residues import MatrixFactor, MeaninglessError, Residues
from mirlo.testing.ptx.text import PtxInstruction
from mirlo.testing.ptx.types import BITS, TYPES, Array
from mirlo.testing.ptx.warp import places_of_lanes

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
LANES = np.arange(32)


def whole(group: Group) -> int:
    """Return the number of warps of a group; raise an error where some lack threads."""
    if group.size % 32 or group.batch.block_size % 32 or (places_of_lanes(group) >= 0).sum(1).max() < 32:
        raise KernelError("not all threads of the warp are here")
    return group.size // 32


def _note(group: Group, blocks: Array, lines: Array, each: int, written: Array | None = None) -> None:
    """Report to the detector of races that each warp accesses these lines."""
    batch = group.batch
    if batch.races is not None:
        places = batch.shared.places(blocks, lines, 16)[:, None] * 16 + np.arange(16)
        warps = np.repeat(batch.warp_of[group.tids[::32]], 16 * each)
        if written is None:
            batch.races.read(warps, places.reshape(-1))
        else:
            batch.races.write(warps, places.reshape(-1), written.view(np.uint8))


def _ldmatrix(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Eight lines of 16 bytes for each matrix, from the addresses of eight threads."""
    if "m8n8" not in i.modifiers or i.kind != "b16":
        raise PtxError(f"{i.opcode} is not known")
    count = next(_COUNTS[m] for m in i.modifiers if m in _COUNTS)
    transposed = i.has("trans")
    writes, address = [p.write(part) for part in p.parts(i.operands[0])], p.address(i.operands[1])
    if len(writes) != count:
        raise PtxError(f"{count} registers are written, found {len(writes)}")

    def step(group: Group) -> None:
        warps = whole(group)
        lines = group.spread(address(group)).reshape(warps, 32)[:, : 8 * count].reshape(-1)
        blocks = np.repeat(group.batch.block_of(group).reshape(warps, 32)[:, 0], 8 * count)
        _note(group, blocks, lines, 8 * count)
        rows = group.batch.shared.load(blocks, lines, 16)
        matrices = rows.view(np.uint16).reshape(warps, count, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        # Lane l has two neighbours of line l / 4.
        for n, write in enumerate(writes):
            pairs = np.ascontiguousarray(matrices[:, n]).reshape(warps, 64).view(np.uint32)
            write(group, pairs.reshape(-1))

    return step


def _stmatrix(p: KernelPreparation, i: PtxInstruction) -> Step:
    if p.version < (9, 0):
        raise PtxError("stmatrix needs sm_90")
    if "m8n8" not in i.modifiers or i.kind != "b16":
        raise PtxError(f"{i.opcode} is not known")
    count = next(_COUNTS[m] for m in i.modifiers if m in _COUNTS)
    transposed = i.has("trans")
    address, reads = p.address(i.operands[0]), [p.read(part, "b32") for part in p.parts(i.operands[1])]

    def step(group: Group) -> None:
        warps = whole(group)
        lines = group.spread(address(group)).reshape(warps, 32)[:, : 8 * count].reshape(-1)
        blocks = np.repeat(group.batch.block_of(group).reshape(warps, 32)[:, 0], 8 * count)
        pairs = np.stack([group.spread(read(group)).reshape(warps, 32) for read in reads], 1)
        matrices = np.ascontiguousarray(pairs).view(np.uint16).reshape(warps, count, 8, 8)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        rows = np.ascontiguousarray(matrices).reshape(-1).view(BITS[16])
        _note(group, blocks, lines, 8 * count, rows)
        group.batch.shared.store(blocks, lines, rows, 16)

    return step


@dataclass(frozen=True)
class Fragment:
    """Which elements of a matrix the registers of a lane have: by lane and element, the line and the column."""

    rows: Array
    columns: Array


def _a_fragment(depth: int, size: int) -> Fragment:
    """Return the layout of the left operand, 16 rows: registers are two rows apart, then two columns."""
    each = 4 // size
    elements = np.arange(16 * depth // 32)
    register, part = elements // each, elements % each
    rows = LANES[:, None] // 4 + 8 * (register % 2)
    columns = LANES[:, None] % 4 * each + part + 4 * each * (register // 2)
    return Fragment(rows, columns)


def _b_fragment(depth: int, size: int) -> Fragment:
    """Return the layout of the right operand, 8 columns: a lane's values are in one column."""
    each = 4 // size
    elements = np.arange(8 * depth // 32)
    register, part = elements // each, elements % each
    rows = LANES[:, None] % 4 * each + part + 4 * each * register
    return Fragment(rows, np.broadcast_to(LANES[:, None] // 4, rows.shape))


def _c_fragment() -> Fragment:
    """Return the layout of the accumulators, 16 rows by 8 columns."""
    elements = np.arange(4)
    rows = LANES[:, None] // 4 + 8 * (elements // 2)
    return Fragment(rows, LANES[:, None] % 4 * 2 + elements % 2)


_KNOWN = {
    ("m16n8k16", "f16"), ("m16n8k8", "f16"), ("m16n8k16", "bf16"), ("m16n8k8", "bf16"), ("m16n8k8", "tf32"),
    ("m16n8k4", "tf32"), ("m16n8k32", "s8"), ("m16n8k32", "u8"), ("m16n8k16", "s8"), ("m16n8k16", "u8"),
    ("m16n8k32", "e4m3"), ("m16n8k32", "e5m2"),
}  # fmt: skip
_FROM = {"e4m3": (8, 9), "e5m2": (8, 9)}
"""Chips that have a format; all others have been there since sm_80."""


def _gathered(group: Group, reads: Sequence[Read], kind: str, fragment: Fragment, shape: tuple[int, int]) -> Array:
    """Return a matrix for each warp, from the registers of its lanes."""
    warps = group.size // 32
    words = np.stack([group.spread(read(group)) for read in reads], 1)
    numbers = np.ascontiguousarray(words).view(TYPES[kind]).reshape(warps, 32, -1)
    matrix = np.empty((warps, *shape), TYPES[kind])
    matrix[:, fragment.rows, fragment.columns] = numbers
    return matrix


INTEGERS = ("s8", "u8")


def exactly(numbers: Array, kind: str) -> Array:
    """Convert factors to a type in which numpy's products and sums are exact: integers, or f64 for others."""
    if kind in INTEGERS:
        return numbers.astype(np.int64)
    if kind == "tf32":
        return truncated_to_tf32(numbers).astype(np.float64)
    return numbers.astype(np.float64)


def product_of(
    residues: Residues | None, left: MatrixFactor, right: MatrixFactor, sums: Array, sign: int = 1,
    is_saturated: bool = False,
) -> Array:  # fmt: skip
    """Return sums plus a product of matrices, in the type of the sums."""
    if residues is not None and left.kind not in INTEGERS:
        if sums.dtype != np.float32:
            raise MeaninglessError("sums of 16 bits")
        return residues.product(left, right, sums.view(np.uint32), sign).view(np.float32)
    x, y = (exactly(each.numbers, each.kind) for each in (left, right))
    y = y.swapaxes(-1, -2) if right.is_transposed else y
    result = (x @ y) * sign + sums.astype(x.dtype)
    if is_saturated:
        result = np.clip(result, -(2**31), 2**31 - 1)
    return result.astype(sums.dtype)


def truncated_to_tf32(numbers: Array) -> Array:
    """Clear the bits below those of tf32."""
    return (numbers.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _mma(p: KernelPreparation, i: PtxInstruction) -> Step:
    shape = next(m for m in i.modifiers if m.startswith("m16n8k"))
    depth = int(shape[6:])
    result, a_kind, b_kind, sum_kind = i.modifiers[-4:]
    for kind in (a_kind, b_kind):
        if (shape, kind) not in _KNOWN or "row" not in i.modifiers or "col" not in i.modifiers:
            raise PtxError(f"{i.opcode} is not known")
        if p.version < _FROM.get(kind, (8, 0)):
            raise PtxError(f"products of {kind} need sm_{''.join(map(str, _FROM[kind]))}")
    if result != sum_kind or result not in ("f32", "s32", "f16"):
        raise PtxError(f"sums of {result} are not known")
    size = TYPES[a_kind].itemsize
    a_at, b_at, c_at = _a_fragment(depth, size), _b_fragment(depth, size), _c_fragment()
    writes = [p.write(part) for part in p.parts(i.operands[0])]
    a, b = ([p.read(part, "b32") for part in p.parts(operand)] for operand in i.operands[1:3])
    c = [p.read(part, "b32") for part in p.parts(i.operands[3])]
    if (len(writes), len(a), len(b)) != (2 if result == "f16" else 4, depth * size // 8, depth * size // 16):
        raise PtxError(f"{len(writes)}, {len(a)} and {len(b)} registers are not those of {shape}")
    saturated = i.has("satfinite")

    def step(group: Group) -> None:
        warps = whole(group)
        left = MatrixFactor(_gathered(group, a, a_kind, a_at, (16, depth)), a_kind)
        right = MatrixFactor(_gathered(group, b, b_kind, b_at, (depth, 8)), b_kind)
        sums = _gathered(group, c, sum_kind, c_at, (16, 8))
        matrix = product_of(p.residues, left, right, sums, is_saturated=saturated and result == "s32")
        numbers = matrix[:, c_at.rows, c_at.columns]
        words = np.ascontiguousarray(numbers).view(np.uint32).reshape(warps * 32, -1)
        for n, write in enumerate(writes):
            write(group, np.ascontiguousarray(words[:, n]))

    return step


MATRIX: dict[str, Builder] = {"ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "mma": _mma}
