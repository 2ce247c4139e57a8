"""Reading the JSON header of a file that may be damaged or hostile: every field is checked as it is read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias, TypeGuard

from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import is_printable

_MAX_COUNT = 2**63 - 1
_MAX_RANK = 64
_MAX_THREADS = 4096
_MAX_ELEMENTS = 2**60

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | bool | None"
"""A value of a JSON file."""


class Fields:
    """A JSON object of a file, read field by field; the error of an invalid one names the file and the field."""

    def __init__(self, path: Path, place: str, value: Json, error: type[MirloError]) -> None:
        self.path, self.place, self.error = path, place, error
        if not isinstance(value, dict):
            raise self.fail(place, "an object", value)
        self._value = value

    def fail(self, place: str, expected: str, actual: object) -> MirloError:
        shown = ascii(actual)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return self._damaged(f"header field '{place}': expected {expected}, found {shown}")

    def _damaged(self, what: str) -> MirloError:
        return self.error(f"{self.path}: the file is damaged: {what}")

    def _place(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def _get(self, name: str, expected: str) -> Json:
        if name not in self._value:
            raise self._damaged(f"header field '{self._place(name)}' ({expected}) is missing")
        return self._value[name]

    def has(self, name: str) -> bool:
        """Return whether an optional field is present."""
        return name in self._value

    def text(self, name: str) -> str:
        value = self._get(name, "text")
        if not isinstance(value, str):
            raise self.fail(self._place(name), "text", value)
        return value

    @property
    def content(self) -> dict[str, Json]:
        """Return all fields, unchecked."""
        return self._value

    def name(self, name: str) -> str:
        """Return a string that is printable as it is."""
        value = self.text(name)
        if not is_printable(value):
            raise self.fail(self._place(name), "printable text", value)
        return value

    def json_object(self, name: str) -> str:
        """Return a string that contains a JSON object."""
        value = self.text(name)
        try:
            is_object = isinstance(json.loads(value), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise self.fail(self._place(name), "a JSON object as text", value)
        return value

    def threads(self, name: str) -> int:
        """Return a plausible number of threads."""
        value = self.count(name)
        if not 1 <= value <= _MAX_THREADS:
            raise self.fail(self._place(name), f"1 to {_MAX_THREADS} threads", value)
        return value

    def count(self, name: str) -> int:
        value = self._get(name, "a count")
        if not _is_count(value):
            raise self.fail(self._place(name), "a count (0 or more)", value)
        return value

    def dtype(self, name: str) -> str:
        value = self.text(name)
        if value not in ELEMENT_TYPES:
            raise self.fail(self._place(name), f"one of {', '.join(ELEMENT_TYPES)}", value)
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        value = self._get(name, "a shape")
        if not _are_counts(value):
            raise self.fail(self._place(name), "a list of dims (0 or more)", value)
        if len(value) > _MAX_RANK or math.prod(dim for dim in value if dim) > _MAX_ELEMENTS:
            raise self.fail(self._place(name), f"at most {_MAX_RANK} dims and 2^60 elements", value)
        return tuple(value)

    def symbolic_shape(self, name: str) -> tuple[int | str, ...]:
        value = self._get(name, "a shape")
        dims = [dim for dim in value if isinstance(dim, str) or _is_count(dim)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(dims) != len(value):
            raise self.fail(self._place(name), "a list of dims (numbers or symbols)", value)
        known = math.prod(dim for dim in dims if isinstance(dim, int) and dim)
        if len(dims) > _MAX_RANK or known > _MAX_ELEMENTS:
            raise self.fail(self._place(name), f"at most {_MAX_RANK} dims and 2^60 elements", value)
        if not all(isinstance(dim, int) or (dim and is_printable(dim)) for dim in dims):
            raise self.fail(self._place(name), "dims whose names are printable", value)
        return tuple(dims)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._get(name, "a list of texts")
        texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(texts) != len(value):
            raise self.fail(self._place(name), "a list of texts", value)
        return tuple(texts)

    def counts(self, name: str) -> tuple[int, ...]:
        value = self._get(name, "a list of counts")
        if not _are_counts(value):
            raise self.fail(self._place(name), "a list of counts (0 or more)", value)
        return tuple(value)

    def mapping(self, name: str) -> dict[str, Json]:
        value = self._get(name, "an object")
        if not isinstance(value, dict):
            raise self.fail(self._place(name), "an object", value)
        return value

    def flag(self, name: str) -> bool:
        """Return a field that is true or false."""
        value = self._get(name, "true or false")
        if not isinstance(value, bool):
            raise self.fail(self._place(name), "true or false", value)
        return value

    def object(self, name: str) -> Fields:
        """Return an object in this one, to be read field by field."""
        return Fields(self.path, self._place(name), self.mapping(name), self.error)

    def each(self, name: str) -> Iterator[Fields]:
        """Yield the objects of a list."""
        value = self._get(name, "a list")
        if not isinstance(value, list):
            raise self.fail(self._place(name), "a list", value)
        for index, item in enumerate(value):
            yield Fields(self.path, f"{self._place(name)}[{index}]", item, self.error)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT


def _are_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(map(_is_count, value))
