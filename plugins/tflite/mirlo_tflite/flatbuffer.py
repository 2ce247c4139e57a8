"""Tables of flatbuffers, in which models of TensorFlow Lite are stored; every access is in bounds or an error."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mirlo_tflite.errors import TosaImportError

Content = bytes | bytearray | memoryview
LARGEST = 1 << 31
"""Most bytes of a flatbuffer, whose offsets have 32 bits."""
_ALIGNMENT = 16


@dataclass(frozen=True)
class Table:
    """A table: fields by their numbers in the schema, each of which may be absent."""

    content: Content
    start: int

    @classmethod
    def root(cls, content: Content) -> Table:
        """Return the root table of a file."""
        return cls(content, unpack(content, "<I", 0))

    @property
    def vtable(self) -> int:
        """Return the position of the field offsets."""
        return self.start - unpack(self.content, "<i", self.start)

    def position(self, field: int) -> int | None:
        """Return the position of a field, or None if it is absent."""
        slot = 4 + 2 * field
        if slot + 2 > unpack(self.content, "<H", self.vtable):
            return None
        offset = unpack(self.content, "<H", self.vtable + slot)
        return self.start + offset if offset else None

    def number(self, field: int, form: str, default: int = 0) -> int:
        """Return a number in a form of `struct`."""
        position = self.position(field)
        return default if position is None else unpack(self.content, form, position)

    def table(self, field: int) -> Table | None:
        """Return a table that a field refers to."""
        position = self.position(field)
        return None if position is None else Table(self.content, follow(self.content, position))

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables."""
        position = self.position(field)
        if position is None:
            return []
        start = follow(self.content, position)
        offsets = array(self.content, "<u4", start + 4, unpack(self.content, "<I", start))
        return [Table(self.content, start + 4 + 4 * index + int(offset)) for index, offset in enumerate(offsets)]

    def vector(self, field: int, dtype: str) -> np.ndarray:
        """Return a vector of numbers, as a view of the content."""
        position = self.position(field)
        if position is None:
            return np.zeros(0, dtype)
        start = follow(self.content, position)
        return array(self.content, dtype, start + 4, unpack(self.content, "<I", start))

    def text(self, field: int) -> str:
        """Return a string."""
        return self.vector(field, "u1").tobytes().decode("utf-8", "replace")


def clear_field(written: bytearray, table: Table, field: int) -> None:
    """Remove a field from a table in a copy of the content, by giving the table its own offsets."""
    align(written, 4)
    place, size = len(written), unpack(written, "<H", table.vtable)
    offsets = bytearray(written[table.vtable : table.vtable + size])
    if 4 + 2 * field < size:
        struct.pack_into("<H", offsets, 4 + 2 * field, 0)
    written.extend(offsets)
    struct.pack_into("<i", written, table.start, table.start - place)


def replace_vector(written: bytearray, position: int, numbers: np.ndarray) -> None:
    """Append a vector to a copy of the content, and make a field refer to it."""
    align(written, _ALIGNMENT, 4)
    place = len(written)
    if place + numbers.nbytes >= LARGEST:
        raise ValueError(f"what is to be converted has more than {LARGEST} bytes")
    written.extend(struct.pack("<I", len(numbers)))
    written.extend(numbers.tobytes())
    struct.pack_into("<I", written, position, place - position)


def align(written: bytearray, size: int, before: int = 0) -> None:
    """Append bytes until the data after a header is aligned."""
    written.extend(bytes(-(len(written) + before) % size))


def follow(content: Content, position: int) -> int:
    """Return the target of an offset."""
    return position + unpack(content, "<I", position)


def unpack(content: Content, form: str, position: int) -> int:
    """Return a number; raise ValueError if it is outside of the content."""
    if position < 0 or position + struct.calcsize(form) > len(content):
        raise ValueError(f"an offset leads to byte {position} of {len(content)}")
    return int(struct.unpack_from(form, content, position)[0])


def array(content: Content, dtype: str, position: int, count: int) -> npt.NDArray[Any]:
    """Return numbers as a view; raise ValueError if they are outside of the content."""
    size = count * np.dtype(dtype).itemsize
    if position < 0 or position + size > len(content):
        raise ValueError(f"a vector ends at byte {position + size} of {len(content)}")
    return np.frombuffer(content, dtype, count, position)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Convert errors of damaged content to errors that name the file."""
    try:
        yield
    except TosaImportError:
        raise
    except ValueError as error:
        raise TosaImportError(f"{name} is damaged: {error}") from None
