"""The processor that LLVM makes code for."""

from __future__ import annotations

import platform
from functools import cache

from mirlo.runtime.host_cpu import AMX, host_cpu
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import permits_tiles
from mirlo.targets.llvm.cpus import (
    ARM,
    BASE,
    HEXAGON,
    MESH_FEATURE,
    MESHES,
    RISCV,
    RISCV32,
    SVE,
    USED,
    WASM,
    X86,
    arch_of,
)


@dataclass(frozen=True)
class Processor:
    """A processor in LLVM's terms."""

    triple: str
    cpu: str
    """LLVM's name of the model, which chooses the cost of instructions."""
    features: tuple[str, ...] = ()
    """The instruction sets that code may use, beyond those of every processor of its kind."""
    emulates_tiles: bool = False
    """Whether functions compute what instructions of AMX do: for tests on machines without it."""
    flushes_denormals: bool = False
    """Whether kernels take and give zeros for subnormal numbers."""

    @property
    def arch(self) -> str:
        """Return the kind of processor."""
        return arch_of(self.triple)

    @property
    def base(self) -> str:
        """Return LLVM's name of the processor whose features every one of this kind has."""
        return BASE[self.arch]

    @property
    def llvm_features(self) -> str:
        """Return the features as LLVM takes them."""
        return ",".join("+sve" if name in SVE else f"+{name}" for name in self.features)

    @property
    def counter(self) -> str:
        """Return LLVM's intrinsic for ticks: RISC-V's counter of cycles is closed to programs, its clock is not."""
        return "llvm.readsteadycounter" if self.arch in (RISCV, RISCV32) else "llvm.readcyclecounter"

    @property
    def is_bare(self) -> bool:
        """Return whether there is no operating system: no threads, no files."""
        return self.triple.rpartition("-")[2] in ("elf", "none", "eabi")

    @property
    def sve_bits(self) -> int:
        """Return the length of scalable vectors; 0 where code does not use any."""
        return next((bits for name, bits in SVE.items() if self.has(name)), 0)

    def has(self, *features: str) -> bool:
        """Return whether code may use all of these features."""
        return all(feature in self.features for feature in features)

    @property
    def is_amd(self) -> bool:
        """Return whether the model is one of AMD's: LLVM knows these by the vendor."""
        return self.cpu.startswith("znver")

    @property
    def has_mesh(self) -> bool:
        """Return whether its L3 cache is distributed over a mesh of many cores."""
        return self.cpu in MESHES or (self.has(MESH_FEATURE) and not self.is_amd)

    @property
    def tiles(self) -> tuple[str, ...]:
        """Return the types whose products a matrix unit computes."""
        if self.emulates_tiles:
            return ("bf16", "i8")
        named = {"bf16": "amx-bf16", "i8": "amx-int8"}
        return tuple(kind for kind, feature in named.items() if self.has("amx-tile", feature))

    @property
    def has_fma(self) -> bool:
        """Return whether a product and a sum are one instruction."""
        needed = {X86: "fma", RISCV32: "f"}.get(self.arch)
        return self.has(needed) if needed else self.arch != WASM

    @property
    def rounds_to_integers(self) -> bool:
        """Return whether LLVM rounds floats to integers by instructions."""
        needed = {X86: "sse4.1", RISCV32: "f"}.get(self.arch)
        return self.arch != HEXAGON and (needed is None or self.has(needed))

    @property
    def has_f16(self) -> bool:
        """Return whether there is arithmetic of f16, for scalars and vectors."""
        return {
            X86: self.has("avx512fp16", "avx512vl"), ARM: self.has("fullfp16"), RISCV: self.has("zfh", "zvfh")
        }.get(self.arch, False)  # fmt: skip

    @property
    def emulated_floats(self) -> tuple[str, ...]:
        """Return the types that LLVM would convert by calls of functions."""
        if self.arch == ARM:
            return ()
        if self.arch != X86:
            return ("bf16",) if self.has_f16 else ("f16", "bf16")
        native = {
            "f16": self.has("f16c") or self.has_f16,
            "bf16": self.has("avx512bf16", "avx512vl") or self.has("avxneconvert"),
        }
        return tuple(kind for kind, is_native in native.items() if not is_native)

    @property
    def rounds_f64_twice(self) -> tuple[str, ...]:
        """Return the types to which LLVM would convert f64 by calls of functions."""
        if self.arch == ARM:
            return ()
        return ("bf16",) if self.has_f16 else ("f16", "bf16")

    @property
    def expanded_fma(self) -> tuple[str, ...]:
        """Return the types whose fused multiply-add LLVM would compute by calls of functions."""
        kinds: tuple[str, ...] = () if self.has_fma else ("f32", "f64")
        if self.arch == HEXAGON:
            kinds = ("f64",)
        if self.arch != ARM and not self.has_f16:
            kinds += ("f16",)
        return kinds + (("bf16",) if "bf16" in self.emulated_floats else ())


@cache
def host_processor() -> Processor:
    """Return the processor that the compiler runs on."""
    # Scalable vectors of 256 bits do not pay.
    features = host_cpu().features & (USED[arch_of(platform.machine())] - {"sve256"})
    if features & AMX and not permits_tiles():
        features -= AMX
    return Processor(host_cpu().triple, host_cpu().name, tuple(sorted(features)))
