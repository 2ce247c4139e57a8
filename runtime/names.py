"""Make text that comes from a file safe for the place it is written to.

Names in models are arbitrary text. Each function here is for one destination, and keeps only the characters that are
known to mean nothing there; code that writes a name into C, a shell command, HTML or a terminal calls the one for it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

LAST_ROWS = "last_rows"
"""The input whose size says how many last rows of an output are computed (the pass `keep-last-rows`)."""
CACHE_DTYPES = ("bf16", "f16", "i8")
"""Types that f32 caches may be stored in."""
ACTIVATIONS = ("exact", "i8", "i8x2", "bf16")
"""Representations of activations in products with weights of a few bits: as they are; as int8 with a scale for each
block of a row; as two such digits, 16 bits; as bf16."""
AUTO = "auto"
"""Selects the representation of activations that the machine multiplies fastest."""
CACHE_SCALE = ".scale"
"""What is after the name of a cache in that of the scales of its rows."""

PAGE_ROLES = ("cache", "ends", "past", "table", "slots", "hints")
"""What an input is to attention with caches in pages: a cache, the ends of the sequences among the new tokens, the
tokens of each before the call, the pages of each, the row of each new token, or bounds of these sizes."""

PARALLEL = "mirlo_parallel"
"""`void mirlo_parallel(void (*function)(void*, int32, int32), void* arguments, int32 chunks, int32 threads)`, which
compiled code calls."""
POLLS = "polls"
"""Metadata of an artifact whose code calls `mirlo_poll`."""
REQUIRE = "mirlo.require"
"""The function of conditions (inputs: the condition, the text of the error). Code of target `llvm` tests the condition
itself, and calls the function where it does not hold."""

_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e]")
_NOT_IN_COMMENT = re.compile(r"[^A-Za-z0-9_ .,:;()\[\]{}'\"=+<>/-]")
_NOT_IN_IDENTIFIER = re.compile(r"[^A-Za-z0-9_]")
_HASHED = re.compile(r"_h[0-9a-f]{16}\Z")
_LINE_CHARACTERS = "\n\t"


def unused_name(base: str, taken: Container[str], separator: str = "_") -> str:
    """Return `base`, or `base_1`, `base_2`... if that is taken."""
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}{separator}{count}"
    return name


def unique_names(names: Iterable[str]) -> list[str]:
    """Return the names with repeated ones numbered."""
    result: dict[str, None] = {}
    counts: dict[str, int] = {}
    for base in names:
        # Lower numbers of a name that was numbered before are taken.
        name, count = base, counts.get(base, 0)
        while name in result:
            count += 1
            name = f"{base}_{count}"
        counts[base] = count
        result[name] = None
    return list(result)


def is_printable(text: str) -> bool:
    """Return whether a terminal shows text as it is: no control, format or direction characters, no line breaks."""
    return text.isprintable()


def terminal(text: str) -> str:
    r"""Return text on one line, with what is not printable as escape sequences of Python: `\x1b`, `\n`, `\u202e`."""
    return text if text.isprintable() else _NOT_PRINTABLE.sub(_escaped, text)


def terminal_lines(text: str) -> str:
    """Return text of several lines for a terminal: line breaks and tabs stay, the rest is as in `terminal`."""
    if text.isprintable():
        return text
    return _NOT_PRINTABLE.sub(lambda match: match[0] if match[0] in _LINE_CHARACTERS else _escaped(match), text)


def c_comment(text: str) -> str:
    """Return text for a comment in C, which it cannot end: no `*`, and no trigraphs, splices or line breaks."""
    return _NOT_IN_COMMENT.sub("_", text)


def c_identifier(text: str) -> str:
    """Return an identifier of C, different for different texts; not a keyword only where the caller adds a prefix."""
    name = _NOT_IN_IDENTIFIER.sub("_", text)
    name = name if name and not name[0].isdigit() else f"_{name}"
    if name != text or _HASHED.search(text):
        import hashlib  # start-up does not need it, nor json and shlex below

        name = f"{name}_h{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return name


def shell_word(text: str) -> str:
    """Return text as one word of a command that is printed for a POSIX shell."""
    if text.isprintable():
        import shlex

        return shlex.quote(text)
    # $'...' is of bash, zsh and POSIX 2024; nothing in it but the backslash and the quote means anything.
    escaped = re.sub(r"[\\']", lambda match: f"\\{match[0]}", text)
    return "$'" + _NOT_PRINTABLE.sub(lambda match: "".join(f"\\x{b:02x}" for b in _utf8(match[0])), escaped) + "'"


def file_name(text: str) -> str:
    """Return text as a part of a file's name that every system takes, of at most 100 characters."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:100]


def html(text: str) -> str:
    """Return text for the content of an HTML element or a quoted attribute."""
    import html as stdlib  # start-up does not need it

    return stdlib.escape(terminal_lines(text), quote=True)


def html_json(value: object) -> str:
    """Return JSON for a `<script>` element: `<`, `>` and `&` are escaped, so nothing in it ends or opens an element."""
    import json

    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return re.sub(r"[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text)


class TerminalStream:
    """A text stream for a terminal or a log that escapes control sequences."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write text with its unprintable characters escaped."""
        self.raw.write(terminal_lines(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def write_over(stream: TextIO, text: str) -> None:
    """Overwrite the current line of a terminal."""
    getattr(stream, "raw", stream).write(f"\r{terminal(text)}")


def open_standard_streams() -> None:
    """Open the null device for standard streams that are closed: the next file opened would take their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        number = ("stdin", "stdout", "stderr").index(name)
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


@contextmanager
def terminal_streams() -> Iterator[None]:
    """Replace standard output and error of this process by `TerminalStream`s: the first step of a command."""
    open_standard_streams()
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (TerminalStream(stream) for stream in kept)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept


def _escaped(match: re.Match[str]) -> str:
    """Escape a character unless it is printable, in ASCII or beyond."""
    text = match[0]
    if text.isprintable():
        return text
    if text in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[text]
    code = ord(text)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
