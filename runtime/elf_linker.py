"""A linker in memory for object files of x86-64 in ELF, so that a compiled model runs without LLVM in the process.

LLVM's libraries take 38 MiB of a process and 50 ms to load. The object files here are those that LLVM writes for
position-independent code with the small code model; what they do not have is an error, and so is everything that would
be read or written outside of a section.

The symbols of object files in ELF, Mach-O and COFF are checked before LLVM loads one: it ends the process on an invalid
one.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Callable, Sequence
from dataclasses import field

from mirlo.runtime import system
from mirlo.runtime.records import dataclass


class BadObject(ValueError):
    """Bytes that are not an object file."""


_MACHINE = 62
"""EM_X86_64."""
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL, _UNWIND = 1, 2, 4, 8, 9, 0x70000001
"""Types of sections."""
_WRITE, _ALLOC, _EXECUTE, _TLS = 1, 2, 4, 0x400
"""Flags of sections."""
_UNDEFINED, _RESERVED, _ABSOLUTE = 0, 0xFF00, 0xFFF1
"""Numbers in place of a symbol's section."""
_LOCAL, _WEAK = 0, 2
"""Bindings of symbols."""
_64, _PC32, _PLT32, _32, _32S, _PC64 = 1, 2, 4, 10, 11, 24
_GOTPCREL = frozenset((9, 41, 42))
"""Types of relocations; those of `_GOTPCREL` are to the slot with a symbol's address."""
_STUB = b"\xff\x25"
"""jmp [rip + 32 bits], to the address in a symbol's slot."""
_STUB_BYTES, _SLOT_BYTES = 8, 8
_PAGE = 4096
_MOST_BYTES = 1 << 30
"""Most bytes of all sections: offsets of 32 bits reach from each to each."""


@dataclass
class ObjectsInMemory:
    """Functions and data in memory, which is freed with this object."""

    keep: object
    addresses: dict[str, int]

    def address(self, name: str) -> int:
        """Return the address of a global symbol, 0 if there is none of this name."""
        return self.addresses.get(name, 0)


@dataclass
class _Section:
    kind: int
    flags: int
    content: bytes
    size: int
    alignment: int
    at: int = -1
    """Offset in memory; negative if it is not loaded."""

    @property
    def segment(self) -> int:
        return 0 if self.flags & _EXECUTE else 2 if self.flags & _WRITE else 1


@dataclass
class _Symbol:
    name: str
    binding: int
    section: int
    value: int


@dataclass
class _Relocation:
    section: _Section
    offset: int
    kind: int
    symbol: _Symbol
    addend: int


@dataclass
class _Object:
    sections: list[_Section] = field(default_factory=list)
    symbols: list[_Symbol] = field(default_factory=list)
    relocations: list[_Relocation] = field(default_factory=list)


def can_link() -> bool:
    """Return whether object files of this machine are of the kind that is linked here."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return is_x86 and system.OBJECT_FORMAT == "elf" and struct.calcsize("P") == 8


def link(codes: Sequence[bytes], resolve: Callable[[str], int]) -> ObjectsInMemory:
    """Load object files; `resolve` returns the address of a symbol that none of them defines, or 0."""
    try:
        objects = [_read(code) for code in codes]
    except BadObject:
        raise
    except (struct.error, IndexError, ValueError, OverflowError) as failure:
        raise BadObject(f"the object file is damaged: {failure}") from None
    return _Linker(objects, resolve).link()


class _Linker:
    """Places sections in memory: code and stubs, constants and the slots of addresses, then data."""

    def __init__(self, objects: Sequence[_Object], resolve: Callable[[str], int]) -> None:
        self._objects = objects
        self._resolve = resolve
        self._slots: dict[str, int] = {}
        self._stubs: dict[str, int] = {}
        self._globals: dict[str, int] = {}

    def link(self) -> ObjectsInMemory:
        needed = self._needed_symbols()
        text = self._place(0, 0)
        stubs, end = text, text + len(needed) * _STUB_BYTES
        constants = _up(end, _PAGE)
        slots = _up(self._place(1, constants), _SLOT_BYTES)
        data = _up(slots + len(needed) * _SLOT_BYTES, _PAGE)
        total = _up(max(self._place(2, data), data + 1), _PAGE)
        if total > _MOST_BYTES:
            raise BadObject(f"the object files have {total} bytes of sections, more than can be linked")
        pages = system.map_memory(total, in_huge_pages=False)
        base, memory = ctypes.addressof(ctypes.c_char.from_buffer(pages)), memoryview(pages)
        for section in (section for each in self._objects for section in each.sections if section.at >= 0):
            memory[section.at : section.at + len(section.content)] = section.content
        self._define_symbols(base)
        for i, name in enumerate(needed):
            self._slots[name], self._stubs[name] = base + slots + i * _SLOT_BYTES, base + stubs + i * _STUB_BYTES
            struct.pack_into("<Q", memory, slots + i * _SLOT_BYTES, self._address(name))
            distance = (slots + i * _SLOT_BYTES) - (stubs + i * _STUB_BYTES + len(_STUB) + 4)
            struct.pack_into("<2si", memory, stubs + i * _STUB_BYTES, _STUB, distance)
        for relocation in (relocation for each in self._objects for relocation in each.relocations):
            self._apply(memory, base, relocation)
        system.protect_memory(base, constants, is_executable=True)
        system.protect_memory(base + constants, data - constants)
        return ObjectsInMemory(pages, self._globals)

    def _needed_symbols(self) -> list[str]:
        """Return the symbols that get a slot and a stub: those of other files, and what is read through a slot."""
        names = {
            relocation.symbol.name: None
            for each in self._objects
            for relocation in each.relocations
            if relocation.kind in _GOTPCREL or relocation.symbol.section == _UNDEFINED
        }
        if "" in names:
            raise BadObject("the object file refers to a symbol without a name through a table of addresses")
        return list(names)

    def _place(self, segment: int, at: int) -> int:
        """Place the sections of a segment from an offset on, and return the end."""
        for each in self._objects:
            for section in each.sections:
                if section.flags & _ALLOC and section.kind in (_PROGBITS, _NOBITS) and section.segment == segment:
                    at = section.at = _up(at, section.alignment)
                    at += section.size
        return at

    def _define_symbols(self, base: int) -> None:
        weak: dict[str, int] = {}
        for each in self._objects:
            for symbol in each.symbols:
                if symbol.binding == _LOCAL or symbol.section == _UNDEFINED:
                    continue
                address = _defined_address(each, symbol, base)
                if symbol.binding == _WEAK:
                    weak.setdefault(symbol.name, address)
                elif symbol.name in self._globals:
                    raise BadObject(f"two object files define the symbol '{symbol.name}'")
                else:
                    self._globals[symbol.name] = address
        self._globals = {**weak, **self._globals}
        # Symbols of a file that is linked first may be local to it: each object has its own.
        for each in self._objects:
            for symbol in each.symbols:
                if symbol.section != _UNDEFINED:
                    is_local = symbol.binding == _LOCAL
                    symbol.value = _defined_address(each, symbol, base) if is_local else self._globals[symbol.name]

    def _address(self, name: str) -> int:
        """Return the address of a global symbol, here or in the process."""
        address = self._globals.get(name) or self._resolve(name)
        if not address:
            raise BadObject(f"nothing defines the symbol '{name}'")
        return address

    def _apply(self, memory: memoryview, base: int, relocation: _Relocation) -> None:
        symbol, kind, at = relocation.symbol, relocation.kind, relocation.section.at + relocation.offset
        place = base + at
        if kind in _GOTPCREL:
            value = self._slots[symbol.name] + relocation.addend - place
        else:
            if symbol.section != _UNDEFINED:
                target = symbol.value
                if not target:
                    raise BadObject(f"the symbol '{symbol.name}' is in a section that is not loaded")
            elif kind == _PLT32 and symbol.name not in self._globals:
                target = self._stubs[symbol.name]
            else:
                target = self._address(symbol.name)
            value = target + relocation.addend - (place if kind in (_PC32, _PLT32, _PC64) else 0)
        try:
            struct.pack_into(_FORMATS[kind], memory, at, value)
        except struct.error:
            raise BadObject(f"the symbol '{symbol.name}' is too far away from where it is used") from None


_FORMATS = {_64: "<Q", _PC32: "<i", _PLT32: "<i", _32: "<I", _32S: "<i", _PC64: "<q", **dict.fromkeys(_GOTPCREL, "<i")}
"""What a relocation writes."""


def _read(code: bytes) -> _Object:
    if not code.startswith(b"\x7fELF\x02\x01") or struct.unpack_from("<HH", code, 16) != (1, _MACHINE):
        raise BadObject("the bytes are not an object file of x86-64 in ELF")
    (start,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", code, start + i * size) for i in range(count)]
    result = _Object()
    for _, kind, flags, _, offset, nbytes, _, _, alignment, _ in rows:
        if kind != _NOBITS and offset + nbytes > len(code):
            raise BadObject("the object file is truncated")
        if flags & _ALLOC and (kind not in (_PROGBITS, _NOBITS, _UNWIND) or flags & _TLS):
            raise BadObject(f"the object file has a section of type {kind} with flags {flags}, which is not supported")
        if alignment & (alignment - 1) or alignment > _PAGE or nbytes > _MOST_BYTES:
            raise BadObject(f"the object file has a section of {nbytes} bytes aligned to {alignment}")
        is_loaded = flags & _ALLOC and kind == _PROGBITS
        content = code[offset : offset + nbytes] if is_loaded else b""
        result.sections.append(_Section(kind, flags, content, nbytes, max(alignment, 1)))
    tables = [i for i, row in enumerate(rows) if row[1] == _SYMTAB]
    if len(tables) != 1:
        raise BadObject(f"the object file has {len(tables)} tables of symbols")
    result.symbols = _symbols(code, rows, tables[0])
    for _, kind, _, _, offset, nbytes, link, info, _, _ in rows:
        if kind not in (_RELA, _REL) or not _is_placed(result.sections[info]):
            continue
        if kind == _REL or link != tables[0]:
            raise BadObject("the object file has relocations of an unknown form")
        result.relocations += _relocations(code[offset : offset + nbytes], result, result.sections[info])
    return result


def _is_placed(section: _Section) -> bool:
    return bool(section.flags & _ALLOC) and section.kind == _PROGBITS


def _symbols(code: bytes, rows: Sequence[tuple[int, ...]], table: int) -> list[_Symbol]:
    offset, nbytes, link = rows[table][4], rows[table][5], rows[table][6]
    strings = code[rows[link][4] : rows[link][4] + rows[link][5]]
    result = []
    for name, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", code[offset : offset + nbytes // 24 * 24]):
        if section >= _RESERVED and section != _ABSOLUTE:
            raise BadObject(f"the object file has a symbol (type {info & 15}) in memory that no section has")
        if section != _ABSOLUTE and section >= len(rows):
            raise BadObject("the object file has a symbol of no section")
        text = strings[name : strings.index(0, name)].decode() if name else ""
        result.append(_Symbol(text, info >> 4, section, value))
    return result


def _relocations(table: bytes, read: _Object, section: _Section) -> list[_Relocation]:
    result = []
    for offset, info, addend in struct.iter_unpack("<QQq", table[: len(table) // 24 * 24]):
        kind, number = info & 0xFFFFFFFF, info >> 32
        form = _FORMATS.get(kind)
        if form is None:
            raise BadObject(f"the object file has a relocation of type {kind}, which is not supported")
        if offset + struct.calcsize(form) > section.size or number >= len(read.symbols):
            raise BadObject("the object file has a relocation outside of its section")
        symbol = read.symbols[number]
        if kind in _GOTPCREL and symbol.binding == _LOCAL:
            raise BadObject("the object file reads the address of a symbol of its own from a table")
        result.append(_Relocation(section, offset, kind, symbol, addend))
    return result


def _defined_address(owner: _Object, symbol: _Symbol, base: int) -> int:
    if symbol.section == _ABSOLUTE:
        return symbol.value
    section = owner.sections[symbol.section]
    if section.at < 0:
        return 0  # of a section that is not loaded, such as the one with the file's name
    if symbol.value > section.size:
        raise BadObject(f"the symbol '{symbol.name}' is outside of its section")
    return base + section.at + symbol.value


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


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
