"""The processor that LLVM makes code for."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache

from mirlo.targets.llvm.cpus import BASE, USED, X86, arch_of


@dataclass(frozen=True)
class Processor:
    """A processor in LLVM's terms."""

    triple: str
    cpu: str
    """LLVM's name of the model, which chooses the cost of instructions."""
    features: tuple[str, ...] = ()
    """The instruction sets that code may use, beyond those of every processor of its kind."""

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
        return ",".join(f"+{name}" for name in self.features)

    def has(self, *features: str) -> bool:
        """Return whether code may use all of these features."""
        return all(feature in self.features for feature in features)

    @property
    def has_fma(self) -> bool:
        """Return whether a product and a sum are one instruction."""
        return self.has("fma") if self.arch == X86 else self.arch != "wasm32"

    @property
    def rounds_bf16(self) -> bool:
        """Return whether LLVM rounds f32 to bf16 by instructions."""
        if self.arch != X86:
            return True
        return self.has("avx512bf16", "avx512vl") or self.has("avxneconvert")


@cache
def host_features() -> dict[str, bool]:
    """Return the features of this host's processor by their LLVM names."""
    import llvmlite.binding as llvm

    return dict(llvm.get_host_cpu_features())


@cache
def host_processor() -> Processor:
    """Return the processor that the compiler runs on."""
    import llvmlite.binding as llvm

    used = USED[arch_of(platform.machine())]
    features = sorted(name for name, present in host_features().items() if present and name in used)
    return Processor(llvm.get_process_triple(), llvm.get_host_cpu_name(), tuple(features))
