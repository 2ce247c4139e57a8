"""Reading JSON files of a model's folder: every value is checked as it is read, errors name file and key."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from mirlo.extend.runtime import open_regular
from mirlo_llm.generate.errors import ModelFolderError

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

MAX_BYTES = 64 << 20
"""Largest JSON file that is read; those of tokenizers have 5 to 20 MB."""


def is_unsigned(value: object, bits: int) -> TypeGuard[int]:
    """Return whether a value is a nonnegative integer of at most this many bits."""
    return is_count(value, 0, (1 << bits) - 1)


def is_count(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return whether a value is an integer, of Python or numpy, in a range; bools are not."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite float, or an integer of at most 64 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else -(1 << 63) <= value < 1 << 64


class JsonObject:
    """An object of a JSON file, read key by key."""

    def __init__(self, path: Path, key: str, value: Json, read: set[str] | None = None) -> None:
        """Store an object; `read` collects the keys that are read."""
        self.path, self.key = path, key
        self.read = set() if read is None else read
        """The names of the keys that were read, here and in the objects in this one."""
        if not isinstance(value, dict):
            raise self.fail("", "an object", value)
        self._value: dict[str, Json] = value

    def fail(self, key: str, expected: str, actual: object) -> ModelFolderError:
        """Return the error for an unexpected value."""
        shown = ascii(actual)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return ModelFolderError(f"{self.path}: '{self._name(key)}': expected {expected}, found {shown}")

    def refuse(self, key: str, what: str) -> ModelFolderError:
        """Return the error for an unsupported value."""
        return ModelFolderError(f"{self.path}: '{self._name(key)}': {what}")

    def _name(self, key: str) -> str:
        return ".".join(filter(None, (self.key, key)))

    def has(self, key: str) -> bool:
        """Return whether a key has a value other than null."""
        return self.value(key) is not None

    @property
    def content(self) -> dict[str, Json]:
        """Return all values by key, without recording that they were read."""
        return self._value

    def __iter__(self) -> Iterator[str]:
        """Yield the keys that have values other than null."""
        return (key for key, value in self._value.items() if value is not None)

    def _required(self, key: str, expected: str) -> Json:
        if not self.has(key):
            raise ModelFolderError(f"{self.path}: '{self._name(key)}' ({expected}) is missing")
        return self._value[key]

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text."""
        if default is not None and not self.has(key):
            return default
        value = self._required(key, "text")
        if not isinstance(value, str):
            raise self.fail(key, "text", value)
        return value

    def count(self, key: str, default: int | None = None, least: int = 0, most: int = 1 << 40) -> int:
        """Return an integer within bounds."""
        if default is not None and not self.has(key):
            return default
        value = self._required(key, "an integer")
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.fail(key, f"an integer from {least} to {most}", value)
        return value

    def number(self, key: str, default: float) -> float:
        """Return a finite number."""
        if not self.has(key):
            return default
        value = self.value(key)
        if not is_number(value):
            raise self.fail(key, "a finite number", value)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        if not self.has(key):
            return default
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.fail(key, "true or false", value)
        return value

    def tokens(self, key: str) -> tuple[int, ...]:
        """Return a token or a list of tokens; none if the key is missing, or -1, which some exporters write."""
        if not self.has(key) or self._value[key] == -1:
            return ()
        value = self._value[key]
        listed = value if isinstance(value, list) else [value]
        tokens = [token for token in listed if is_unsigned(token, 31)]
        if len(tokens) != len(listed):
            raise self.fail(key, "a token or a list of tokens", value)
        return tuple(tokens)

    def object(self, key: str) -> JsonObject:
        """Return an object in this one; an empty one if it is missing."""
        return JsonObject(self.path, self._name(key), self._value[key] if self.has(key) else {}, self.read)

    def value(self, key: str) -> Json:
        """Return a value of any type, unchecked; None if it is missing."""
        self.read.add(self._name(key))
        return self._value.get(key)


class RenamedObject(JsonObject):
    """An object whose keys are renamed; errors contain the keys of the file."""

    def __init__(
        self,
        path: Path,
        names: Mapping[str, str],
        value: dict[str, Json],
        key: str = "",
        read: set[str] | None = None,
    ) -> None:
        """Store an object with new keys; `names` maps these to the file's, `object.key` for nested objects."""
        self._names = names
        super().__init__(path, key, value, read)

    def _name(self, key: str) -> str:
        return self._names.get(key) or super()._name(key)

    def object(self, key: str) -> JsonObject:
        """Return an object in this one; an empty one if it is missing."""
        inner, prefix = super().object(key), f"{key}."
        names = {name.removeprefix(prefix): place for name, place in self._names.items() if name.startswith(prefix)}
        return RenamedObject(self.path, names, inner.content, inner.key, self.read)


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of limited size."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size  # `read` allocates what it is asked for, however small the file
            if size > most:
                raise ModelFolderError(f"{path}: the file has more than {most >> 20} MiB")
            return file.read(size)
    except OSError as error:
        raise ModelFolderError(f"{path}: {error.strerror or error}") from None


def read_json(path: Path) -> JsonObject:
    """Return the object in a JSON file."""
    data = read_json_value(path)
    if not isinstance(data, dict):
        raise ModelFolderError(f"{path}: expected a JSON object, found a {type(data).__name__}")
    return JsonObject(path, "", data)


def read_json_value(path: Path) -> Json:
    """Return the value in a JSON file, unchecked."""
    try:
        value: Json = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFolderError):
            raise
        raise ModelFolderError(f"{path}: not a JSON file: {error}") from None
    return value
