"""Parsers of compilation options: the text after a flag on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mirlo.runtime.options import parse_integer

MEASURE = ("measure", "")
"""The strategy that measures all of an operator."""


def size_of_dim(text: str) -> tuple[str, int]:
    """Parse the size of a dim: batch=8."""
    name, equals, size = text.rpartition("=")
    if not equals or not name:
        raise ValueError(f"expected NAME=N, found '{text}'")
    return name, parse_integer(size, 0)


def shape_of_input(text: str) -> tuple[str, tuple[int | str, ...]]:
    """Parse the shape of an input: x=1x3x224x224."""
    name, equals, dims = text.rpartition("=")
    # Commas separate dims with an 'x' in their name.
    words = [word.strip() for word in dims.split("," if "," in dims else "x")]
    if not equals or not name:
        raise ValueError(f"expected NAME=1x3x224x224, found '{text}'")
    return name, tuple(_dim(word, text) for word in words) if dims else ()


def _dim(word: str, text: str) -> int | str:
    if word.isdecimal():
        return int(word)
    if word.isidentifier():
        return word
    raise ValueError(f"expected NAME=1x3x224x224, found the dim '{word}' in '{text}'")


def sizes_of_dims(text: str) -> dict[str, int]:
    """Parse sizes of dims: batch=8,sequence=128."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isdecimal():
            raise ValueError(f"expected DIM=N,..., found '{text}'")
        if name.strip() in sizes:
            raise ValueError(f"'{name.strip()}' is given twice in '{text}'")
        sizes[name.strip()] = int(size)
    return sizes


def kernel_and_schedule(text: str) -> tuple[str, str]:
    """Parse a kernel and the file of its schedule."""
    return _pair(text, "KERNEL=FILE")


def tuning_database(text: str) -> str:
    """Parse the file of a tuning database, which must exist: otherwise the option would have no effect."""
    if not os.path.isfile(text):
        raise ValueError(f"there is no file '{text}'; 'mirlo tune MODEL --database {text}' writes it")
    return text


def operator_and_rule(text: str) -> tuple[str, str]:
    """Parse an operator and the name of its rule, or `MEASURE`."""
    return MEASURE if text == MEASURE[0] else _pair(text, "OP=NAME or 'measure'")


def strategies_of(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str] | str | None:
    """Return the option `strategies` from the values of flags."""
    pairs = tuple(pairs)
    return MEASURE[0] if MEASURE in pairs else dict(pairs) or None


def _pair(text: str, expected: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"expected {expected}, found '{text}'")
    return name, value
