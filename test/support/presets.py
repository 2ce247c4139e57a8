"""The processors that tests of code name, which of them this one runs, and code for those that it does not.

A test of code looks at instructions, spills, tiles, masks or reasons: it names the processor, by the argument
`processor` or by itself, and passes on every machine. A test of numbers runs what is compiled for the host.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import mirlo
from mirlo.runtime.unloaded import UnloadedModel
from mirlo.targets.llvm import cpus
from mirlo.targets.llvm.intrinsics.x86 import missing_instruction
from mirlo.targets.llvm.machine import PRESETS, Machine
from mirlo.targets.llvm.processor import host_processor

PROCESSORS = {
    "nehalem": "cpu=nehalem",
    "zen3": "cpu=znver3",
    "alderlake": "cpu=alderlake",
    "skylake": "cpu=skylake-avx512",
    "icelake": "cpu=icelake-server",
    "sapphire": "cpu=sapphirerapids",
    "neoverse-n1": "cpu=neoverse-n1",
    "neoverse-n2": "cpu=neoverse-n2",
    "riscv64-v": "cpu=spacemit-x60",
}
"""Processors by name, as options of target `llvm` and of passes: the argument `processor` of tests."""

Code = TypeVar("Code")


class CodeOf(Generic[Code]):
    """An attribute that shows code: reading it where `machine` is None, the host's, is an error of the test."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> CodeOf[Code]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Code: ...

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        if instance.machine is None:
            raise AssertionError(
                f"'{self._name}' is that of this machine's processor, and another's differs: name a machine, such as "
                "the argument 'processor'"
            )
        return instance.__dict__[self._name]

    def __set__(self, instance: object, value: Code) -> None:
        instance.__dict__[self._name] = value


CPUS = {
    "avx512": "x86-64-v4",
    "avx512vnni": "cascadelake",
    "avx512bf16": "cooperlake",
    "avx2": "x86-64-v3",
    "avxvnni": "alderlake",
    "hvx": "hexagonv67",
}
"""By preset, a processor that has its instructions; every one of x86-64 has those of the others."""


def runs_code_of(cpu: str) -> bool:
    """Return whether this processor runs code for another one, by LLVM's name."""
    known, host = cpus.CPUS[cpu], host_processor()
    return known.arch == host.arch and known.features <= set(host.features)


def _runs_here(machine: Machine) -> bool:
    """Return whether LLVM selects instructions on this processor for all that a machine has."""
    needs = {"u8xi8": "avx512.vpdpbusd", "bf16": "avx512bf16.dpbf16ps", "i16": "avx2.pmadd"}
    if not needs.keys() >= {*machine.dots}:
        return False
    names = [f"{needs[dot]}.{machine.vector_bytes * 8}" for dot in machine.dots]
    names += ["avx512.mask.reduce.ps.512", "avx512.pmaddw.d.512"] if machine.vector_bytes == 64 else []
    return missing_instruction(" ".join(f'"llvm.x86.{name}"' for name in names), host_processor()) is None


RUNNABLE = [name for name, machine in PRESETS.items() if _runs_here(machine)]


def compile_for(cpu: str, model: Any, **options: Any) -> tuple[Any, bool]:
    """Return a model's executable for a processor of LLVM's name, or "" for the host's, and whether it runs here."""
    executable = mirlo.compile(model, target=f"llvm{{cpu={cpu}}}" if cpu else "llvm", cache=False, jobs=1, **options)
    return executable, not cpu or runs_code_of(cpu)


def compile_for_preset(preset: str, model: Any, **options: Any) -> Any:
    """Return a model's executable for a preset; None where it is compiled, but this processor cannot run it."""
    target = "llvm" if preset in RUNNABLE else f"llvm{{cpu={CPUS[preset]}}}"
    executable = mirlo.compile(model, target=target, cache=False, jobs=1, **options)
    if preset in RUNNABLE:
        return executable
    assert isinstance(executable, UnloadedModel) and executable.artifact.kernels
    return None
