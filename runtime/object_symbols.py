"""The symbols of an object file, checked before LLVM loads it: LLVM ends the process on an invalid one.

Supported formats are little-endian ELF64, Mach-O 64 and COFF: what LLVM writes on Linux, macOS and Windows.
"""

from __future__ import annotations

import struct
from dataclasses import field

from mirlo.runtime.elf_linker import BadObject
from mirlo.runtime.records import dataclass


@dataclass
class Symbols:
    """Symbol names as in the source, without the platform's decoration."""

    format: str
    machine: int
    defined: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)


_ELF, _MACHO = b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe"
_COFF_MACHINES = {0x8664, 0xAA64}


def symbols_of(code: bytes) -> Symbols:
    """Return the global symbols that an object file defines and needs."""
    try:
        if code.startswith(_ELF):
            return _elf(code)
        if code.startswith(_MACHO):
            return _macho(code)
        if len(code) > 20 and struct.unpack_from("<H", code)[0] in _COFF_MACHINES:
            return _coff(code)
    except (struct.error, IndexError, UnicodeDecodeError) as failure:
        raise BadObject(f"the object file is damaged: {failure}") from None
    raise BadObject("the bytes are not an object file (ELF64, Mach-O 64 or COFF)")


def _elf(code: bytes) -> Symbols:
    file_type, machine = struct.unpack_from("<HH", code, 16)
    if file_type != 1:
        raise BadObject(f"the ELF file is of type {file_type}, expected a relocatable object (1)")
    (section_start,) = struct.unpack_from("<Q", code, 40)
    section_size, section_count = struct.unpack_from("<HH", code, 58)
    # Of a section header: type at 4, offset and size at 24, link (the string table's section) at 40.
    sections = []
    for index in range(section_count):
        at = section_start + index * section_size
        (kind,), (offset, size), (link,) = (
            struct.unpack_from("<I", code, at + 4),
            struct.unpack_from("<QQ", code, at + 24),
            struct.unpack_from("<I", code, at + 40),
        )
        if kind != 8 and offset + size > len(code):  # 8: SHT_NOBITS, takes no space in the file
            raise BadObject("the object file is truncated")
        sections.append((kind, offset, size, link))
    result = Symbols("elf", machine)
    for _, offset, size, link in (section for section in sections if section[0] == 2):
        strings = sections[link][1]
        for at in range(offset + 24, offset + size, 24):  # the first symbol is the null symbol
            name, info, _, section = struct.unpack_from("<IBBH", code, at)
            if name and info >> 4:  # binding 0 is local
                (result.defined if section else result.undefined).add(_text(code, strings + name))
    return result


def _macho(code: bytes) -> Symbols:
    (machine,) = struct.unpack_from("<I", code, 4)
    (commands,) = struct.unpack_from("<I", code, 16)
    result = Symbols("macho", machine)
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", code, at)
        if command == 2:  # LC_SYMTAB
            start, count, strings, _ = struct.unpack_from("<IIII", code, at + 8)
            for index in range(count):
                name, kind, _, _, value = struct.unpack_from("<IBBHQ", code, start + index * 16)
                if kind & 1 and not kind & 0xE0:  # external, not a debugger symbol
                    needed = kind & 0x0E == 0 and not value  # undefined, and not a common block
                    (result.undefined if needed else result.defined).add(_text(code, strings + name).removeprefix("_"))
        if size < 8:
            raise BadObject("the object file is damaged: a load command of no size")
        at += size
    return result


def _coff(code: bytes) -> Symbols:
    machine, _, _, table, count = struct.unpack_from("<HHIII", code)
    strings = table + count * 18
    result = Symbols("coff", machine)
    index = 0
    while index < count:
        at = table + index * 18
        short, offset = struct.unpack_from("<II", code, at)
        value, section, _, storage, extra = struct.unpack_from("<IhHBB", code, at + 8)
        name = _text(code, strings + offset) if short == 0 else code[at : at + 8].rstrip(b"\0").decode()
        if storage == 2:  # external
            (result.defined if section or value else result.undefined).add(name)
        index += 1 + extra
    return result


def _text(code: bytes, at: int) -> str:
    end = code.find(b"\0", at)
    if end < 0:
        raise BadObject("the object file is truncated")
    return code[at:end].decode()
