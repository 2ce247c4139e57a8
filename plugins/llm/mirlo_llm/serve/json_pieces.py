"""JSON in pieces, since the module `json` holds the interpreter lock for a whole text.

Each piece takes about a millisecond; other threads run in between.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

PIECE = 1 << 15
"""Characters parsed at once, and elements written at once."""
MAX_VALUES = 1 << 21
"""Most values of a text, each of which takes up to 100 bytes."""
MAX_CONTAINERS = 1 << 17
"""Most arrays and objects of a text, each of which takes up to 300 bytes and time of the garbage collector."""
MAX_DEPTH = 64
"""Deepest nesting; JSON schemas and tool calls have some 20 levels."""
DEEP = f"the body has more than {MAX_DEPTH} arrays and objects in each other"
_SPACE = re.compile(rf"[ \t\n\r]{{0,{PIECE}}}")
_SPACES = ("", " ", "\t", "\n", "\r")
_PLAIN = re.compile(rf'[^"\\]{{0,{PIECE}}}')
_PAIR = r"u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}"
"""A surrogate pair: two escapes of one character."""
_ESCAPES = re.compile(rf'(?:\\(?:{_PAIR}|.)[^"\\]{{0,16}}){{1,{PIECE >> 4}}}', re.DOTALL)
_SCALARS = re.compile(rf'[^\[\]{{}}"]{{1,{PIECE}}}')
_STRINGS = re.compile(rf'(?:"[^"\\]{{0,64}}",[ \n]?){{1,{PIECE >> 5}}}')
"""Short strings in an array, before the last element."""


class JsonTooLarge(ValueError):
    """Raised for valid JSON with too many values or too deep nesting."""


def _constant(text: str) -> object:
    raise ValueError(f"{text} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_constant)


def parse_json(content: bytes) -> object:
    """Parse a UTF-8 text; raise ValueError for invalid or too large JSON."""
    if len(content) <= PIECE:
        return _DECODER.decode(content.decode("utf-8"))
    decoder = codecs.getincrementaldecoder("utf-8")()
    starts = range(0, len(content), 1 << 19)
    parts = [decoder.decode(content[at : at + (1 << 19)]) for at in starts]
    return _Reader("".join([*parts, decoder.decode(b"", True)])).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._values = self._containers = self._depth = 0

    def read(self) -> object:
        value = self._value()
        if self._next():
            raise self._fail("text after the value")
        return value

    def _fail(self, reason: str) -> ValueError:
        return ValueError(f"{reason} at character {self._at}")

    def _next(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        text = self._text
        while True:
            at = self._at
            if text[at : at + 1] not in _SPACES:
                return text[at]
            match = _SPACE.match(text, at)
            self._at = match.end() if match else at
            if self._at - at < PIECE:
                return text[self._at : self._at + 1]

    def _value(self) -> object:
        first = self._next()
        if first == '"':
            return self._string()
        if first == "[":
            return self._inside(self._array)
        if first == "{":
            return self._inside(self._object)
        match = _SCALARS.match(self._text, self._at)
        scalar = match[0].partition(",")[0] if match else ""
        self._count(1)
        self._at += len(scalar)
        return self._scalars(scalar)[0]

    def _inside(self, read: Any) -> object:
        self._depth += 1
        self._containers += 1
        self._count(1)
        if self._depth > MAX_DEPTH:
            raise JsonTooLarge(DEEP)
        if self._containers > MAX_CONTAINERS:
            raise JsonTooLarge(f"the body has more than {MAX_CONTAINERS} arrays and objects: send tensors as bytes")
        self._at += 1
        value: object = read()
        self._depth -= 1
        return value

    def _count(self, more: int) -> None:
        self._values += more
        if self._values > MAX_VALUES:
            raise JsonTooLarge(f"the body has more than {MAX_VALUES} values: send tensors as bytes")

    def _string(self) -> str:
        self._count(1)
        self._at += 1
        text, parts = self._text, list[str]()
        end = text.find('"', self._at, self._at + PIECE)
        if end >= 0 and text.find("\\", self._at, end) < 0:
            try:
                value, self._at = scanstring(text, self._at)
                return str(value)
            except ValueError:
                raise self._fail("an invalid character in a text that begins") from None
        while True:
            plain = _PLAIN.match(text, self._at)
            piece = plain[0] if plain else ""
            if piece:
                parts.append(scanstring(f'{piece}"', 0)[0])  # which refuses control characters
                self._at += len(piece)
            following = text[self._at : self._at + 1]
            if following == '"':
                self._at += 1
                return parts[0] if len(parts) == 1 else "".join(parts)
            if following == "\\":
                escapes = _ESCAPES.match(text, self._at)
                if escapes is None:
                    raise self._fail("an escape without an end")
                try:
                    parts.append(scanstring(f'{escapes[0]}"', 0)[0])
                except ValueError:
                    raise self._fail("an invalid escape or character") from None
                self._at = escapes.end()
            elif not following:
                raise self._fail("a text without an end")

    def _array(self) -> list[object]:
        values: list[object] = []
        if self._next() == "]":
            self._at += 1
            return values
        while True:
            following = self._next()
            if following in ("", "]", "}", ","):
                raise self._fail("no value in an array")
            strings = _STRINGS.match(self._text, self._at) if following == '"' else None
            if strings is not None:
                values += self._flat(strings[0].rstrip(", \n"))
            elif following in '"[{':
                values.append(self._value())
            else:
                values += self._flat(self._scalar_run())
            ending = self._next()
            self._at += 1
            if ending == "]":
                return values
            if ending != ",":
                raise self._fail("neither ',' nor ']' in an array")

    def _scalar_run(self) -> str:
        """Return scalar elements of an array as text, up to a comma or the end."""
        match = _SCALARS.match(self._text, self._at)
        whole = match[0] if match else ""
        is_last = match is not None and self._text[match.end() : match.end() + 1] == "]"
        return whole if is_last or "," not in whole else whole[: whole.rfind(",")]

    def _flat(self, text: str) -> list[object]:
        values = self._scalars(text)
        self._count(len(values))
        self._at += len(text)
        return values

    def _scalars(self, text: str) -> list[object]:
        try:
            values: list[object] = _DECODER.decode(f"[{text}]")
        except ValueError as error:
            raise self._fail(str(error).partition(":")[0] or "no value") from None
        if not values:
            raise self._fail("no value")
        return values

    def _object(self) -> dict[str, object]:
        values: dict[str, object] = {}
        if self._next() == "}":
            self._at += 1
            return values
        while True:
            if self._next() != '"':
                raise self._fail("no name in an object")
            name = self._string()
            if self._next() != ":":
                raise self._fail("no ':' in an object")
            self._at += 1
            values[name] = self._value()
            ending = self._next()
            self._at += 1
            if ending == "}":
                return values
            if ending != ",":
                raise self._fail("neither ',' nor '}' in an object")


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False)


def encode_json(value: object) -> bytes:
    """Return a value as JSON."""
    return _ENCODER.encode(value).encode("ascii")


def encode_in_pieces(value: object) -> bytes:
    """Encode a large value as JSON, piece by piece."""
    return b"".join(_pieces(value))


def _pieces(value: object) -> Iterator[bytes]:
    if isinstance(value, dict) and value:
        separator = b"{"
        for key, each in value.items():
            yield separator + encode_json(key) + b":"
            yield from _pieces(each)
            separator = b","
        yield b"}"
    elif isinstance(value, list) and value:
        is_nested = isinstance(value[0], (list, dict))
        separator = b"["
        for start in range(0, len(value), 1 if is_nested else PIECE // 16):
            yield separator
            if is_nested:
                yield from _pieces(value[start])
            else:
                yield encode_json(value[start : start + PIECE // 16])[1:-1]
            separator = b","
        yield b"]"
    else:
        yield encode_json(value)
