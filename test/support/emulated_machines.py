"""Machines other than this one, on which tests run programs: by qemu, and WebAssembly by wasmtime."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class EmulatedMachine:
    """How programs for a machine are compiled and run."""

    target: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...]
    modules: tuple[str, ...] = ()
    """The modules of Python that these need."""
    threads: int = 2
    suffix: str = ""

    def missing(self) -> str:
        """Return what there is not; empty where nothing is missing."""
        commands = [name for name in (self.compiler[0], self.runner[0]) if shutil.which(name) is None]
        modules = [name for name in self.modules if find_spec(name) is None]
        return f"there is no {' and no '.join([*commands, *modules])}" if commands or modules else ""


def _riscv(target: str, *cpu: str) -> EmulatedMachine:
    return EmulatedMachine(target, ("riscv64-linux-gnu-gcc", "-static"), ("qemu-riscv64-static", *cpu))


def _wasm(features: str, *flags: str) -> EmulatedMachine:
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", *flags)
    runner = (sys.executable, str(Path(__file__).with_name("run_wasi.py")))
    target = f"llvm{{cpu=generic triple=wasm32-unknown-unknown{features}}}"
    return EmulatedMachine(target, zig, runner, ("ziglang", "wasmtime"), 1)


MACHINES = {
    "riscv64": _riscv("llvm{cpu=generic-rv64}"),
    "rv64gcv": _riscv("llvm{cpu=generic-rv64 features=+v,+zvl128b}", "-cpu", "rv64,v=true"),
    "sifive-x280": _riscv("llvm{cpu=sifive-x280}", "-cpu", "rv64,v=true,vlen=512"),
    "wasm32": _wasm(""),
    "wasm32-simd128": _wasm(" features=+simd128", "-msimd128"),
}
