"""Archives of object files in the `ar` format, as linkers and `ar t` read it.

A model whose kernels are compiled one by one has an object file per kernel; the artifact stores them together.
"""

from __future__ import annotations

from collections.abc import Sequence

MAGIC = b"!<arch>\n"
_HEADER = 60
_NAMES = "//"
"""Name of the member with the names that are too long for a member header."""


class BadArchive(ValueError):
    """An archive that starts with the right magic number and is malformed."""


def pack(members: Sequence[tuple[str, bytes]]) -> bytes:
    """Return an archive of (name, content) members in this order."""
    names = "".join(f"{name}/\n" for name, _ in members).encode()
    parts = [MAGIC, _member(_NAMES, names)]
    offset = 0
    for name, content in members:
        parts.append(_member(f"/{offset}", content))
        offset += len(name.encode()) + 2
    return b"".join(parts)


def is_archive(code: bytes) -> bool:
    """Return whether the bytes start with the magic number of an archive."""
    return code.startswith(MAGIC)


def unpack(code: bytes) -> list[tuple[str, bytes]]:
    """Return the members of an archive made by `pack`."""
    if not is_archive(code):
        raise BadArchive("the bytes are not an archive")
    at, names = len(MAGIC), b""
    members = []
    while at < len(code):
        header = code[at : at + _HEADER]
        size_text = header[48:58].strip()
        if len(header) < _HEADER or header[58:] != b"`\n" or not size_text.isdigit():
            raise BadArchive(f"the archive is damaged at byte {at}")
        size = int(size_text)
        content = code[at + _HEADER : at + _HEADER + size]
        if len(content) < size:
            raise BadArchive(f"the archive is truncated in the member at byte {at}")
        name = header[:16].decode("ascii", "replace").rstrip()
        if name == _NAMES:
            names = content
        else:
            members.append((_long_name(name, names, at), content))
        at += _HEADER + size + size % 2
    return members


def _member(name: str, content: bytes) -> bytes:
    # Times, owners and modes are constant, so that equal models give equal files.
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(content):<10}`\n".encode()
    return header + content + b"\n" * (len(content) % 2)


def _long_name(name: str, names: bytes, at: int) -> str:
    if not name.startswith("/") or not name[1:].isdigit():
        return name.rstrip("/")
    end = names.find(b"/\n", int(name[1:]))
    if end < 0:
        raise BadArchive(f"the archive is damaged: the member at byte {at} has no name")
    return names[int(name[1:]) : end].decode("utf-8", "replace")
