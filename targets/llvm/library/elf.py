"""Object files with data only: an ELF file that LLVM would take minutes and gigabytes to make."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from mirlo.runtime.files import replacing

MACHINES = {"x86_64": (62, 0), "aarch64": (183, 0), "riscv64": (243, 0x5)}
"""Number of the machine and flags of the header; RISC-V's are compressed code and f64 in registers."""
_ALLOC, _LARGE = 0x2, 0x10000000
_HEADER, _SECTION, _SYMBOL = 64, 64, 24


def write_data(path: Path, arch: str, symbol: str, content: Iterable[bytes | memoryview], size: int) -> None:
    """Write an object file that defines a hidden symbol: `size` bytes on a multiple of 64, written in parts."""
    is_x86 = arch == "x86_64"
    # Sections of this name are beyond 2 GiB of the code where it is necessary.
    section = ".lrodata.mirlo" if is_x86 else ".rodata.mirlo"
    names = b"\0" + b"\0".join(
        name.encode() for name in (section, ".symtab", ".strtab", ".shstrtab", ".note.GNU-stack")
    )
    names += b"\0"
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = bytes(_SYMBOL) + struct.pack("<IBBHQQ", 1, 0x11, 2, 1, 0, size)
    data_at = _HEADER
    symbols_at = -(-(data_at + size) // 8) * 8
    strings_at = symbols_at + len(symbols)
    names_at = strings_at + len(strings)
    table_at = -(-(names_at + len(names)) // 8) * 8
    machine, flags = MACHINES[arch]
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = ident + struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, table_at, flags, _HEADER, 0, 0, _SECTION, 6, 4)

    def row(
        name: str, kind: int, flags: int, at: int, length: int, link: int, info: int, align: int, each: int
    ) -> bytes:
        offset = names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
        return struct.pack("<IIQQQQIIQQ", offset, kind, flags, 0, at, length, link, info, align, each)

    rows = [
        bytes(_SECTION),
        row(section, 1, _ALLOC | (_LARGE if is_x86 else 0), data_at, size, 0, 0, 64, 0),
        row(".symtab", 2, 0, symbols_at, len(symbols), 3, 1, 8, _SYMBOL),
        row(".strtab", 3, 0, strings_at, len(strings), 0, 0, 1, 0),
        row(".shstrtab", 3, 0, names_at, len(names), 0, 0, 1, 0),
        row(".note.GNU-stack", 1, 0, names_at, 0, 0, 0, 1, 0),
    ]
    with replacing(path) as file:
        file.write(head)
        for part in content:
            file.write(part)
        file.write(bytes(symbols_at - data_at - size) + symbols + strings + names)
        file.write(bytes(table_at - names_at - len(names)) + b"".join(rows))
