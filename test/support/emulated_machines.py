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
        commands = [name for name in (self.compiler[0], *self.runner[:1]) if shutil.which(name) is None]
        modules = [name for name in self.modules if find_spec(name) is None]
        return f"there is no {' and no '.join([*commands, *modules])}" if commands or modules else ""


def _riscv(target: str, *cpu: str) -> EmulatedMachine:
    return EmulatedMachine(target, ("riscv64-linux-gnu-gcc", "-static"), ("qemu-riscv64-static", *cpu))


def _wasm(features: str, *flags: str) -> EmulatedMachine:
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", *flags)
    runner = (sys.executable, str(Path(__file__).with_name("run_wasi.py")))
    target = f"llvm{{cpu=generic triple=wasm32-unknown-unknown{features}}}"
    return EmulatedMachine(target, zig, runner, ("ziglang", "wasmtime"), 1)


def _hexagon() -> EmulatedMachine:
    """Return a machine of Qualcomm's, without a thread pool: Debian's emulator knows version 67 at most."""
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "hexagon-linux-musl", "-mcpu=hexagonv67", "-static")
    return EmulatedMachine("llvm{cpu=hexagonv67}", (*zig, "-DMIRLO_NO_POOL"), ("qemu-hexagon-static",), ("ziglang",), 1)


def _windows(cpu: str, arch: str, runner: tuple[str, ...], system: str = "w64-windows-gnu") -> EmulatedMachine:
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-windows-gnu")
    return EmulatedMachine(f"llvm{{cpu={cpu} triple={arch}-{system}}}", zig, runner, ("ziglang",))


def _macos(cpu: str, arch: str) -> EmulatedMachine:
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-macos")
    return EmulatedMachine(f"llvm{{cpu={cpu} triple={arch}-apple-macosx13}}", zig, (), ("ziglang",))


SYSTEMS = {
    "windows": _windows("x86-64-v2", "x86_64", ("wine",)),
    "windows of microsoft": _windows("x86-64-v2", "x86_64", ("wine",), "pc-windows-msvc"),
    "windows on aarch64": _windows("neoverse-n1", "aarch64", ()),
    "macos": _macos("apple-m1", "aarch64"),
    "macos on x86-64": _macos("x86-64-v3", "x86_64"),
}
"""Other systems. Programs for them are linked; those for Windows run where there is Wine."""
MACHINES = {
    "riscv64": _riscv("llvm{cpu=generic-rv64}"),
    "rv64gcv": _riscv("llvm{cpu=generic-rv64 features=+v,+zvl128b}", "-cpu", "rv64,v=true"),
    "sifive-x280": _riscv("llvm{cpu=sifive-x280}", "-cpu", "rv64,v=true,vlen=512"),
    "hexagonv67": _hexagon(),
    "wasm32": _wasm(""),
    "wasm32-simd128": _wasm(" features=+simd128", "-msimd128"),
}
