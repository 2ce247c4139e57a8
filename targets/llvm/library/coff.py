"""Object files with data only for Windows: COFF."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from mirlo.runtime.files import replacing

MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64}
_READ_ONLY_DATA, _ALIGNED_64 = 0x40000040, 0x00700000
_HEADER, _SECTION = 20, 40
_EXTERNAL = 2


def write_data(path: Path, arch: str, symbol: str, content: Iterable[bytes | memoryview], size: int) -> None:
    """Write an object file that defines a symbol: `size` bytes on a multiple of 64, written in parts."""
    data_at = _HEADER + _SECTION
    head = struct.pack("<HHIIIHH", MACHINES[arch], 1, 0, data_at + size, 1, 0, 0)
    flags = _READ_ONLY_DATA | _ALIGNED_64
    section = struct.pack("<8sIIIIIIHHI", b".rdata", 0, 0, size, data_at, 0, 0, 0, 0, flags)
    strings = symbol.encode() + b"\0"
    # The name is at offset 4 of the strings, after their size.
    table = struct.pack("<IIIhHBB", 0, 4, 0, 1, 0, _EXTERNAL, 0) + struct.pack("<I", 4 + len(strings)) + strings
    with replacing(path) as file:
        file.write(head + section)
        for part in content:
            file.write(part)
        file.write(table)
