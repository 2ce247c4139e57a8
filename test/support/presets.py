"""The presets of machines of target `llvm`: which of them this processor runs, and code for those that it does not."""

from __future__ import annotations

from typing import Any

import mirlo
from mirlo.runtime.unloaded import UnloadedModel
from mirlo.targets.llvm import cpus
from mirlo.targets.llvm.intrinsics.x86 import missing_instruction
from mirlo.targets.llvm.machine import PRESETS, Machine
from mirlo.targets.llvm.processor import host_processor

CPUS = {
    "avx512": "x86-64-v4",
    "avx512vnni": "cascadelake",
    "avx512bf16": "cooperlake",
    "avx2": "x86-64-v3",
    "avxvnni": "alderlake",
}
"""By preset, a processor that has its instructions; every one of x86-64 has those of the others."""


def runs_code_of(cpu: str) -> bool:
    """Return whether this processor runs what is compiled for another one, of a name that LLVM knows."""
    known, host = cpus.CPUS[cpu], host_processor()
    return known.arch == host.arch and known.features <= set(host.features)


def _runs_here(machine: Machine) -> bool:
    """Return whether LLVM selects instructions on this processor for all that a machine has."""
    needs = {"u8xi8": "avx512.vpdpbusd", "bf16": "avx512bf16.dpbf16ps", "i16": "avx2.pmadd"}
    names = [f"{needs[dot]}.{machine.vector_bytes * 8}" for dot in machine.dots]
    names += ["avx512.mask.reduce.ps.512", "avx512.pmaddw.d.512"] if machine.vector_bytes == 64 else []
    return missing_instruction(" ".join(f'"llvm.x86.{name}"' for name in names), host_processor()) is None


RUNNABLE = [name for name, machine in PRESETS.items() if _runs_here(machine)]


def compile_for_preset(preset: str, model: Any, **options: Any) -> Any:
    """Return a model's executable for a preset; None where it is compiled, but this processor cannot run it."""
    target = "llvm" if preset in RUNNABLE else f"llvm{{cpu={CPUS[preset]}}}"
    executable = mirlo.compile(model, target=target, cache=False, jobs=1, **options)
    if preset in RUNNABLE:
        return executable
    assert isinstance(executable, UnloadedModel) and executable.artifact.kernels
    return None
