"""The layout that parameter files and compiled models share: prefix, JSON header, code, aligned tensors.

    0   8  magic  93 'MIRLO' 0D 0A
    8   4  kind   'PRMS' (parameters) or 'EXEC' (a compiled model)
    12  4  version
    16  8  bytes of the header
    24  8  bytes of the code
    32  8  bytes of the file
    40  16 BLAKE2b of bytes 0 to 40, the header and the code
    56  8  zero
    64     header (UTF-8 JSON), then code, each padded to 64 bytes, then the tensors at the offsets
           that the header's list `tensors` gives, counted from the first byte after the code's padding

Numbers are little-endian. The tensors are outside the checksum: they are mapped, and read when they are used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypedDict

import numpy as np

from mirlo.runtime import system
from mirlo.runtime.dtypes import ELEMENT_TYPES, numpy_dtype
from mirlo.runtime.errors import MirloError, OutOfMemoryError
from mirlo.runtime.fields import Fields
from mirlo.runtime.files import open_regular, replacing
from mirlo.runtime.memory import LARGE, require_available
from mirlo.runtime.records import dataclass

ALIGNMENT = 64
READABLE = 64
"""Bytes that can be read of a buffer without elements: kernels load what is the same in all iterations before a loop,
also where there are no iterations."""
_MAGIC = b"\x93MIRLO\r\n"
_PREFIX = struct.Struct("<8s4sIQQQ")
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class FileKind:
    """The magic and the names in error messages of one kind of file with this layout."""

    tag: bytes
    noun: str
    version: int
    error: type[MirloError]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Byte offset from the start of the file."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ELEMENT_TYPES[self.dtype].bytes


def release(array: np.ndarray) -> None:
    """Release the pages of an array that is mapped from a file; they are read again when they are used."""
    span = sum((dim - 1) * stride for dim, stride in zip(array.shape, array.strides, strict=True)) + array.itemsize
    if not array.size or min(array.strides, default=0) < 0:
        return
    mapping = mapping_of(array)
    if mapping is not None:
        start = array.ctypes.data - np.frombuffer(mapping, np.uint8, 1).ctypes.data
        system.release_pages(mapping, start, start + span)


def mapping_of(array: np.ndarray) -> system.FileMapping | None:
    """Return the mapped file that an array is a view of, None for an array in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, system.FileMapping) else None


class MappedFile:
    """A file mapped into memory for reading; its arrays keep the mapping alive."""

    def __init__(self, path: str | os.PathLike[str], error: type[MirloError]) -> None:
        self.path = Path(path)
        try:
            with open_regular(self.path) as file:
                self.size = os.fstat(file.fileno()).st_size
                self._bytes = system.map_file(file, self.size)
        except (OSError, ValueError) as failure:
            reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else str(failure)
            raise error(f"{self.path}: cannot read the file: {reason}") from None

    @property
    def mapping(self) -> system.FileMapping | None:
        """Return the bytes of the file, None for an empty one."""
        return self._bytes if isinstance(self._bytes, system.FileMapping) else None

    def read(self, start: int, stop: int) -> bytes:
        return bytes(self._bytes[start:stop])

    def array(self, offset: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return a read-only view of a range that was checked to be within the file."""
        nbytes = math.prod(shape) * ELEMENT_TYPES[dtype].bytes
        flat: np.ndarray = np.frombuffer(self._bytes, np.uint8, nbytes, offset) if nbytes else np.empty(0, np.uint8)
        array = flat.view(numpy_dtype(dtype)).reshape(shape)
        array.flags.writeable = False
        return array


@dataclass(frozen=True)
class OpenedFile:
    """A file whose prefix, header and checksum were verified."""

    file: MappedFile
    header: Fields
    code: bytes
    tensors: tuple[StoredTensor, ...]
    version: int


def aligned(offset: int) -> int:
    """Round up to the next multiple of the alignment."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def empty_aligned(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return a new uninitialized array aligned to a cache line; raise `OutOfMemoryError` if it does not fit."""
    count = 1
    for dim in shape:
        count *= dim
    nbytes = count * dtype.itemsize
    if nbytes >= LARGE:
        require_available(nbytes)
    try:
        buffer = np.empty((nbytes or READABLE) + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise OutOfMemoryError(f"{nbytes} bytes are needed at once, more than there is") from None
    start = -buffer.__array_interface__["data"][0] % ALIGNMENT
    return buffer[start : start + nbytes].view(dtype).reshape(shape)


_EMPTY = empty_aligned(np.dtype(np.uint8), (READABLE,))
_EMPTY_ADDRESS: int = _EMPTY.__array_interface__["data"][0]
"""What stands for any array without elements."""


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's elements; where it has none, one that may be read."""
    if not array.size:
        return _EMPTY_ADDRESS
    # Attributes of a subclass are not trusted.
    return int(np.asarray(array).__array_interface__["data"][0])


class _TensorRow(TypedDict):
    name: str
    dtype: str
    shape: list[int]
    offset: int


def write_file(
    path: str | os.PathLike[str],
    kind: FileKind,
    header: Mapping[str, object],
    code: bytes,
    tensors: Sequence[tuple[str, str, tuple[int, ...]]],
    read: Callable[[str], np.ndarray],
) -> None:
    """Write a file atomically: a reader sees the old file or the complete new one.

    `tensors` are names, element types and shapes. `read` returns the array of a name, which is written before the next
    one is read.
    """
    target = Path(path)
    rows, end = _place_tensors(tensors)
    try:
        text = json.dumps({**header, "tensors": rows}, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as failure:
        raise kind.error(f"{target}: the header of the {kind.noun} cannot be written as JSON: {failure}") from None
    data_start = aligned(aligned(ALIGNMENT + len(text)) + len(code))
    prefix = _PREFIX.pack(_MAGIC, kind.tag, kind.version, len(text), len(code), data_start + end)
    try:
        with replacing(target) as file:
            file.write(prefix + _digest(prefix, text, code))
            _pad_to(file, ALIGNMENT)
            file.write(text)
            _pad_to(file, aligned(ALIGNMENT + len(text)))
            file.write(code)
            for row in rows:
                _pad_to(file, data_start + row["offset"])
                array = read(row["name"])
                file.write(array.reshape(-1).view(np.uint8).data)
                release(array)
            _pad_to(file, data_start + end)
    except OSError as failure:
        raise kind.error(f"{target}: cannot write the {kind.noun}: {failure.strerror or failure}") from None


def read_file(path: str | os.PathLike[str], kind: FileKind) -> OpenedFile:
    """Map a file and check its prefix, its checksum and the offset of every tensor."""
    file = MappedFile(path, kind.error)
    version, header_bytes, code_bytes = _check_prefix(file, kind)
    code_start = aligned(ALIGNMENT + header_bytes)
    data_start = aligned(code_start + code_bytes)
    text = file.read(ALIGNMENT, ALIGNMENT + header_bytes)
    code = file.read(code_start, code_start + code_bytes)
    stored = file.read(_PREFIX.size, _PREFIX.size + _DIGEST_BYTES)
    if _digest(file.read(0, _PREFIX.size), text, code) != stored:
        raise kind.error(f"{file.path}: the file is damaged: its checksum does not match; save the {kind.noun} again")
    try:
        value = json.loads(text)
        if b"\\u" in text:  # JSON can encode lone surrogates; a message with one could not be printed
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as failure:
        raise kind.error(f"{file.path}: the file is damaged: its header is not JSON: {failure}") from None
    header = Fields(file.path, "", value, kind.error)
    return OpenedFile(file, header, code, _stored_tensors(header, data_start, file.size), version)


def has_magic(path: str | os.PathLike[str], kind: FileKind) -> bool:
    """Return whether a readable file starts with the magic of this kind."""
    try:
        with open_regular(path) as file:
            return file.read(len(_MAGIC) + len(kind.tag)) == _MAGIC + kind.tag
    except OSError:
        return False


def _place_tensors(tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> tuple[list[_TensorRow], int]:
    rows: list[_TensorRow] = []
    end = 0
    for name, dtype, shape in tensors:
        offset = aligned(end)
        rows.append({"name": name, "dtype": dtype, "shape": list(shape), "offset": offset})
        end = offset + math.prod(shape) * ELEMENT_TYPES[dtype].bytes
    return rows, end


def _check_prefix(file: MappedFile, kind: FileKind) -> tuple[int, int, int]:
    """Return the version and the sizes of header and code after the checks that need only the prefix."""
    prefix = file.read(0, _PREFIX.size)
    if not prefix.startswith(_MAGIC[: len(prefix)]) or not prefix:
        raise kind.error(f"{file.path}: not a {kind.noun}: it does not start with Mirlo's signature")
    if file.size < ALIGNMENT:
        raise kind.error(f"{file.path}: the file is truncated: {file.size} bytes, at least {ALIGNMENT} are expected")
    _, tag, version, header_bytes, code_bytes, file_bytes = _PREFIX.unpack(prefix)
    if tag != kind.tag:
        raise kind.error(f"{file.path}: not a {kind.noun}: it is a Mirlo file of kind {tag!r}, expected {kind.tag!r}")
    if version > kind.version:
        raise kind.error(
            f"{file.path}: written in format {version} by a newer Mirlo; this one reads formats up to {kind.version}: "
            f"upgrade mirlo, or save the {kind.noun} again with this version"
        )
    if version == 0:
        raise kind.error(f"{file.path}: the file is damaged: format version 0 does not exist")
    if file.size < file_bytes:
        raise kind.error(f"{file.path}: the file is truncated: {file.size} bytes of {file_bytes}; copy it again")
    data_start = aligned(aligned(ALIGNMENT + header_bytes) + code_bytes)
    if file.size != file_bytes or data_start > file_bytes:
        raise kind.error(f"{file.path}: the file is damaged: the sizes in its prefix do not fit its {file.size} bytes")
    return version, header_bytes, code_bytes


def _stored_tensors(header: Fields, data_start: int, file_bytes: int) -> tuple[StoredTensor, ...]:
    tensors: dict[str, StoredTensor] = {}
    for row in header.each("tensors"):
        offset = row.count("offset")
        tensor = StoredTensor(row.name("name"), row.dtype("dtype"), row.shape("shape"), data_start + offset)
        if tensor.offset + tensor.nbytes > file_bytes:
            raise row.fail(f"{row.place}.offset", f"{tensor.nbytes} bytes of '{tensor.name}' inside the file", offset)
        if offset % ALIGNMENT:
            raise row.fail(f"{row.place}.offset", f"a multiple of {ALIGNMENT}", offset)
        if tensor.name in tensors:
            raise row.fail(f"{row.place}.name", "names that occur once", tensor.name)
        tensors[tensor.name] = tensor
    return tuple(tensors.values())


def _digest(prefix: bytes, text: bytes, code: bytes) -> bytes:
    digest = hashlib.blake2b(prefix, digest_size=_DIGEST_BYTES)
    digest.update(text)
    digest.update(code)
    return digest.digest()


def _pad_to(file: BinaryIO, offset: int) -> None:
    file.write(b"\0" * (offset - file.tell()))
