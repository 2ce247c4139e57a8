"""Object files with data only for macOS: Mach-O."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from mirlo.runtime.files import replacing

MACHINES = {"x86_64": (0x01000007, 3), "aarch64": (0x0100000C, 0)}
_MAGIC, _OBJECT = 0xFEEDFACF, 1
_SEGMENT, _SYMBOLS, _KINDS_OF_SYMBOLS, _BUILD_VERSION = 0x19, 0x2, 0xB, 0x32
_MACOS, _VERSION = 1, 13 << 16
_DATA_AT = 384
"""Where the data begins: after the header and the commands, on a multiple of 64."""
_PRIVATE_EXTERNAL_IN_SECTION = 0x1F


def write_data(path: Path, arch: str, symbol: str, content: Iterable[bytes | memoryview], size: int) -> None:
    """Write an object file that defines a hidden symbol: `size` bytes on a multiple of 64, written in parts."""
    symbols_at = -(-(_DATA_AT + size) // 8) * 8
    strings = b"\0_" + symbol.encode() + b"\0"
    section = struct.pack("<16s16sQQIIIIIIII", b"__const", b"__TEXT", 0, size, _DATA_AT, 6, 0, 0, 0, 0, 0, 0)
    segment = struct.pack("<II16sQQQQiiII", _SEGMENT, 72 + len(section), b"", 0, size, _DATA_AT, size, 7, 7, 1, 0)
    version = struct.pack("<IIIIII", _BUILD_VERSION, 24, _MACOS, _VERSION, 0, 0)
    table = struct.pack("<IIIIII", _SYMBOLS, 24, symbols_at, 1, symbols_at + 16, len(strings))
    # No local symbols, one that others see, none that is undefined.
    kinds = struct.pack("<20I", _KINDS_OF_SYMBOLS, 80, 0, 0, 0, 1, 1, 0, *(0,) * 12)
    commands = segment + section + version + table + kinds
    head = struct.pack("<IIIIIIII", _MAGIC, *MACHINES[arch], _OBJECT, 4, len(commands), 0, 0)
    with replacing(path) as file:
        file.write((head + commands).ljust(_DATA_AT, b"\0"))
        for part in content:
            file.write(part)
        file.write(bytes(symbols_at - _DATA_AT - size))
        file.write(struct.pack("<IBBHQ", 1, _PRIVATE_EXTERNAL_IN_SECTION, 1, 0, 0) + strings)
