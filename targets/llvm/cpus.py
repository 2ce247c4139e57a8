"""Processors by LLVM's names: their instruction sets and caches.

A feature is listed where generated code may use it: by intrinsics of Mirlo's rules, or because LLVM selects it for
vectors and scalars. Others, such as those for system calls or cryptography, would only keep code from machines that
could run it.
"""

from __future__ import annotations

from collections.abc import Collection

from mirlo.runtime.host_cpu import AMX
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import COLUMNS_FROM_L2, LOADS, MachineError

KIB, MIB = 1 << 10, 1 << 20

X86, ARM, RISCV, RISCV32, WASM, HEXAGON = "x86_64", "aarch64", "riscv64", "riscv32", "wasm32", "hexagon"


@dataclass(frozen=True)
class Cpu:
    """A model of processor."""

    name: str
    """LLVM's name, which chooses the cost of instructions."""
    arch: str
    features: frozenset[str]
    """Its features among those that generated code may use, beyond those of every processor of its kind."""
    l1_bytes: int = 0
    """Bytes of the caches of a core; 0 for the usual ones of its vectors."""
    l2_bytes: int = 0


MESHES = frozenset(
    {
        "skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids", "emeraldrapids",
        "graniterapids",
    }
)  # fmt: skip
"""Processors whose L3 cache is distributed over a mesh of many cores."""
MESH_FEATURE = "avx512fp16"
"""A feature that, of Intel's processors, only those with a mesh have: virtual machines may report another model."""
L3_OF_MESH = 16.0
"""Bytes per cycle. On an Emerald Rapids, BERT's product with K of 3072, whose panels leave the L2 cache no room for the
rows, takes 0.85 of the time in blocks of K of 512, ViT's 0.93: the model expects 0.8 and 0.9 with this value."""

EXCHANGED_ON_MESH = 6.0
"""Bytes per cycle. On a Xeon with AMX 128 KiB to 1 MiB that another core wrote arrive at 18 to 26 GB/s. With blocks of
rows for each of two threads MobileNetV2 takes 0.87 of the time."""

STREAMING_OF_MESH = 0
"""On an Emerald Rapids prefetches 4 KiB ahead are worth 1.1 for int8 rows times weights of 8 bits, which take one
instruction for a cache line, and 1.25 for those of 4 bits."""
PREFETCH_LEVEL_OF_MESH = 2
"""On an Emerald Rapids one row of f32 times weights of 5, 6 and 8 bits takes 0.9 to 0.97 of the time with prefetches to
the L2 cache, 8 KiB ahead."""
EXPOSED_LOADS_OF_MESH = ((LOADS, 0.25), (COLUMNS_FROM_L2, 0.1))
"""On an Emerald Rapids tiles of 8 or 9 rows and 3 vectors take 0.89 to 0.96 of the time of those of 10 to 14 rows and 2
vectors, which load more for as many products; 4 vectors read too much of the L2 cache where K is long. By the times of
all tiles of 157 kernels of six models, what is chosen with these values takes 0.965 of the time of what was before."""
BF16_DOTS_OF_INTEL = 0.5
"""`vdpbf16ps` on processors with AVX-512 that are not AMD's: one in two cycles. On a Xeon with AMX it reaches 110
GFLOP/s, FMA on f32 200 to 220; on an AMD of family 26 it has twice the rate of FMA."""

WASM_THREADS = ("atomics", "bulk-memory")
"""What object files of WebAssembly need, so that they may have a memory that threads share."""

BASE = {
    X86: "x86-64", ARM: "generic", RISCV: "generic-rv64", RISCV32: "generic-rv32", WASM: "generic",
    HEXAGON: "hexagonv67",
}  # fmt: skip
"""The processor of LLVM whose features all processors of a kind have."""

_LEVELS = {
    "x86-64": "",
    "x86-64-v2": "popcnt sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
"""The levels of the x86-64 ABI: what each adds to the one before."""


def _level(name: str) -> frozenset[str]:
    features: set[str] = set()
    for level, added in _LEVELS.items():
        features.update(added.split())
        if level == name:
            break
    return frozenset(features)


def features_text(arch: str, features: Collection[str]) -> str:
    """Return features in short form: the highest level that they contain, and the others."""
    if arch != X86:
        return ", ".join(sorted(features)) or BASE[arch]
    highest = max((name for name in _LEVELS if _level(name) <= set(features)), key=lambda name: len(_level(name)))
    beyond = sorted(set(features) - _level(highest))
    return f"{highest} and {', '.join(beyond)}" if beyond else highest


_V2, _V3, _V4 = (_level(f"x86-64-v{i}") for i in (2, 3, 4))
_ICELAKE = _V4 | set(["avx512bitalg", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq", "gfni"])
_SAPPHIRE = _ICELAKE | AMX | {"avx512bf16", "avx512fp16", "avxvnni"}
_ALDER = _V3 | {"avxvnni", "gfni"}
_ZEN4 = _ICELAKE | {"avx512bf16"}
_ARM82 = frozenset({"dotprod", "fullfp16"})
_ARM86 = _ARM82 | {"bf16", "i8mm"}
_RVV = frozenset({"m", "a", "f", "d", "c", "v", "zvl128b"})

_TABLE: tuple[tuple[str, str, frozenset[str], int, int], ...] = (
    *((name, X86, _level(name), 0, 0) for name in _LEVELS),
    ("nehalem", X86, _V2, 32 * KIB, 256 * KIB),
    ("sandybridge", X86, _V2 | {"avx"}, 32 * KIB, 256 * KIB),
    ("haswell", X86, _V3, 32 * KIB, 256 * KIB),
    ("skylake", X86, _V3, 32 * KIB, 256 * KIB),
    ("alderlake", X86, _ALDER, 48 * KIB, 1280 * KIB),
    ("skylake-avx512", X86, _V4, 32 * KIB, 1 * MIB),
    ("cascadelake", X86, _V4 | {"avx512vnni"}, 32 * KIB, 1 * MIB),
    ("cooperlake", X86, _V4 | {"avx512vnni", "avx512bf16"}, 32 * KIB, 1 * MIB),
    ("icelake-server", X86, _ICELAKE, 48 * KIB, 1280 * KIB),
    ("sapphirerapids", X86, _SAPPHIRE, 48 * KIB, 2 * MIB),
    ("emeraldrapids", X86, _SAPPHIRE, 48 * KIB, 2 * MIB),
    ("graniterapids", X86, _SAPPHIRE, 48 * KIB, 2 * MIB),
    ("znver2", X86, _V3, 32 * KIB, 512 * KIB),
    ("znver3", X86, _V3, 32 * KIB, 512 * KIB),
    ("znver4", X86, _ZEN4, 32 * KIB, 1 * MIB),
    ("znver5", X86, _ZEN4 | {"avxvnni"}, 48 * KIB, 1 * MIB),
    ("generic", ARM, frozenset(), 32 * KIB, 512 * KIB),
    ("cortex-a53", ARM, frozenset(), 32 * KIB, 512 * KIB),
    ("cortex-a55", ARM, _ARM82, 32 * KIB, 256 * KIB),
    ("cortex-a72", ARM, frozenset(), 32 * KIB, 1 * MIB),
    ("cortex-a76", ARM, _ARM82, 64 * KIB, 512 * KIB),
    ("cortex-a78", ARM, _ARM82, 64 * KIB, 512 * KIB),
    ("neoverse-n1", ARM, _ARM82, 64 * KIB, 1 * MIB),
    ("neoverse-n2", ARM, _ARM86, 64 * KIB, 1 * MIB),
    ("neoverse-v1", ARM, _ARM86, 64 * KIB, 1 * MIB),
    ("neoverse-v2", ARM, _ARM86, 64 * KIB, 2 * MIB),
    ("a64fx", ARM, frozenset({"fullfp16", "sve512"}), 64 * KIB, 8 * MIB),
    ("apple-m1", ARM, _ARM82, 128 * KIB, 4 * MIB),
    ("apple-m2", ARM, _ARM86, 128 * KIB, 4 * MIB),
    ("generic-rv64", RISCV, frozenset({"m", "a", "f", "d", "c"}), 32 * KIB, 512 * KIB),
    ("generic-rv32", RISCV32, frozenset({"m"}), 0, 0),
    ("sifive-x280", RISCV, _RVV | {"zvl512b"}, 32 * KIB, 512 * KIB),
    ("spacemit-x60", RISCV, _RVV | {"zvl256b"}, 32 * KIB, 512 * KIB),
    *((f"hexagonv{i}", HEXAGON, frozenset({f"hvxv{i}", "hvx-length128b"}), 32 * KIB, 1 * MIB) for i in (67, 68, 73)),
)

SVE = {"sve256": 256, "sve512": 512}
"""Scalable vectors of exactly this many bits, by the names of features; LLVM's feature is `sve`.

Code for a length runs on processors of that length only. It pays from 512 bits: Neoverse V1 multiplies two vectors of
256 bits in a cycle, or four of 128, for which there are dot products as well.
"""

CPUS: dict[str, Cpu] = {row[0]: Cpu(*row) for row in _TABLE}

USED: dict[str, frozenset[str]] = {
    X86: frozenset().union(*(cpu.features for cpu in CPUS.values() if cpu.arch == X86)) | {"avxneconvert"},
    ARM: frozenset().union(*(cpu.features for cpu in CPUS.values() if cpu.arch == ARM)) | set(SVE),
    RISCV: frozenset().union(*(cpu.features for cpu in CPUS.values() if cpu.arch == RISCV)),
    RISCV32: frozenset({"m", "a", "f", "d", "c"}),
    HEXAGON: frozenset(),  # none is added or removed: each model has its vectors
    WASM: frozenset({"simd128", "relaxed-simd", *WASM_THREADS}),
}
"""By kind of processor, all features that generated code may use."""

_ARCHES = {
    "x86_64": X86,
    "amd64": X86,
    "aarch64": ARM,
    "arm64": ARM,
    "riscv64": RISCV,
    "riscv32": RISCV32,
    "wasm32": WASM,
    "hexagon": HEXAGON,
}
_SYSTEMS = {"linux": "linux", "windows": "windows", "w64": "windows"} | dict.fromkeys(
    ("darwin", "macos", "apple"), "darwin"
)


def arch_of(triple: str) -> str:
    """Return the kind of processor of a triple, or of what a system calls its machine."""
    first = triple.partition("-")[0].lower()
    if first not in _ARCHES:
        raise MachineError(
            f"target 'llvm' makes code for {', '.join(dict.fromkeys(_ARCHES.values()))}, found the triple '{triple}'"
        )
    return _ARCHES[first]


def system_of(triple: str) -> str:
    """Return the system of a triple: linux, darwin, windows, or the whole triple."""
    return next((system for name, system in _SYSTEMS.items() if name in triple), triple)
