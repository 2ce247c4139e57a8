"""Instructions and configuration of a Tensix core (Wormhole B0), as words of its three threads.

The facts are those of Tenstorrent's public documentation of the instruction set: MVMUL, UNPACR, PACR, SEMWAIT,
STALLWAIT, REPLAY, SFPLOAD and the tables of configuration registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Word = int


@dataclass(frozen=True)
class Loop:
    """Words that a thread repeats."""

    count: int
    body: Sequence[Word | Loop | Mark | Riscv]


@dataclass(frozen=True)
class Mark:
    """The command that the words behind it execute, for reports; it is no word."""

    command: str


@dataclass(frozen=True)
class Riscv:
    """Instructions of the thread's RISC-V core itself."""

    code: tuple[int, ...]


Instructions = list[Word | Loop | Mark | Riscv]
FP32, TF32, BF16 = 0, 4, 5
"""Codes of element types."""
TILE = 32


@dataclass(frozen=True)
class Format:
    """How numbers are stored in L1, and how SrcA and SrcB have them."""

    name: str
    bytes: int
    memory: int
    register: int
    significand: int
    """Bits of the significand that operands keep."""

    @property
    def tile_bytes(self) -> int:
        """Return the bytes of a tile: four faces of 16 x 16, each row-major."""
        return self.bytes * TILE * TILE


FORMATS = {each.name: each for each in (Format("bf16", 2, BF16, BF16, 8), Format("tf32", 4, FP32, TF32, 11))}
DST_ROWS = 64
"""Rows of 16 that a tile takes in Dst."""
SUMS_READY = 1
"""The semaphore that counts the halves of Dst that are full."""
PANEL_UNPACKED = 2
"""The semaphore that says that a panel of the right operand is unpacked."""
DONE = 7
"""The semaphore that the last thread posts at its end."""
BLOCK_SYNC, BLOCK_MISC, BLOCK_MATH, BLOCK_VECTOR = 1 << 1, 1 << 0, 1 << 6, 1 << 8
"""Groups of instructions that a wait holds back."""
UNPACKERS_BUSY, PACKERS_BUSY, MATH_BUSY, VECTOR_BUSY = 0b11 << 1, 0b1111 << 3, 1 << 7, 1 << 14
"""Conditions of STALLWAIT."""
WHILE_ZERO, WHILE_FULL = 1, 2
"""Conditions of SEMWAIT."""

MULTIPLY, UNPACK_A, UNPACK_B, PACK = 0x26, 0x42, 0x142, 0x41
"""What `executed` counts by: codes, and another one for UNPACR of SrcB."""
VECTOR = range(0x70, 0x98)
"""The codes of the vector unit."""

# Fields of configuration: word, shift, bits. RMWCIB changes a byte of a shared word, SETC16 one of a thread.
_SHARED = {
    "srcb_plane_stride": (47, 0, 12),
    "srca_first_row": (40, 16, 16), "srca_format": (1, 17, 4), "srcb_format": (1, 21, 4), "dst_format": (1, 25, 4),
    "sums_fp32": (1, 29, 1), "vector_fp32": (1, 30, 1), "pack_reads_fp32": (14, 0, 1), "pack_edge_mask": (20, 0, 16),
    "pack_reads_per_plane": (24, 8, 8), "pack_x_stride": (8, 0, 12), "dst_base": (12, 0, 16),
    "pack_limit_0": (88, 0, 17), "pack_limit_1": (90, 0, 17), "pack_limit_2": (128, 0, 17),
    "pack_limit_3": (130, 0, 17),
}  # fmt: skip
_UNPACKERS = {
    "descriptor": ((52, 92), 0, 128), "out_format": ((60, 100), 0, 4), "speed": ((60, 100), 4, 2),
    "limit": ((62, 102), 0, 17), "uncompressed": ((61, 101), 0, 1), "base": ((64, 104), 0, 32),
}  # fmt: skip
_PACKERS = {
    "in_format": ((58, 86, 98, 126), 8, 4), "out_format": ((58, 86, 98, 126), 4, 4),
    "uncompressed": ((58, 86, 98, 126), 0, 1), "no_header": ((58, 86, 98, 126), 15, 1),
    "target": ((57, 85, 97, 125), 0, 32), "dst_offset": ((152, 153, 154, 155), 0, 12),
}  # fmt: skip
_SECTIONS_AB, _SECTIONS_DST, _SECTIONS_BIAS = 7, 23, 48
"""The first words of the sets of increments of SrcA and SrcB (two words each), of Dst, and of the bias of a set."""
_MATH_OFFSET, _OVERRIDE_SRCA = 1, (3, 1 << 2)


def op(code: int, *fields: tuple[int, int, int]) -> Word:
    """Return an instruction: its code, and fields as value, position, bits."""
    word = code << 24
    for value, at, width in fields:
        if not 0 <= value < 1 << width:
            raise ValueError(f"a field of instruction {code:#x} is {value}: expected {width} bits")
        word |= value << at
    return word


def set_thread(register: int, value: int) -> Word:
    return op(0xB2, (value, 0, 16), (register, 16, 8))


def set_byte(byte: int, register: int, value: int, mask: int = 0xFF) -> Word:
    return op(0xB3 + byte, (register, 0, 8), (value, 8, 8), (mask, 16, 8))


def mvmul(dst: int, increments: int, free_a: bool = False, free_b: bool = False) -> Word:
    return op(0x26, (dst, 0, 10), (increments, 15, 2), (int(free_a), 22, 1), (int(free_b), 23, 1))


def unpack(unit: int) -> Word:
    """Return UNPACR of a whole tile, which gives the bank to the matrix unit."""
    return op(0x42, (1, 0, 1), (1, 6, 1), (unit, 23, 1))


def pack() -> Word:
    """Return PACR of all four packers."""
    return op(0x41, (1, 0, 1), (0xF, 8, 4))


def unpack_planes(address: int) -> list[Word]:
    """Return the words that unpack 32 rows of two planes to SrcB, one behind the other."""
    first = op(0x42, (1, 0, 1), (0b00010001, 15, 8), (1, 23, 1))  # then both counters of planes are one more
    return [*unpack_from(1, address), first, unpack(1), op(0x54, (0xF, 0, 4), (0b010, 21, 3))]


def zero_half(half: int) -> Word:
    return op(0x10, (half, 0, 10), (2, 19, 3))


def set_counters(which: int = 0b1111) -> Word:
    return op(0x37, (which, 0, 4))


def last_datum(units: int, last: int) -> Word:
    return op(0x5E, (last, 10, 10), (units, 21, 3))


def clear_addresses(units: int) -> list[Word]:
    return [op(0x51, (0b1010, 0, 4), (units, 21, 3)), op(0x54, (0xF, 0, 4), (units, 21, 3))]


def semaphore_init(semaphore: int, most: int) -> Word:
    return op(0xA3, (1 << semaphore, 2, 8), (most, 20, 4))


def semaphore_post(semaphore: int) -> Word:
    return op(0xA4, (1 << semaphore, 2, 8))


def semaphore_get(semaphore: int) -> Word:
    return op(0xA5, (1 << semaphore, 2, 8))


def semaphore_wait(blocked: int, semaphore: int, condition: int) -> Word:
    return op(0xA6, (condition, 0, 2), (1 << semaphore, 2, 8), (blocked, 15, 9))


def stall(blocked: int, condition: int) -> Word:
    return op(0xA2, (condition, 0, 15), (blocked, 15, 9))


def replay(first: int, count: int, record: bool = False) -> Word:
    return op(0x04, (int(record), 0, 1), (count % 64, 4, 6), (first, 14, 5))


def executed(words: Sequence[Word | Loop | Mark | Riscv]) -> Counter[int]:
    """Return how many instructions of each code words execute; those of the replay buffer are products."""
    counts, recorded = Counter[int](), 0
    for word in words:
        if isinstance(word, Loop):
            for code, count in executed(word.body).items():
                counts[code] += word.count * count
        elif isinstance(word, Word):
            if recorded:
                recorded -= 1
            elif word >> 24 == 0x04:
                recorded, count = (word >> 4 & 63, 0) if word & 1 else (0, word >> 4 & 63)
                counts[MULTIPLY] += count
            else:
                counts[UNPACK_B if word >> 23 == 0x85 else word >> 24] += 1
    return counts


def vector_load(register: int, at: int) -> Word:
    return op(0x70, (at, 0, 10), (3, 16, 4), (register, 20, 4))


def vector_store(register: int, at: int) -> Word:
    return op(0x72, (at, 0, 10), (3, 16, 4), (register, 20, 4))


NOP_VECTOR = op(0x8F)


def vector_mad(register: int, x: int, y: int, z: int) -> Word:
    return op(0x84, (register, 4, 4), (z, 8, 4), (y, 12, 4), (x, 16, 4))


def vector_sort(smaller: int, larger: int) -> Word:
    """Return SFPSWAP: one register gets the smaller of both numbers; a register of a constant keeps its value."""
    return op(0x92, (1, 0, 4), (smaller, 4, 4), (larger, 8, 4))


def vector_rotate(register: int, other: int) -> Word:
    """Return SFPSHFT2, which moves each row of eight by one to the right."""
    return op(0x94, (3, 0, 4), (register, 4, 4), (other, 8, 4))


def vector_move(register: int, other: int) -> Word:
    return op(0x7C, (register, 4, 4), (other, 8, 4))


def vector_shift(register: int, left: int) -> Word:
    return op(0x7A, (1, 0, 4), (register, 4, 4), (left & 0xFFF, 12, 12))


def vector_add_bits(register: int, other: int, is_subtracted: bool) -> Word:
    """Return SFPIADD: the bits of the other register plus, or minus, those of the register."""
    return op(0x79, (4 | 2 * is_subtracted, 0, 4), (register, 4, 4), (other, 8, 4))


def vector_constant(register: int, bits: int) -> list[Word]:
    """Return the words that load a number of 32 bits: one if its lower half is zero."""
    if not bits & 0xFFFF:
        return [op(0x71, (bits >> 16, 0, 16), (register, 20, 4))]
    parts = ((8, bits >> 16), (10, bits & 0xFFFF))
    return [op(0x71, (part, 0, 16), (mode, 16, 4), (register, 20, 4)) for mode, part in parts]


def vector_configure(register: int) -> Word:
    """Return SFPCONFIG, which sets a register of a constant to register 0."""
    return op(0x91, (register, 4, 4))


def move_tile(tile: int) -> list[Word]:
    """Return the words that copy SrcA to a tile of Dst, and give the bank back."""
    moves = [op(0x12, (DST_ROWS * tile + row, 0, 12), (2, 12, 2), (row, 17, 6)) for row in range(0, DST_ROWS, 8)]
    return [*moves, op(0x37, (1, 22, 2))]


def advance_rows(rows: int) -> list[Word]:
    """Return INCRWC, which moves the vector unit to other rows of Dst."""
    steps = [15] * (rows // 15) + [rows % 15]
    return [op(0x38, (step, 14, 4)) for step in steps if step]


def configuration(fields: Mapping[tuple[int, int, int], int]) -> list[Word]:
    """Return the words that set fields of shared configuration, each given by word, shift and bits."""
    values: dict[int, tuple[int, int]] = {}
    for (register, shift, bits), value in fields.items():
        if value >> bits:
            raise ValueError(f"field {register}:{shift} is {value}: expected {bits} bits")
        value, mask = value << shift, (1 << bits) - 1 << shift
        while mask:
            old, known = values.get(register, (0, 0))
            values[register] = (old | value & 0xFFFFFFFF, known | mask & 0xFFFFFFFF)
            register, value, mask = register + 1, value >> 32, mask >> 32
    return [
        set_byte(byte, register, value >> 8 * byte & mask >> 8 * byte & 0xFF, mask >> 8 * byte & 0xFF)
        for register, (value, mask) in sorted(values.items())
        for byte in range(4)
        if mask >> 8 * byte & 0xFF
    ]


def _low_half(register: int, value: int) -> list[Word]:
    return [set_byte(0, register, value & 0xFF), set_byte(1, register, value >> 8 & 0xFF)]


def unpack_from(unit: int, address: int) -> list[Word]:
    """Return the words that set where an unpacker reads next: units of 16 bytes, less one for a header."""
    return _low_half(_UNPACKERS["base"][0][unit], address // 16 - 1)


def pack_tile(kind: Format, tile: int, address: int) -> list[Word]:
    """Return the words that pack a tile of Dst to L1."""
    return [
        *_low_half(_SHARED["dst_base"][0], tile * kind.tile_bytes),
        *_low_half(_PACKERS["target"][0][0], address // 16),
        pack(),
    ]


def math_tile(tile: int) -> Word:
    return set_thread(_MATH_OFFSET, DST_ROWS * tile)


def setup_unpackers(kind: Format, plane_rows: int = 0) -> list[Word]:
    """Return the configuration of both unpackers: a tile at 64 bytes a cycle. SrcA begins four rows late.

    With `plane_rows`, SrcB takes 32 rows of 16 from each of two planes of so many rows.
    """
    fields = {_SHARED["srca_first_row"]: 64 * kind.bytes}
    for unit in range(2):
        width, planes = (16 * plane_rows, 2) if plane_rows and unit else (1024, 1)
        descriptor = kind.memory | 1 << 4 | width << 16 | 1 << 32 | planes << 48 | 1 << 64
        for name, value in (
            ("descriptor", descriptor), ("out_format", kind.register), ("speed", 2), ("limit", 0x1FFFF),
            ("uncompressed", 1),
        ):  # fmt: skip
            registers, shift, bits = _UNPACKERS[name]
            fields[registers[unit], shift, bits] = value
    fields[_SHARED["srcb_plane_stride"]] = kind.tile_bytes // 4  # 16 rows; an UNPACR that keeps its bank adds 16 more
    register, value = _OVERRIDE_SRCA
    last = [last_datum(0b001, 1023), last_datum(0b010, 511 if plane_rows else 1023)]
    return [*configuration(fields), set_thread(register, value), *last, *clear_addresses(0b011)]


# How MVMUL advances through a tile: rows of SrcA, rows of SrcB, fidelity phase, bias of the set. Eight blocks of Dst
# are summed, then the same eight again: no product waits for the sum before it, which is ready after five cycles.
_INCREMENTS = (
    (16, 0, 0, 0), (48, 8, 0, 0), (48, 24, 0, 0), (16, 40, 0, 1), (16, 0, 0, 0), (48, 8, 0, 0), (48, 24, 0, 0),
    (16, 8, 1, 2),
)  # fmt: skip
_PLANE_INCREMENTS = (
    (16, 0, 0, 0), (48, 8, 0, 0), (48, 8, 0, 0), (16, 8, 0, 1), (16, 0, 0, 0), (48, 8, 0, 0), (48, 8, 0, 0),
    (16, 8, 1, 2),
)  # fmt: skip
"""The same where SrcB has the faces of a plane one behind the other."""
BLOCKS = tuple(16 * (2 * i + j) + 8 * half for i in range(2) for half in range(2) for j in range(2)) * 2
"""The rows of Dst of the 16 products of a tile, in order."""


def setup_math(kind: Format, is_plane: bool = False) -> list[Word]:
    """Return the configuration of the matrix unit, and the record of a tile's 16 products in the replay buffer."""
    fields = {
        _SHARED["srca_format"]: kind.register, _SHARED["srcb_format"]: kind.register, _SHARED["dst_format"]: BF16,
        _SHARED["sums_fp32"]: 1, _SHARED["vector_fp32"]: 1,
    }  # fmt: skip
    own: dict[int, int] = {}
    for i, (a, b, phase, bias) in enumerate(_PLANE_INCREMENTS if is_plane else _INCREMENTS):
        own |= {_SECTIONS_AB + 2 * i: a | b << 8, _SECTIONS_DST + i: phase << 13}
        own[_SECTIONS_BIAS + i] = bias & 1 | bias >> 1 << 4
    products = [mvmul(dst, mod) for dst, mod in zip(BLOCKS, (0, 1, 0, 2, 0, 1, 0, 3) * 2, strict=True)]
    ends = [mvmul(BLOCKS[-1], 3, a, b) for a, b in ((True, False), (False, True), (True, True))]
    return [
        semaphore_init(SUMS_READY, 2), *configuration(fields), *(set_thread(at, value) for at, value in own.items()),
        set_thread(_MATH_OFFSET, 0), set_counters(), replay(0, 19, record=True), *products, *ends,
    ]  # fmt: skip


def multiply_tile(phases: int, free_a: bool, free_b: bool) -> list[Word]:
    """Return the words of one tile times one tile in fidelity phases, at whose end banks are given back."""
    end = [replay(0, 15), replay(15 + free_a + 2 * free_b, 1)] if free_a or free_b else [replay(0, 16)]
    # The counter of phases goes on by itself, modulo four.
    return [replay(0, 16)] * (phases - 1) + end + ([set_counters(0b1000)] if phases < 4 else [])


def setup_vector() -> list[Word]:
    """Return the configuration for the vector unit alone: SrcA goes to Dst as 32 bits."""
    fields = {
        _SHARED["srca_format"]: TF32, _SHARED["dst_format"]: BF16, _SHARED["sums_fp32"]: 1, _SHARED["vector_fp32"]: 1,
    }  # fmt: skip
    own = {_SECTIONS_AB: 0, _SECTIONS_DST: 0, _SECTIONS_BIAS: 0, _MATH_OFFSET: 0}
    return [
        semaphore_init(SUMS_READY, 2), *configuration(fields), *(set_thread(at, value) for at, value in own.items()),
        set_counters(),
    ]  # fmt: skip


def wait_for_half() -> Word:
    """Return the wait of the matrix unit for a half of Dst that is packed."""
    return semaphore_wait(BLOCK_MATH | BLOCK_SYNC, SUMS_READY, WHILE_FULL)


def post_half() -> list[Word]:
    """Return the words that give a half of Dst to the packers."""
    return [stall(BLOCK_SYNC, MATH_BUSY | VECTOR_BUSY), semaphore_post(SUMS_READY)]


def pack_when_ready(kind: Format, tile: int, address: int, is_first: bool, is_last: bool) -> list[Word]:
    """Return the words that pack a tile; the first one of a half waits for it, the last one gives it back."""
    before = [semaphore_wait(BLOCK_MISC | BLOCK_SYNC, SUMS_READY, WHILE_ZERO)] if is_first else []
    after = [stall(BLOCK_SYNC, PACKERS_BUSY), semaphore_get(SUMS_READY)] if is_last else []
    return [*before, *pack_tile(kind, tile, address), *after]


def setup_packers(kind: Format) -> list[Word]:
    """Return the configuration of four packers, a face each, which read sums of fp32."""
    fields = {
        _SHARED["pack_reads_fp32"]: 1, _SHARED["pack_edge_mask"]: 0xFFFF, _SHARED["pack_reads_per_plane"]: 16,
        _SHARED["pack_x_stride"]: kind.bytes,
    }  # fmt: skip
    for i in range(4):
        fields[_SHARED[f"pack_limit_{i}"]] = 0x1FFFF
        # Bit 31: the others' addresses are relative to the first.
        target = 1 << 31 if i == 0 else 256 * kind.bytes // 16 * i
        for name, value in (
            ("in_format", kind.memory), ("out_format", kind.memory), ("uncompressed", 1), ("no_header", 1),
            ("target", target), ("dst_offset", 16 * i),
        ):  # fmt: skip
            registers, shift, bits = _PACKERS[name]
            fields[registers[i], shift, bits] = value
    for unit in range(2):  # the simulator reads the packers' limit there
        limits, shift, bits = _UNPACKERS["limit"]
        fields[limits[unit], shift, bits] = 0x1FFFF
    return [*configuration(fields), last_datum(0b100, 255), *clear_addresses(0b100)]
