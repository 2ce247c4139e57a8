"""The processor that LLVM makes code for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mirlo.targets.llvm.machine import host_features


@dataclass(frozen=True)
class Processor:
    """A processor in LLVM's terms."""

    triple: str
    cpu: str
    """LLVM's name of the model, which chooses the cost of instructions."""
    features: str
    """Instruction sets that code may and may not use: `+avx2,-avx512f`."""


@cache
def host_processor() -> Processor:
    """Return the processor that the compiler runs on."""
    import llvmlite.binding as llvm

    features = ",".join(f"{'+' if present else '-'}{name}" for name, present in sorted(host_features().items()))
    return Processor(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)
