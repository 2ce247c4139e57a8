"""The machine model of target `llvm`: vectors, registers, caches.

Rates that `mirlo doctor --measure` measures take the place of the model's. They are kept in a file beside the
compilation cache, for the processor that they were measured on. Code for other processors is planned by the table of
`cpus.py`.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import cache
from math import ceil
from pathlib import Path

from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import read_regular, write_regular
from mirlo.runtime.private_folders import make_private, unsafe_folder
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import user_cache

MAX_ACCUMULATORS = 64
"""Most accumulators of a register tile: more would be an error of the machine model."""


LOADS, COLUMNS_FROM_L2 = "loads", "columns from the L2 cache"
"""What may limit a k-step: the loads of operands, and the bytes of columns that do not fit the L1 cache."""

SHORT_RUN = 1.25
"""Depthwise convolutions of 14 to 56 pixels take 0.85 to 0.95 of the time with tiles of 7 rows and 2 vectors beside 14
rows and one, with AVX-512."""


@dataclass(frozen=True)
class Machine:
    """A CPU as schedules see it. The figures steer choices; none of them changes a result but for rounding."""

    name: str
    vector_bytes: int
    vector_registers: int
    masked: bool
    """Whether masked loads and stores cost no more than unmasked ones."""
    spare_registers: int = 0
    """Vector registers that a tile leaves free, where elements of rows are no operands in memory: with fewer, LLVM
    moves accumulators between registers in each k-step."""
    product_instructions: int = 1
    """Instructions that add a product to an accumulator: 2 where there is none for both, and the product is in a
    register of its own."""
    issue_width: float = 0.0
    """Instructions per cycle, where each load of a k-step needs another one for its address; 0 where addresses are
    parts of loads, and issuing does not limit a k-step."""
    fma_per_cycle: float = 2.0
    loads_per_cycle: float = 2.0
    fma_latency: int = 4
    l1_bytes: int = 32 * 1024
    l1_associativity: int = 8
    """Associativity of the L1 data cache."""
    l2_bytes: int = 512 * 1024
    l3_bytes: int = 32 * 1024 * 1024
    """Bytes of the shared L3 cache; 0 if there is none."""
    l2_bytes_per_cycle: float = 32.0
    """Bytes per cycle from the L2 cache to registers: an operand that does not fit L1."""
    l3_bytes_per_cycle: float = 48.0
    """Bytes per cycle from beyond the L2 cache, prefetched while tiles compute."""
    memory_bytes_per_cycle: float = 8.0
    """Bytes per cycle from memory, of what is read while a kernel computes: on a Zen 3, MobileNetV2 for 16 images loses
    2.3 of 10 ms of an image to 54 MB of tensors between its convolutions."""
    exchanged_bytes_per_cycle: float = 0.0
    """Bytes per cycle of what another core has just written; 0 where choices do not depend on which core did."""
    streaming_instructions: int = 4
    """Most instructions for a cache line of packed weights for which hardware prefetching alone is faster: on Zen 4
    by 5 to 15 %."""
    prefetch_level: int = 1
    """The cache that instructions prefetch packed weights to, 1 or 2."""
    reread_cycles: float = 0.0
    """Cycles that a tile waits for a byte of rows from beyond the L2 cache, which each panel reads again; 0 where
    prefetches arrive in time."""
    exposed_loads: tuple[tuple[str, float], ...] = ()
    """Part of the cycles of `LOADS` and of `COLUMNS_FROM_L2` that a k-step takes longer than what limits it."""
    short_run: float = SHORT_RUN
    """Factor on the time of reading runs that are shorter than what hardware fetches together."""
    unrolled_products: int = 0
    """Most multiply-adds of an iteration along K, of several k-steps of a whole tile; 0 for one k-step."""
    dots: tuple[str, ...] = ()
    """Products that one instruction sums up. In each lane: `u8xi8`, four of unsigned and signed int8 (VNNI), `i8xi8`,
    four of int8 that are both signed or both unsigned (AArch64), `vrmpy`, four of int8 of any signs (Hexagon), `i16`,
    two of 16-bit integers, and `bf16`, two. Of two rows and two columns of 8 bytes: `i8mm`, int8 of any signs, and
    `bfmmla` (AArch64, with `usdot` and `bfdot`)."""
    bf16_dot_rate: float = 2.0
    """Products of bf16 in the time of one of f32, by instructions of `dots` for bf16."""
    tiles: tuple[str, ...] = ()
    """Types whose products a matrix unit computes, `bf16` and `i8`: AMX."""
    invariant: bool = False
    """Whether the order of each sum may depend on what is summed only, and not on how many sums there are (`invariant`
    of `mirlo.compile`): rules that choose the order by the number of rows decline, or choose as for one row."""
    avx512: bool = False
    """Whether vectors are registers of AVX-512, with its instructions for scaling and permutation."""

    @property
    def avx2(self) -> bool:
        """Return whether vectors are registers of AVX2, with its instructions for permutation."""
        return self.vector_bytes == 32 and "i16" in self.dots

    @property
    def has_fast_bf16(self) -> bool:
        """Return whether an instruction of vectors multiplies bf16 faster than f32."""
        return self.bf16_dot_rate > 1 and not {"bf16", "bfmmla"}.isdisjoint(self.dots)

    @property
    def compute_bound_rows(self) -> int:
        """Return the rows from which on multiplying columns of f32 takes longer than reading them from memory."""
        return ceil(self.fma_per_cycle * self.vector_bytes / self.memory_bytes_per_cycle)

    @property
    def private_cache_bytes(self) -> int:
        """Return the cache capacity that a kernel may assume; other cores use their part of the last level."""
        return max(self.l3_bytes // 3, self.l2_bytes)

    @property
    def l1_set_stride(self) -> int:
        """Return the distance of addresses that map to the same set of the L1 cache."""
        return self.l1_bytes // self.l1_associativity

    def lanes(self, element_bytes: int) -> int:
        """Return the number of elements of this size in a vector register."""
        return max(1, self.vector_bytes // element_bytes)


def _avx512(name: str, dots: tuple[str, ...]) -> Machine:
    """Return a machine with AVX-512 and these dot products."""
    return Machine(
        name, 64, 32, masked=True, l1_bytes=48 * 1024, l1_associativity=12, l2_bytes=1024 * 1024, dots=dots, avx512=True
    )


ISSUED_BY_ENGINES = 6.0
"""Instructions per cycle of the processors of x86 that engines of WebAssembly run on: Golden Cove issues six."""
L2_OF_ENGINES = 1024 * 1024
"""Of the processors of today's browsers: attention of Whisper takes 0.95 of the time in blocks of rows for 1 MiB."""


def _wasm(name: str, product_instructions: int) -> Machine:
    """Return WebAssembly as engines compile it for x86: 15 of 16 registers are free, addresses are computed apart."""
    return Machine(
        name, 16, 15, masked=False, product_instructions=product_instructions, issue_width=ISSUED_BY_ENGINES,
        l2_bytes=L2_OF_ENGINES,
    )  # fmt: skip


SPARE_OF_NEON = 4
"""Code for Neoverse N1 has 46 moves between registers in a k-step of 14 rows and 2 vectors, which leaves 1; with 4 free
registers only tiles of depthwise convolutions have some."""

REREAD_OF_ZEN3 = 0.125
"""On a shared Zen 3 the products of ViT, whose rows are 1.2 and 4.7 times the L2 cache, take 0.87 of the time with
tiles of 4 rows and 3 vectors, which read rows two thirds as often as 6 rows and 2 vectors. On Zen 4, with and without
AVX-512, such tiles take 1.01 of it: no preset of AVX-512 has such cycles."""

SHORT_RUN_OF_ZEN3 = 1.0
"""On a Zen 3 depthwise convolutions take 0.76 to 1.0 of the time with tiles of 4 rows and 2 vectors, whose runs are a
cache line, beside 2 rows and 4 vectors, whose runs are two."""

UNROLLED_ON_AVX2 = 48
"""Four k-steps of 12 accumulators. With one, a fifth of the instructions control the loop or prefetch, each cache line
of the next panel 16 times; on a Zen 3 with other work ViT takes 0.84 of the CPU time with four. Tiles of 32
registers have fewer such instructions for a product."""


def _avx2(name: str, dots: tuple[str, ...]) -> Machine:
    """Return a machine with AVX2 and FMA, and these dot products."""
    return Machine(
        name, 32, 16, masked=True, reread_cycles=REREAD_OF_ZEN3, short_run=SHORT_RUN_OF_ZEN3,
        unrolled_products=UNROLLED_ON_AVX2, dots=dots,
    )  # fmt: skip


PRESETS: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        _avx512("avx512", ("i16",)),
        _avx512("avx512vnni", ("i16", "u8xi8")),
        _avx512("avx512bf16", ("bf16", "i16", "u8xi8")),
        replace(_avx512("amx", ("bf16", "i16", "u8xi8")), l2_bytes=2048 * 1024, tiles=("bf16", "i8")),
        _avx2("avx2", ("i16",)),
        _avx2("avxvnni", ("i16", "u8xi8")),
        Machine("neon", 16, 32, masked=False, spare_registers=SPARE_OF_NEON, l1_bytes=64 * 1024, l1_associativity=4),
        Machine("sse", 16, 16, masked=False),
        Machine("hvx", 128, 32, masked=True, loads_per_cycle=1.0, l2_bytes=1024 * 1024, dots=("vrmpy",)),
        _wasm("wasm", 2),
        _wasm("wasm-fma", 1),
    )
}
"""Machines by name: values of the pass option `machine`, besides `host`. They are complete: no property of the host
is added."""


class MachineError(MirloError, ValueError):
    """Raised for an unknown machine, or options that describe none."""

    error_code = "MIR0508"
    remedy = "Use options that target `llvm` has, with values that the message expects."


FILE = "machine.json"
LARGEST_RATE = 1024.0
"""Bytes per cycle, or products of bf16 for one of f32, above which a stored rate is an error."""


@dataclass(frozen=True)
class Rates:
    """Measured fields of `Machine`; None where this system permits no measurement."""

    fma_per_cycle: float | None = None
    bf16_dot_rate: float | None = None
    l2_bytes_per_cycle: float | None = None
    l3_bytes_per_cycle: float | None = None
    memory_bytes_per_cycle: float | None = None
    exchanged_bytes_per_cycle: float | None = None

    @property
    def known(self) -> dict[str, float]:
        """Return the rates that were measured, by the names of the fields of `Machine`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def rates_file() -> Path:
    """Return the path of this user's rates."""
    return user_cache() / FILE


@cache
def stored_rates(identity: str) -> Rates:
    """Return the rates that were measured on a processor; no rates if there was no measurement."""
    try:
        if unsafe_folder(rates_file().parent) is not None:
            return Rates()
        read = json.loads(read_regular(rates_file()))
        values = read["rates"] if read["processor"] == identity else {}
        return Rates(**{field.name: _checked(values[field.name]) for field in fields(Rates) if field.name in values})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Rates()


def _checked(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LARGEST_RATE:
        raise ValueError(f"expected a rate up to {LARGEST_RATE}, found {value!r}")
    return float(value)


def store_rates(identity: str, rates: Rates) -> None:
    """Save rates for the processor that they were measured on."""
    make_private(rates_file().parent)
    text = json.dumps({"processor": identity, "rates": rates.known}, indent=1)
    write_regular(rates_file(), text)
    stored_rates.cache_clear()
