"""Engines of LLVM that hold loaded code."""

from __future__ import annotations

import platform
import struct
from typing import TYPE_CHECKING

from mirlo.runtime.system import OBJECT_FORMAT

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine, ModuleRef, TargetMachine

_MACHINES = {"x86_64": 62, "aarch64": 183}
"""Numbers in ELF of processors whose code and data are loaded into one block of memory."""
_ROOM = 1 << 20
"""Bytes for the code of text that LLVM compiles, and for what alignment takes."""


def make_engine(module: ModuleRef, machine: TargetMachine, size: int = 0) -> ExecutionEngine:
    """Return an engine of MCJIT with a module, and room for objects of so many bytes in one block of memory.

    By itself LLVM takes blocks for code and for data where the process has memory free. If they are more than 2 GiB
    apart, which relocations do not reach, LLVM ends the process. llvmlite's memory manager takes one block, of the
    size of the first object's sections without their alignment: the first object here asks for more than all need.
    """
    import llvmlite.binding as llvm

    number = _MACHINES.get(platform.machine().lower()) if OBJECT_FORMAT == "elf" else None
    if number is None or struct.calcsize("P") != 8:
        return llvm.create_mcjit_compiler(module, machine)
    engine = llvm.create_mcjit_compiler(module, machine, use_lmm=True)
    engine.add_object_file(llvm.ObjectFileRef.from_data(_empty_object(number, 2 * size + _ROOM)))
    return engine


def _empty_object(machine: int, size: int) -> bytes:
    """Return an ELF object with sections for code, constants and data that have a size and no content."""
    names = b"\0.text\0.rodata\0.data\0.shstrtab\0"
    allocated, written, executed = 2, 1, 4
    sections = [(b".text", allocated | executed), (b".rodata", allocated), (b".data", allocated | written)]
    table = struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, flags in sections:
        # 8: no content in the file.
        table += struct.pack("<IIQQQQIIQQ", names.index(name), 8, flags, 0, 64, size, 0, 0, 64, 0)
    table += struct.pack("<IIQQQQIIQQ", names.index(b".shstrtab"), 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    count, start = len(sections) + 2, 64 + len(names)
    identification = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, start, 0, 64, 0, 0, 64, count, count - 1)
    return identification + header + names + table
