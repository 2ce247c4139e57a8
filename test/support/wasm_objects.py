"""Object files of WebAssembly, as far as tests look into them."""

from __future__ import annotations

IMPORTS, FUNCTION = 2, 0


def imported_functions(code: bytes) -> set[str]:
    """Return the functions that a module imports: those that an object file does not define."""
    assert code[:8] == b"\0asm\1\0\0\0"
    at, found = 8, set()
    while at < len(code):
        section, at = code[at], at + 1
        size, at = _number(code, at)
        if section == IMPORTS:
            found |= _imports(code, at)
        at += size
    return found


def _imports(code: bytes, at: int) -> set[str]:
    found = set()
    count, at = _number(code, at)
    for _ in range(count):
        _, at = _text(code, at)
        name, at = _text(code, at)
        kind, at = code[at], at + 1
        if kind == FUNCTION:
            _, at = _number(code, at)
            found.add(name)
        elif kind == 1:  # a table: its type, and its limits
            at = _limits(code, at + 1)
        elif kind == 2:  # a memory
            at = _limits(code, at)
        else:  # a global: its type, and whether it changes
            at += 2
    return found


def _limits(code: bytes, at: int) -> int:
    flags, at = code[at], at + 1
    _, at = _number(code, at)
    return _number(code, at)[1] if flags & 1 else at


def _text(code: bytes, at: int) -> tuple[str, int]:
    size, at = _number(code, at)
    return code[at : at + size].decode(), at + size


def _number(code: bytes, at: int) -> tuple[int, int]:
    """Return a number in LEB128 and the place after it."""
    value = shift = 0
    while True:
        byte, at = code[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
