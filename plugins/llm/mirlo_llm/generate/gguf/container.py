"""The format GGUF: metadata and tensors of a mapped file; every value is checked as it is read."""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from mirlo_llm.generate.checkpoints.safetensors import MAX_DIM, map_bytes
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.blocks import OTHER_TYPES, TYPES, BlockType
from mirlo_llm.generate.json_file import JsonObject

if TYPE_CHECKING:
    from mirlo.extend.runtime import Json

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_METADATA = 64 << 20
"""Most bytes before the data of the tensors; vocabularies of 256,000 tokens take 12 MB."""
MAX_RANK = 4
MAX_ALIGNMENT = 1 << 20
ALIGNMENT = "general.alignment"
_ARRAY, _STRING = 9, 8
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
"""Scalar types of metadata as numpy types, by their numbers."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a file."""

    kind: BlockType
    shape: tuple[int, ...]
    """The last dim is contiguous."""
    data: np.ndarray
    """The bytes of each row, [rows, bytes]: a view of the file."""


@dataclass(frozen=True)
class GgufFile:
    """The content of a file."""

    metadata: JsonObject
    """Metadata; arrays are numpy arrays, or lists of texts."""
    tensors: dict[str, GgufTensor]


def is_gguf(path: Path) -> bool:
    """Return whether a path is a regular file with the magic bytes of GGUF."""
    try:
        return path.is_file() and bytes(map_bytes(path)[:4]) == MAGIC
    except (OSError, ModelFolderError):
        return False


_known_files: ContextVar[dict[Hashable, GgufFile] | None] = ContextVar("known_files", default=None)
"""The files that were read in a block of `files_read_once`, by what identifies their content."""


@contextmanager
def files_read_once() -> Iterator[None]:
    """Read each file once in the block, however often it is asked for."""
    token = _known_files.set({})
    try:
        yield
    finally:
        _known_files.reset(token)


def read_gguf(path: Path) -> GgufFile:
    """Return the metadata and the tensors of a file, which are views of it."""
    content, known = map_bytes(path), _known_files.get()
    if known is None:
        return parse_gguf(path, content)
    status = path.stat()
    key = path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    if key not in known:
        known[key] = parse_gguf(path, content)
    return known[key]


def parse_gguf(path: Path, content: np.ndarray) -> GgufFile:
    """Parse the content of a file."""
    cursor = _Cursor(path, content)
    if cursor.take(4, "the signature") != MAGIC:
        raise ModelFolderError(f"{path}: the file is no GGUF file: it does not begin with 'GGUF'")
    version = cursor.number("<u4", "the version")
    if version not in VERSIONS:
        big = " (of a big-endian machine)" if version >> 24 in VERSIONS else ""
        raise ModelFolderError(f"{path}: version {version}{big} of GGUF is not read: convert the file to version 3")
    tensor_count, count = (cursor.number("<u8", f"the number of {what}") for what in ("tensors", "keys"))
    metadata: dict[str, object] = {}
    for i in range(count):
        key = cursor.text(f"the name of key {i}", "strict")
        if key in metadata:
            raise ModelFolderError(f"{path}: key {_shown(key)} is there twice")
        metadata[key] = _value(cursor, key)
    root = JsonObject(path, "", cast("Json", metadata))
    alignment = root.count(ALIGNMENT, 32, least=1, most=MAX_ALIGNMENT)
    if alignment % 8 or alignment & (alignment - 1):
        raise root.fail(ALIGNMENT, "a power of two from 8", alignment)
    entries = [_entry(cursor, i) for i in range(tensor_count)]
    start = -(-cursor.at // alignment) * alignment
    return GgufFile(root, dict(_tensors(path, entries, content[start:], alignment)))


@dataclass(frozen=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


class _Cursor:
    """Reads values from the beginning of a file."""

    def __init__(self, path: Path, content: np.ndarray) -> None:
        self.path, self.at = path, 0
        self._bytes = content[:MAX_METADATA].data
        self._is_cut = len(content) > MAX_METADATA

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        end = self.at + count
        if end > len(self._bytes):
            why = f"metadata of more than {MAX_METADATA >> 20} MiB are not read" if self._is_cut else "the file ends"
            raise ModelFolderError(f"{self.path}: {what} takes {count} bytes at {self.at}: {why}")
        taken = bytes(self._bytes[self.at : end])
        self.at = end
        return taken

    def number(self, kind: str, what: str) -> int:
        """Return an unsigned integer of a type of numpy."""
        return int.from_bytes(self.take(int(kind[-1]), what), "little")

    def text(self, what: str, errors: str = "replace") -> str:
        """Return a text."""
        content = self.take(self.number("<u8", f"the length of {what}"), what)
        try:
            return content.decode("utf-8", errors)
        except UnicodeDecodeError:
            raise ModelFolderError(f"{self.path}: {what} is no UTF-8 text: {content[:40]!a}") from None

    def texts(self, count: int, what: str) -> list[str]:
        """Return a list of texts."""
        if count > (len(self._bytes) - self.at) // 8:  # the length of each
            self.take(8 * count, what)
        texts, content, at = list[str](), self._bytes, self.at
        length = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > len(content):
                break
            end = at + 8 + length(content, at)[0]
            if end > len(content):
                break
            texts.append(str(content[at + 8 : end], "utf-8", "replace"))
            at = end
        self.at = at
        while len(texts) < count:  # names what is cut off
            texts.append(self.text(f"element {len(texts)} of {what}"))
        return texts


def _value(cursor: _Cursor, key: str) -> object:
    what = f"key {_shown(key)}"
    kind = cursor.number("<u4", f"the type of {what}")
    if kind == _STRING:
        return cursor.text(what)
    if kind in _NUMBERS:
        return _numbers(cursor, what, kind, 1)[0].item()
    if kind != _ARRAY:
        raise ModelFolderError(f"{cursor.path}: {what}: type {kind} is unknown")
    kind, count = (cursor.number(each, f"the type of {what}") for each in ("<u4", "<u8"))
    if kind == _STRING:
        return cursor.texts(count, what)
    if kind not in _NUMBERS:
        raise ModelFolderError(
            f"{cursor.path}: {what}: expected an array of texts or numbers, found "
            f"{'one of arrays' if kind == _ARRAY else f'elements of type {kind}'}"
        )
    return _numbers(cursor, what, kind, count)


def _numbers(cursor: _Cursor, what: str, kind: int, count: int) -> np.ndarray:
    dtype = np.dtype(_NUMBERS[kind])
    content = cursor.take(dtype.itemsize * count, what)
    array = np.frombuffer(content, dtype)
    if dtype == np.bool_ and (np.frombuffer(content, np.uint8) > 1).any():
        raise ModelFolderError(f"{cursor.path}: {what}: expected 0 or 1 for a truth value, found {max(content)}")
    return array


def _entry(cursor: _Cursor, index: int) -> _Entry:
    name = cursor.text(f"the name of tensor {index}", "strict")
    what = f"tensor {_shown(name)}"
    rank = cursor.number("<u4", f"the number of dims of {what}")
    if not 1 <= rank <= MAX_RANK:
        raise ModelFolderError(f"{cursor.path}: {what}: expected 1 to {MAX_RANK} dims, found {rank}")
    shape = tuple(cursor.number("<u8", f"a dim of {what}") for _ in range(rank))[::-1]
    if not all(1 <= dim <= MAX_DIM for dim in shape):
        raise ModelFolderError(f"{cursor.path}: {what}: expected dims from 1 to {MAX_DIM}, found {list(shape)}")
    return _Entry(name, shape, *(cursor.number(kind, f"an entry of {what}") for kind in ("<u4", "<u8")))


def _tensors(path: Path, entries: list[_Entry], data: np.ndarray, alignment: int) -> Iterator[tuple[str, GgufTensor]]:
    seen, end, before = set[str](), 0, ""
    for entry in sorted(entries, key=lambda each: each.offset):
        what = f"{path}: tensor {_shown(entry.name)}"
        if entry.name in seen:
            raise ModelFolderError(f"{what} is there twice")
        kind = _block_type(what, entry.kind)
        if entry.shape[-1] % kind.elements:
            expected = f"rows of {kind.name} are whole blocks of {kind.elements} elements"
            raise ModelFolderError(f"{what}: {expected}, found {list(entry.shape)}")
        rows, row_bytes = math.prod(entry.shape[:-1]), entry.shape[-1] // kind.elements * kind.nbytes
        if entry.offset % alignment:
            expected = f"expected an offset that is a multiple of {alignment}"
            raise ModelFolderError(f"{what}: {expected}, found {entry.offset}")
        if entry.offset < end:
            raise ModelFolderError(f"{what} begins at {entry.offset}, within tensor {_shown(before)}")
        seen.add(entry.name)
        before, end = entry.name, entry.offset + rows * row_bytes
        if end > len(data):
            extent = f"bytes {entry.offset} to {end} of {len(data)}: the file is cut off"
            raise ModelFolderError(f"{what}, {kind.name}{list(entry.shape)}, takes {extent}")
        yield entry.name, GgufTensor(kind, entry.shape, data[entry.offset : end].reshape(rows, row_bytes))


def _block_type(what: str, code: int) -> BlockType:
    if code not in TYPES:
        name = OTHER_TYPES.get(code, "unknown")
        known = ", ".join(kind.name for kind in TYPES.values())
        raise ModelFolderError(f"{what}: type {code} ({name}) is not read, only {known}: quantize to one of them")
    return TYPES[code]


def _shown(name: str) -> str:
    return f"{name[:80]!a}"
