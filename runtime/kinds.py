"""Kinds of run-time values.

    f32[2, n]             a tensor; `f32` alone is one of any shape
    string[3]             a tensor of strings
    sequence(f32[n])      any number of tensors
    optional(string)      a value, or none
    map(string, f32)      scalars by key; keys are strings or i64

A kind is written like this in IR, in files and in messages.
"""

from __future__ import annotations

import re

from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.records import dataclass

STRING, SEQUENCE, OPTIONAL, MAP = "string", "sequence", "optional", "map"
KEYS = (STRING, "i64")
"""The types of the keys of a map."""
_CONTAINER = re.compile(rf"({SEQUENCE}|{OPTIONAL})\((.*)\)", re.DOTALL)
_MAP = re.compile(rf"{MAP}\((\w+), (\w+)\)")
_TENSOR = re.compile(r"(\w+)(?:\[(.*)\])?", re.DOTALL)
_DEEPEST = 8


@dataclass(frozen=True)
class Kind:
    """What a value is: `name` is an element type, "string", "sequence", "optional" or "map"."""

    name: str
    shape: tuple[int | str, ...] | None = None
    """The dims of a tensor, each an integer, a symbol or an expression of symbols as text; None if the rank is
    unknown."""
    element: Kind | None = None
    key: str | None = None
    """Of a map: the type of its keys."""

    @property
    def is_tensor(self) -> bool:
        """Return whether compiled code can take it: a numeric tensor of known rank."""
        return self.name in ELEMENT_TYPES and self.shape is not None

    def __str__(self) -> str:
        if self.element is not None:
            key = "" if self.key is None else f"{self.key}, "
            return f"{self.name}({key}{self.element})"
        return self.name if self.shape is None else f"{self.name}[{', '.join(map(str, self.shape))}]"


def sequence_of(element: Kind) -> Kind:
    return Kind(SEQUENCE, element=element)


def optional_of(element: Kind) -> Kind:
    return Kind(OPTIONAL, element=element)


def map_of(key: str, element: str) -> Kind:
    """Return the kind of a map from keys to scalars of an element type."""
    return Kind(MAP, element=Kind(element), key=key)


def parse_kind(text: str, depth: int = 0) -> Kind:
    """Parse a kind; raise ValueError if the text is none."""
    container = _CONTAINER.fullmatch(text)
    if container is not None:
        if depth >= _DEEPEST:
            raise ValueError(f"a kind is nested more than {_DEEPEST} deep: {text}")
        return Kind(container[1], element=parse_kind(container[2], depth + 1))
    mapping = _MAP.fullmatch(text)
    if mapping is not None and mapping[1] in KEYS and mapping[2] in (*ELEMENT_TYPES, STRING):
        return map_of(mapping[1], mapping[2])
    tensor = _TENSOR.fullmatch(text)
    if tensor is None or tensor[1] not in (*ELEMENT_TYPES, STRING):
        raise ValueError(f"'{text}' is not a kind of a value")
    if tensor[2] is None:
        return Kind(tensor[1])
    return Kind(tensor[1], tuple(int(dim) if dim.isdecimal() else dim for dim in _dims(tensor[2])))


def _dims(text: str) -> list[str]:
    """Split the dims of a shape at commas that are not inside parentheses."""
    dims, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            dims.append(text[start:i].strip())
            start = i + 1
    return [dim for dim in (*dims, text[start:].strip()) if dim]
