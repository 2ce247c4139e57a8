"""Instructions and configuration of a Tensix core (Wormhole B0), as words of its three threads.

The facts are those of Tenstorrent's public documentation of the instruction set, whose names the table has.
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
    body: tuple[Instruction, ...]


@dataclass(frozen=True)
class Mark:
    """Marks the command that the following words execute, for reports; not a word itself."""

    command: str


@dataclass(frozen=True)
class Riscv:
    """Instructions of the thread's RISC-V core itself."""

    code: tuple[int, ...]


@dataclass(frozen=True)
class Variable:
    """An instruction with a number that advances in loops.

    It sets the lower 16 bits of a word of configuration ("configure"), stores the number in L1 ("store"), or waits
    until a number there is at least as large ("wait").
    """

    kind: str
    target: int
    """The word of configuration, or the address in L1."""
    value: int
    steps: tuple[int, ...] = ()
    """By how much the number advances in each of the loops around it, the outermost first."""


Instruction = Word | Loop | Mark | Riscv | Variable
Instructions = list[Instruction]
TILE = 32


@dataclass(frozen=True)
class Format:
    """A number format: in L1, and in SrcA and SrcB."""

    name: str
    bytes: int
    memory: int
    register: int
    significand: int
    """Bits of the significand that operands keep."""
    packed: int
    """As what packers read sums: narrowed to bf16, or as they are."""
    scale: int = 0
    """The power of two by which numbers are too small where SrcA is copied to Dst."""

    @property
    def packed_bytes(self) -> int:
        """Return the bytes of a number of Dst as packers read it."""
        return 2 if self.packed == BF16 else 4

    @property
    def tile_bytes(self) -> int:
        """Return the bytes of a tile: four faces of 16 x 16, each row-major."""
        return self.bytes * TILE * TILE


FP32, FP16, TF32, BF16 = 0, 1, 4, 5
"""Codes of element types."""
FP16_BIAS = 112
"""How much less the exponents of fp16 are than those of fp32."""
FORMATS = {
    "bf16": Format("bf16", 2, BF16, BF16, 8, BF16),
    "tf32": Format("tf32", 4, FP32, TF32, 11, FP32),
    "fp16": Format("fp16", 2, FP16, FP16, 11, FP32, FP16_BIAS),
}
DST_ROWS = 64
"""Rows of 16 that a tile takes in Dst."""
SUMS_READY, PANEL_UNPACKED, DONE = 1, 2, 7
"""Semaphores: halves of Dst that are full, a panel that is unpacked, and the end of the last thread."""
BLOCK_SYNC, BLOCK_MISC, BLOCK_MATH, BLOCK_VECTOR = 1 << 1, 1 << 0, 1 << 6, 1 << 8
"""Groups of instructions that a wait holds back."""
UNPACKERS_BUSY, PACKERS_BUSY, MATH_BUSY, VECTOR_BUSY = 0b11 << 1, 0b1111 << 3, 1 << 7, 1 << 14
"""Conditions of STALLWAIT."""
WHILE_ZERO, WHILE_FULL = 1, 2
"""Conditions of SEMWAIT."""

_OPERATIONS = """
REPLAY 04 record:0:1 count:4:6 first:14:5
ZEROACC 10 half:0:10 what:19:3
MOVA2D 12 dst:0:12 rows:12:2 row:17:6
MVMUL 26 dst:0:10 increments:15:2 free_a:22:1 free_b:23:1
SETRWC 37 which:0:4 free_a:22:1
INCRWC 38 rows:14:4
PACR 41 last:0:1 packers:8:4
UNPACR 42 last:0:1 give:6:1 counters:15:8 unit:23:1
SETADCXY 51 which:0:4 units:21:3
SETADCZW 54 which:0:4 units:21:3
SETADCXX 5e last:10:10 units:21:3
SFPLOAD 70 at:0:10 format:16:4 to:20:4
SFPLOADI 71 value:0:16 mode:16:4 to:20:4
SFPSTORE 72 at:0:10 format:16:4 to:20:4
SFPIADD 79 mode:0:4 to:4:4 x:8:4
SFPSHFT 7a mode:0:4 to:4:4 left:12:12
SFPMOV 7c to:4:4 x:8:4
SFPMAD 84 to:4:4 z:8:4 y:12:4 x:16:4
SFPNOP 8f
SFPCONFIG 91 to:4:4
SFPSWAP 92 mode:0:4 to:4:4 x:8:4
SFPSHFT2 94 mode:0:4 to:4:4 x:8:4
STALLWAIT a2 condition:0:15 blocked:15:9
SEMINIT a3 semaphores:2:8 most:20:4
SEMPOST a4 semaphores:2:8
SEMGET a5 semaphores:2:8
SEMWAIT a6 condition:0:2 semaphores:2:8 blocked:15:9
SETC16 b2 value:0:16 register:16:8
RMWCIB b3 register:0:8 value:8:8 mask:16:8
"""
"""Names, codes, and fields as name, position, bits."""
OPERATIONS = {
    name: (int(code, 16), {field: (int(at), int(bits)) for field, at, bits in (each.split(":") for each in fields)})
    for name, code, *fields in (line.split() for line in _OPERATIONS.strip().splitlines())
}
REPLAY, MULTIPLY, UNPACK_A, UNPACK_B, PACK, CONFIGURE = 0x04, 0x26, 0x42, 0x142, 0x41, 0xB3
"""What `executed` counts by: codes, and another one for UNPACR of SrcB."""
VECTOR = range(0x70, 0x98)
"""The codes of the vector unit."""


def op(name: str, **fields: int) -> Word:
    """Return an instruction."""
    code, places = OPERATIONS[name]
    word = code << 24
    for field, value in fields.items():
        at, bits = places[field]
        if not 0 <= value < 1 << bits:
            raise ValueError(f"field {field} of {name} is {value}: expected {bits} bits")
        word |= value << at
    return word


SET_ROWS = op("SETRWC", which=0b1111)
"""The word that sets the counters of rows and phases to zero."""


def executed(words: Sequence[Instruction]) -> Counter[int]:
    """Return the number of executed instructions by opcode; instructions of the replay buffer count as products."""
    counts, recorded = Counter[int](), 0
    for word in words:
        if isinstance(word, Loop):
            for code, count in executed(word.body).items():
                counts[code] += word.count * count
        elif isinstance(word, Variable):
            counts[CONFIGURE] += 2
        elif isinstance(word, Word):
            if recorded:
                recorded -= 1
            elif word >> 24 == REPLAY:
                recorded, count = (word >> 4 & 63, 0) if word & 1 else (0, word >> 4 & 63)
                counts[MULTIPLY] += count
            else:
                counts[UNPACK_B if word >> 23 == 0x85 else word >> 24] += 1
    return counts


# Configuration: fields are a word, a shift and bits. RMWCIB changes a byte of a shared word, SETC16 one of a thread.

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
    "transposes": ((60, 100), 8, 1),
}  # fmt: skip
_PACKERS = {
    "in_format": ((58, 86, 98, 126), 8, 4), "out_format": ((58, 86, 98, 126), 4, 4),
    "uncompressed": ((58, 86, 98, 126), 0, 1), "no_header": ((58, 86, 98, 126), 15, 1),
    "target": ((57, 85, 97, 125), 0, 32), "dst_offset": ((152, 153, 154, 155), 0, 12),
}  # fmt: skip
_SECTIONS_AB, _SECTIONS_DST, _SECTIONS_BIAS = 7, 23, 48
"""The first words of the sets of increments of SrcA and SrcB (two words each), of Dst, and of the bias of a set."""
_MATH_OFFSET, _OVERRIDE_SRCA = 1, (3, 1 << 2)
Fields = dict[tuple[int, int, int], int]


def set_thread(register: int, value: int) -> Word:
    return op("SETC16", value=value, register=register)


def set_byte(byte: int, register: int, value: int, mask: int = 0xFF) -> Word:
    return op("RMWCIB", register=register, value=value, mask=mask) + (byte << 24)


def configuration(fields: Mapping[tuple[int, int, int], int]) -> list[Word]:
    """Return the words that set fields of shared configuration."""
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


def _of_unit(table: Mapping[str, tuple[tuple[int, ...], int, int]], unit: int, **values: int) -> Fields:
    return {(table[name][0][unit], *table[name][1:]): value for name, value in values.items()}


def _low_half(register: int, value: int) -> Variable:
    return Variable("configure", register, value)


def _clear_addresses(units: int) -> list[Word]:
    return [op("SETADCXY", which=0b1010, units=units), op("SETADCZW", which=0xF, units=units)]


def setup_unpackers(kind: Format, plane_rows: int = 0, transposes: bool = False) -> list[Word]:
    """Return the configuration of both unpackers: a tile at 64 bytes a cycle. SrcA begins four rows late.

    With `plane_rows`, SrcB takes 32 rows of 16 from each of two planes of this many rows.
    """
    fields = {_SHARED["srca_first_row"]: 64 * kind.bytes}
    for unit in range(2):
        width, planes = (16 * plane_rows, 2) if plane_rows and unit else (1024, 1)
        descriptor = kind.memory | 1 << 4 | width << 16 | 1 << 32 | planes << 48 | 1 << 64
        fields |= _of_unit(
            _UNPACKERS, unit, descriptor=descriptor, out_format=kind.register, speed=2, limit=0x1FFFF, uncompressed=1
        )
    fields |= _of_unit(_UNPACKERS, 0, transposes=int(transposes))
    fields[_SHARED["srcb_plane_stride"]] = kind.tile_bytes // 4  # 16 rows; an UNPACR that keeps its bank adds 16 more
    ends = zip((0b001, 0b010), (1023, 511 if plane_rows else 1023), strict=True)
    last = [op("SETADCXX", last=end, units=units) for units, end in ends]
    return [*configuration(fields), set_thread(*_OVERRIDE_SRCA), *last, *_clear_addresses(0b011)]


def unpack(unit: int, address: int) -> Instructions:
    """Return the words that unpack a tile and hand its bank to the matrix unit; addresses of L1 count 16 bytes."""
    return [_low_half(_UNPACKERS["base"][0][unit], address // 16 - 1), op("UNPACR", last=1, give=1, unit=unit)]


def unpack_planes(address: int, is_same: bool) -> Instructions:
    """Return the words that unpack 32 rows of two planes to SrcB, one after the other, or twice those of one."""
    base, second = unpack(1, address)[:-1], op("UNPACR", last=1, give=1, unit=1)
    first = op("UNPACR", last=1, counters=0b00010000 if is_same else 0b00010001, unit=1)
    return [*base, first, second, op("SETADCZW", which=0xF, units=0b010)]


# How MVMUL advances through a tile: rows of SrcA, rows of SrcB, fidelity phase, bias of the set. Eight blocks of Dst
# are summed, then the same eight again: no product waits for the sum before it, which is ready after five cycles.
_INCREMENTS = (
    (16, 0, 0, 0), (48, 8, 0, 0), (48, 24, 0, 0), (16, 40, 0, 1), (16, 0, 0, 0), (48, 8, 0, 0), (48, 24, 0, 0),
    (16, 8, 1, 2),
)  # fmt: skip
_PLANE_ROWS = (0, 8, 8, 8, 0, 8, 8, 8)
"""The rows of SrcB where it has the faces of a plane one after the other."""
BLOCKS = tuple(16 * (2 * i + j) + 8 * half for i in range(2) for half in range(2) for j in range(2)) * 2
"""The rows of Dst of the 16 products of a tile, in order."""


def setup_math(kind: Format, is_plane: bool = False) -> list[Word]:
    """Return the configuration of the matrix unit, and the record of a tile's 16 products in the replay buffer."""
    own: dict[int, int] = {}
    for i, (a, b, phase, bias) in enumerate(_INCREMENTS):
        own |= {_SECTIONS_AB + 2 * i: a | (_PLANE_ROWS[i] if is_plane else b) << 8, _SECTIONS_DST + i: phase << 13}
        own[_SECTIONS_BIAS + i] = bias & 1 | bias >> 1 << 4
    order = zip(BLOCKS, (0, 1, 0, 2, 0, 1, 0, 3) * 2, strict=True)
    products = [op("MVMUL", dst=dst, increments=increments) for dst, increments in order]
    ends = [op("MVMUL", dst=BLOCKS[-1], increments=3, free_a=a, free_b=b) for a, b in ((1, 0), (0, 1), (1, 1))]
    record = [op("REPLAY", record=1, count=19), *products, *ends]
    sections = (set_thread(at, value) for at, value in own.items())
    return [*_setup_dst(kind.register), *sections, math_tile(0), SET_ROWS, *record]


def setup_vector() -> list[Word]:
    """Return the configuration for the vector unit alone: SrcA goes to Dst as 32 bits."""
    sections = (_SECTIONS_AB, _SECTIONS_DST, _SECTIONS_BIAS)
    return [*_setup_dst(TF32), *(set_thread(at, 0) for at in sections), math_tile(0), SET_ROWS]


def _setup_dst(register: int) -> list[Word]:
    names = ("srca_format", "srcb_format", "dst_format", "sums_fp32", "vector_fp32")
    values = (register, register, BF16, 1, 1)
    fields = {_SHARED[name]: value for name, value in zip(names, values, strict=True)}
    return [op("SEMINIT", semaphores=1 << SUMS_READY, most=2), *configuration(fields)]


def math_tile(tile: int) -> Word:
    return set_thread(_MATH_OFFSET, DST_ROWS * tile)


def multiply_tile(phases: int, free_a: bool, free_b: bool) -> list[Word]:
    """Return the words that multiply two tiles in fidelity phases, then release the banks."""
    whole, most = op("REPLAY", count=16), op("REPLAY", count=15)
    end = [most, op("REPLAY", first=15 + free_a + 2 * free_b, count=1)] if free_a or free_b else [whole]
    # The counter of phases goes on by itself, modulo four.
    return [whole] * (phases - 1) + end + ([op("SETRWC", which=0b1000)] if phases < 4 else [])


def move_tile(tile: int) -> list[Word]:
    """Return the words that copy SrcA to a tile of Dst and release the bank."""
    moves = [op("MOVA2D", dst=DST_ROWS * tile + row, rows=2, row=row) for row in range(0, DST_ROWS, 8)]
    return [*moves, op("SETRWC", free_a=1)]


def advance_rows(rows: int) -> list[Word]:
    """Return the words that advance the vector unit to other rows of Dst."""
    return [op("INCRWC", rows=step) for step in (*[15] * (rows // 15), rows % 15) if step]


def vector_constant(register: int, bits: int) -> list[Word]:
    """Return the words that load a number of 32 bits: one if its lower half is zero."""
    parts = ((8, bits >> 16), (10, bits & 0xFFFF)) if bits & 0xFFFF else ((0, bits >> 16),)
    return [op("SFPLOADI", value=part, mode=mode, to=register) for mode, part in parts]


def setup_packers(kind: Format, plane_rows: int = 0, transposes: bool = False) -> list[Word]:
    """Return the configuration of four packers, a face each, which read sums of fp32.

    With `plane_rows`, 16 columns are a plane of this many rows; a transposed tile has its middle faces swapped.
    """
    fields = {
        _SHARED["pack_reads_fp32"]: 1, _SHARED["pack_edge_mask"]: 0xFFFF, _SHARED["pack_reads_per_plane"]: 16,
        _SHARED["pack_x_stride"]: kind.packed_bytes,
    }  # fmt: skip
    face = 256 * kind.bytes // 16
    plane = plane_rows * kind.bytes
    targets = (0, plane, face, plane + face) if plane_rows else [face * i for i in range(4)]
    faces = (0, 2, 1, 3) if transposes else range(4)
    for i, (target, at) in enumerate(zip(targets, faces, strict=True)):
        fields[_SHARED[f"pack_limit_{i}"]] = 0x1FFFF
        fields |= _of_unit(
            _PACKERS, i, in_format=kind.packed, out_format=kind.memory, uncompressed=1, no_header=1,
            target=target or 1 << 31, dst_offset=16 * at,
        )  # fmt: skip  # bit 31: the others' addresses are relative to the first
    for unit in range(2):  # the simulator reads the packers' limit there
        fields |= _of_unit(_UNPACKERS, unit, limit=0x1FFFF)
    return [*configuration(fields), op("SETADCXX", last=255, units=0b100), *_clear_addresses(0b100)]


def pack_tile(kind: Format, tile: int, address: int) -> Instructions:
    """Return the words that pack a tile of Dst to L1."""
    base = _low_half(_SHARED["dst_base"][0], tile * kind.packed_bytes * TILE * TILE)
    return [base, _low_half(_PACKERS["target"][0][0], address // 16), op("PACR", last=1, packers=0xF)]


def stall(blocked: int, condition: int) -> Word:
    return op("STALLWAIT", condition=condition, blocked=blocked)


def wait_for_semaphore(blocked: int, semaphore: int, condition: int) -> Word:
    return op("SEMWAIT", condition=condition, semaphores=1 << semaphore, blocked=blocked | BLOCK_SYNC)


def post(semaphore: int) -> Word:
    return op("SEMPOST", semaphores=1 << semaphore)


def get(semaphore: int) -> Word:
    return op("SEMGET", semaphores=1 << semaphore)
