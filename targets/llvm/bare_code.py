"""Machine code of a single function for a core without an operating system, a linker or a loader."""

from __future__ import annotations

import struct

from mirlo.dialects.bindings import ir
from mirlo.passes.registry import PassError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine_code import CodeSettings, emit, generate, optimized
from mirlo.targets.llvm.options import parse_options

BARE_RISCV32 = "cpu=generic-rv32 triple=riscv32-unknown-elf"
"""Options of target `llvm` for a core of RV32IM."""
_ELF32, _ELF64 = b"\x7fELF\x01\x01", b"\x7fELF\x02\x01"
_SYMTAB, _RELA, _NOBITS, _REL = 2, 4, 8, 9
"""Types of sections."""
_ALLOC, _EXECUTE = 0x2, 0x4
"""Flags of sections."""
_FUNC = 2
"""The type of a function's symbol."""


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    content: bytes
    size: int
    applies_to: int
    """For relocations: the number of the section that they change."""


def bare_code(program: ir.Module | str, options: str = BARE_RISCV32) -> bytes:
    """Return the machine code of the one function of a module, ready to be copied to where a core begins.

    `program` is a module of the LLVM dialect, which is consumed, or LLVM IR as text; `options` are those of target
    `llvm`. The function begins at the first byte. Its code must need no linker: no other function, no data, no constant
    in memory; otherwise an error names the symbol or the section.
    """
    settings = CodeSettings(parse_options(options).processor)
    if isinstance(program, str):
        return _text_of(emit(optimized(program, settings), settings))
    return _text_of(generate(program, settings))


def _text_of(content: bytes) -> bytes:
    """Return the code section of an object file that has nothing else to load."""
    sections = _sections(content)
    for section in sections:
        is_code = bool(section.flags & _EXECUTE)
        if section.flags & _ALLOC and not is_code and section.size and section.name != ".eh_frame":
            raise PassError(
                f"bare code: the function has {section.size} bytes of data in '{section.name}': compute constants, or "
                "pass the address of a buffer"
            )
        if section.kind in (_RELA, _REL) and section.size and sections[section.applies_to].flags & _EXECUTE:
            names = ", ".join(f"'{name}'" for name in _relocated(content, section, sections))
            raise PassError(f"bare code: the function refers to {names}, which only a linker can find: inline it")
    functions = [name for name, kind in _symbols(content, sections) if kind == _FUNC]
    if len(functions) != 1:
        listed = ", ".join(f"'{name}'" for name in functions) or "none"
        raise PassError(f"bare code: expected one function, found {listed}: inline the others")
    (code,) = (section.content for section in sections if section.flags & _EXECUTE and section.size)
    return code


def _sections(content: bytes) -> list[_Section]:
    is_wide = content.startswith(_ELF64)
    if not is_wide and not content.startswith(_ELF32):
        raise PassError("bare code: the triple must be of a system with ELF object files, such as riscv32-unknown-elf")
    table = struct.unpack_from("<Q" if is_wide else "<I", content, 0x28 if is_wide else 0x20)[0]
    each, count, names = struct.unpack_from("<HHH", content, 0x3A if is_wide else 0x2E)
    rows = [struct.unpack_from("<IIQQQQII" if is_wide else "<8I", content, table + i * each) for i in range(count)]
    strings = rows[names][4]
    result = []
    for name, kind, flags, _, at, size, _, info in rows:
        label = content[strings + name : content.index(b"\0", strings + name)].decode()
        result.append(_Section(label, kind, flags, b"" if kind == _NOBITS else content[at : at + size], size, info))
    return result


def _symbols(content: bytes, sections: list[_Section]) -> list[tuple[str, int]]:
    """Return the name and the type of each symbol, by their numbers."""
    is_wide = content.startswith(_ELF64)
    table = next((section.content for section in sections if section.kind == _SYMTAB), b"")
    strings = next((section.content for section in sections if section.name == ".strtab"), b"")
    rows = struct.iter_unpack("<IBBHQQ" if is_wide else "<IIIBBH", table)
    kinds = ((row[0], row[1] if is_wide else row[3]) for row in rows)
    return [(strings[name : strings.index(b"\0", name)].decode(), info & 0xF) for name, info in kinds]


def _relocated(content: bytes, relocations: _Section, sections: list[_Section]) -> list[str]:
    """Return the symbols that relocations refer to, each once."""
    is_wide = content.startswith(_ELF64)
    symbols = _symbols(content, sections)
    size = (24 if is_wide else 12) if relocations.kind == _RELA else (16 if is_wide else 8)
    names: dict[str, None] = {}
    for at in range(0, relocations.size, size):
        info = struct.unpack_from("<Q" if is_wide else "<I", relocations.content, at + (8 if is_wide else 4))[0]
        names[symbols[info >> (32 if is_wide else 8)][0] or "a local label"] = None
    return list(names)
