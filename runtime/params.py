"""The parameter store: the weights of a model by name, each in memory, or mapped from its file, once."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from mirlo.runtime.callbacks import Expected, checked, is_foreign
from mirlo.runtime.container import (
    ALIGNMENT,
    FileKind,
    MappedFile,
    OpenedFile,
    empty_aligned,
    has_magic,
    mapping_of,
    read_file,
    release,
    write_file,
)
from mirlo.runtime.dtypes import ELEMENT_TYPES, element_type_of, numpy_dtype
from mirlo.runtime.errors import MirloError, OutOfMemoryError, ParameterError, nearest
from mirlo.runtime.files import resolved
from mirlo.runtime.huge_pages import PAGE, empty_mapped, empty_together
from mirlo.runtime.locks import make_lock
from mirlo.runtime.records import dataclass
from mirlo.runtime.system import FileMapping

PARAMETER_FILE = FileKind(b"PRMS", "parameter file", version=1, error=ParameterError)

Reader = Callable[[Path, "ParameterStore"], None]
_READERS: dict[str, Reader] = {}


def register_reader(suffix: str, reader: Reader) -> None:
    """Register a reader for files with this suffix (such as `.onnx`).

    `ParameterStore.open` calls `reader(path, store)`. The reader adds the tensors of the file with `add` or
    `add_range`, passing `source=path`, and raises `ParameterError` for a file that it cannot read.
    """
    if not suffix.startswith(".") or suffix != suffix.lower():
        raise ValueError(f"a reader's suffix is a dot and lower-case letters, such as '.onnx'; found '{suffix}'")
    _READERS[suffix] = reader


ColumnReader = Callable[[int], Iterator[np.ndarray]]
"""Yields the ranges of this many columns of an array, along its last dim, each valid until the next one."""


class _DeferredArray:
    """An array that is computed on first use."""

    def __init__(
        self,
        make: Callable[[], np.ndarray],
        loose: np.ndarray | None,
        fill: Callable[[np.ndarray], None] | None,
        columns: ColumnReader | None = None,
    ):
        self._make: Callable[[], np.ndarray] | None = make
        self._fill = fill
        self._loose = loose
        self._columns = columns
        self._array: np.ndarray | None = None
        self._lock = make_lock()

    @property
    def is_pending(self) -> bool:
        """Return whether the array is not computed yet."""
        return self._array is None

    def array(self) -> np.ndarray:
        with self._lock:
            if self._make is not None:
                source = self._make()
                self._array = np.ascontiguousarray(source).view()
                self._array.flags.writeable = False
                self._make = self._loose = self._fill = self._columns = None  # release the source
                if not np.may_share_memory(source, self._array):
                    release(source)
            assert self._array is not None
            return self._array

    def read(self, scratch: _ScratchMemory, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return the array; one that is pending stays so, and is in scratch memory if it can be written there."""
        with self._lock:
            if self._fill is not None:
                array = scratch.array(dtype, shape)
                self._fill(array)
                return array
            if self._make is not None:
                return np.ascontiguousarray(self._make())
        return self.array()

    def write(self, to: np.ndarray) -> None:
        """Write the elements to an array, which holds them from now on."""
        if self._fill is None:
            array = self.array()
            to[...] = array
            release(array)
        with self._lock:
            if self._fill is not None:
                self._fill(to)
            to.flags.writeable = False
            self._array = to.view()
            self._make = self._loose = self._fill = self._columns = None

    def loose(self) -> np.ndarray:
        """Return the same elements, possibly not contiguous."""
        kept = self._loose
        return self.array() if kept is None else kept

    @property
    def has_columns(self) -> bool:
        """Return whether columns of a pending array are computed without the others."""
        return self._columns is not None

    def columns(self, width: int) -> Iterator[np.ndarray]:
        """Yield ranges of this many columns, in order; an array that is pending stays so if they are computed alone."""
        compute = self._columns
        if compute is not None:
            yield from compute(width)
            return
        array = self.loose()
        for start in range(0, array.shape[-1], width):
            yield array[..., start : start + width]

    def slice(self, position: int) -> np.ndarray:
        """Return a slice along the first dim."""
        result: np.ndarray = self.loose()[position]
        return result


class _StackedArray(_DeferredArray):
    """Arrays one after the other along a new first dim, copied when all of them are needed."""

    def __init__(self, rows: Sequence[np.ndarray]) -> None:
        self._rows: tuple[np.ndarray, ...] = tuple(rows)

        def fill(to: np.ndarray) -> None:
            for row, target in zip(rows, to, strict=True):
                target[...] = row
                release(row)

        super().__init__(lambda: np.stack(rows), None, fill)

    def slice(self, position: int) -> np.ndarray:
        return self._rows[position] if self.is_pending else self.array()[position]


class _ScratchMemory:
    """Memory of one array after the other: a page that was used before takes no time of the system."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def array(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of a type, in place of the last one."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > self._memory.nbytes:
            self._memory = np.empty(0, np.uint8)  # both are never in memory
            self._memory = empty_mapped(nbytes)
        return self._memory[:nbytes].view(dtype).reshape(shape)


@dataclass(frozen=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    source: Path | None
    """The file that restores this parameter, under this name, when it is opened."""
    array: np.ndarray | None = None
    file: MappedFile | None = None
    offset: int = 0
    later: _DeferredArray | None = None
    is_held: bool = False
    """Whether the array is in memory in which it stays."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ELEMENT_TYPES[self.dtype].bytes

    @property
    def mapping(self) -> FileMapping | None:
        """Return the mapped file that the elements are read from."""
        if self.array is not None:
            return mapping_of(self.array)
        return None if self.file is None else self.file.mapping

    def view(self) -> np.ndarray:
        if self.array is not None:
            return self.array
        if self.later is not None:
            return self.later.array()
        assert self.file is not None
        return self.file.array(self.offset, self.dtype, self.shape)

    def loose(self) -> np.ndarray:
        return self.view() if self.later is None else self.later.loose()


def _deferred(dtype: str, shape: Sequence[int]) -> Expected:
    """Return the array that a function computes, of a type and shape."""
    size = math.prod(shape) * ELEMENT_TYPES[dtype].bytes
    return Expected(
        f"an array of {size} bytes, {list(shape)} of {dtype}",
        lambda value: isinstance(value, np.ndarray) and value.nbytes == size,
    )


def _checked_columns(columns: ColumnReader, dtype: str, shape: Sequence[int], owner: str) -> ColumnReader:
    """Return a user's reader of columns with a check of each range, one of Mirlo's unchanged."""
    if not is_foreign(columns):
        return columns
    start = checked(columns, Expected("an iterator", lambda value: isinstance(value, Iterator)), owner, MirloError)

    def read(width: int) -> Iterator[np.ndarray]:
        ranges = start(width)

        @functools.wraps(columns)
        def take() -> np.ndarray:
            return next(ranges)

        for first in range(0, shape[-1], width):
            kind = _deferred(dtype, [*shape[:-1], min(width, shape[-1] - first)])
            yield checked(take, kind, owner, MirloError)()

    return read


class ParameterStore:
    """Arrays that the IR refers to by name.

    Arrays are not copied: one passed to `add` must not be written afterwards, one that is stored in a file (`open`,
    `add_range`) is mapped, and its pages are read on use.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._counts: dict[str, int] = {}
        """The last number that was added to a name in use."""
        self._files: dict[Path, MappedFile] = {}
        self._mappings: dict[FileMapping, Path | None] = {}
        """Mapped files that arrays are read from, or computed from."""
        self.files: set[Path] = set()
        """Files that the model refers to besides its own, recorded by importers."""

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> tuple[str, ...]:
        """Return the names in the order in which they were added."""
        return tuple(self._entries)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all parameters, mapped or not."""
        return sum(entry.nbytes for entry in self._entries.values())

    def nbytes_of(self, names: Iterable[str]) -> int:
        """Return the bytes of some parameters, computed or not."""
        return sum(self._entry(name).nbytes for name in names)

    def get(self, name: str) -> np.ndarray:
        """Return a read-only view of the array with this name."""
        return self._entry(name).view()

    def spec(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return the element type and shape without reading the data."""
        entry = self._entry(name)
        return entry.dtype, entry.shape

    def source(self, name: str) -> Path | None:
        """Return the file that restores this parameter when it is opened; None if there is none."""
        return self._entry(name).source

    def add(self, name: str, array: np.ndarray, source: str | os.PathLike[str] | None = None) -> None:
        """Add an array under a name.

        It is copied only if it is not contiguous or has foreign byte order. `source` is the file from which `open`
        restores it. Adding the same content under the same name again changes nothing; other content is an error.
        """
        element = element_type_of(array.dtype)
        if element is None:
            raise _unknown_type(name, f"numpy type {array.dtype}")
        native = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C").view()
        native.flags.writeable = False
        self._insert(name, _Entry(element.name, native.shape, _absolute(source), array=native))

    def add_range(
        self,
        name: str,
        path: str | os.PathLike[str],
        offset: int,
        dtype: str,
        shape: Iterable[int],
        source: str | os.PathLike[str] | None = None,
    ) -> None:
        """Add a range of a file under a name: little-endian, row-major elements, mapped on use.

        `source` is the file to `open` for it, if that is not `path` (a model with external data).
        """
        dims = tuple(int(dim) for dim in shape)
        if dtype not in ELEMENT_TYPES:
            raise _unknown_type(name, f"'{dtype}'")
        file = self._file(path)
        entry = _Entry(dtype, dims, _absolute(source or path), file=file, offset=offset)
        if offset < 0 or min(dims, default=0) < 0 or offset + entry.nbytes > file.size:
            raise ParameterError(
                f"{file.path}: parameter '{name}' ({dtype}, shape {list(dims)}) takes bytes {offset} to "
                f"{offset + entry.nbytes}, the file has {file.size}: it is truncated, or not the file that was saved"
            )
        self._insert(name, entry)

    def _unused_name(self, base: str) -> str:
        """Return `base`, or `base_1`, `base_2`...: thousands of weights may have one base."""
        name = base
        while name in self._entries:
            self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}_{self._counts[base]}"
        return name

    def add_unique(self, base: str, array: np.ndarray) -> str:
        """Add an array under `base`, or `base_1`, `base_2`... if that is in use, and return the name."""
        name = self._unused_name(base)
        self.add(name, array)
        return name

    def add_deferred(
        self,
        base: str,
        dtype: str,
        shape: Sequence[int],
        make: Callable[[], np.ndarray],
        loose: np.ndarray | None = None,
        fill: Callable[[np.ndarray], None] | None = None,
        columns: ColumnReader | None = None,
    ) -> str:
        """Add an array as `add_unique` does that `make` computes on first use, or in `hold`.

        `fill`, if there is one, writes the elements to an array: they are in memory once then. `loose` already holds
        the same elements in another order than row-major; `reader` may return it instead. `columns` computes ranges of
        columns without the others, for `column_reader`.
        """
        name = self._unused_name(base)
        owner = f"parameter '{name}'"
        compute = checked(make, _deferred(dtype, shape), owner, MirloError)
        columns = None if columns is None else _checked_columns(columns, dtype, shape, owner)
        self._insert(name, _Entry(dtype, tuple(shape), None, later=_DeferredArray(compute, loose, fill, columns)))
        return name

    def add_stacked(self, base: str, rows: Sequence[np.ndarray]) -> str:
        """Add equal arrays, one after the other along a new first dim, as `add_deferred` adds one; return the name.

        The arrays are read when they are needed, each once.
        """
        element = element_type_of(rows[0].dtype)
        if element is None:
            raise _unknown_type(base, f"numpy type {rows[0].dtype}")
        if {(row.shape, row.dtype) for row in rows} != {(rows[0].shape, rows[0].dtype)}:
            kinds = sorted({f"{row.dtype} {list(row.shape)}" for row in rows})
            raise ParameterError(f"parameter '{base}': slices of one type are stacked, found {', '.join(kinds)}")
        for row in rows:
            mapping = mapping_of(row)
            if mapping is not None:
                self._mappings.setdefault(mapping, None)
        name, shape = self._unused_name(base), (len(rows), *rows[0].shape)
        self._insert(name, _Entry(element.name, shape, None, later=_StackedArray(rows)))
        return name

    def slices(self, name: str) -> Callable[[int], np.ndarray]:
        """Return a function that returns a slice of an array along its first dim, even after it is discarded."""
        entry = self._entry(name)
        return entry.later.slice if entry.later is not None else entry.view().__getitem__

    def reader(self, name: str) -> Callable[[], np.ndarray]:
        """Return a function that returns the array of this name, even after it is discarded.

        The array may not be contiguous.
        """
        return self._entry(name).loose

    def column_reader(self, name: str) -> ColumnReader | None:
        """Return a reader of ranges of columns, even after the array is discarded; None if it is in memory as a whole.

        A pending array of `add_deferred` is never in memory as a whole for it.
        """
        later = self._entry(name).later
        return later.columns if later is not None and later.has_columns else None

    def reader_in_turn(self) -> Callable[[str], np.ndarray]:
        """Return a function that returns the array of a name, which is valid until the next one is read.

        The pending arrays of `add_deferred` stay pending: they are computed in memory that all of them share.
        """
        scratch = _ScratchMemory()

        def read(name: str) -> np.ndarray:
            entry = self._entry(name)
            self._require_unchanged_files()
            array = entry.view() if entry.later is None else entry.later.read(scratch, *self._kind(name))
            self._require_unchanged_files()
            return array

        return read

    def _require_unchanged_files(self) -> None:
        """Raise an error if a file was written since it was mapped: its bytes are others, or no longer there."""
        for mapping, path in self._mappings.items():
            if not mapping.is_unchanged():
                where = "the file that weights are mapped from" if path is None else str(path)
                raise ParameterError(
                    f"{where}: the file has changed since it was opened, and weights are still read from it: open the "
                    "model again, and replace files (write another one, rename it) in place of overwriting them"
                )

    def align(self, names: Iterable[str], most: int = 1 << 20) -> None:
        """Copy arrays that are not aligned to cache lines; of mapped arrays, those of up to `most` bytes.

        Where numpy or a file placed an array is a matter of chance, and vectors that cross cache lines load more
        slowly.
        """
        for name in names:
            entry = self._entry(name)
            array = entry.view()
            if not array.ctypes.data % ALIGNMENT or (entry.source is not None and entry.nbytes > most):
                continue
            self._move(name, empty_aligned(array.dtype, array.shape))

    def hold(
        self, names: Iterable[str], with_mapped: bool = False, least: int = 1 << 15, folder: Path | None = None
    ) -> None:
        """Move arrays of `least` bytes or more next to each other into huge pages; those of files if `with_mapped`.

        With a folder they are in temporary files there, of which the system may take the pages when memory is short.
        The pending arrays of `add_deferred` are computed, each when its turn comes: the largest first, as the array
        that is computed and the one that stays may both be in memory for a moment. Arrays in memory of another owner,
        such as tensors of PyTorch, stay shared with their owner.
        """
        names = list(names)
        entries = {name: self._entry(name) for name in names}
        chosen = [
            (entry.nbytes, name) for name, entry in entries.items()
            if entry.nbytes >= least and _is_movable(entry, with_mapped)
        ]  # fmt: skip
        del entries  # which would keep the former memory
        if sum(nbytes for nbytes, _ in chosen) < PAGE:
            chosen = []
        chosen.sort(key=lambda row: -row[0])
        kinds = [self._kind(name) for _, name in chosen]
        # What there is no room for stays where it is.
        with nullcontext() if folder is not None else suppress(OutOfMemoryError):
            for (_, name), held in zip(chosen, empty_together(kinds, folder), strict=True):
                self._move(name, held)
                if folder is not None:
                    release(held)
        for name in names:
            self._entry(name).view()

    def _kind(self, name: str) -> tuple[np.dtype, tuple[int, ...]]:
        entry = self._entry(name)
        return np.dtype(numpy_dtype(entry.dtype)), entry.shape

    def pending_bytes(self, names: Iterable[str]) -> int:
        """Return the bytes of the arrays of `add_deferred` among these that are not computed yet."""
        entries = [self._entry(name) for name in dict.fromkeys(names)]
        return sum(entry.nbytes for entry in entries if entry.later is not None and entry.later.is_pending)

    def _move(self, name: str, to: np.ndarray) -> None:
        """Copy a parameter to memory in which it stays, or compute it there."""
        entry = self._entries[name]
        self._require_unchanged_files()
        if entry.later is not None:
            entry.later.write(to)
        else:
            array = entry.view()
            to[...] = array
            release(array)
        self._require_unchanged_files()
        to.flags.writeable = False
        self._entries[name] = replace(entry, array=to, file=None, later=None, is_held=True)

    def copy(self) -> ParameterStore:
        """Return another store with the same arrays.

        Adding to one, or discarding from it, does not change the other.
        """
        result = ParameterStore()
        result._entries, result._files, result.files = dict(self._entries), dict(self._files), set(self.files)
        result._mappings = dict(self._mappings)
        return result

    def discard(self, name: str) -> None:
        """Remove a parameter; an unknown name is no error."""
        self._entries.pop(name, None)

    def open(self, path: str | os.PathLike[str]) -> None:
        """Add the parameters of a file written by `save`, or of one whose suffix has a reader.

        `register_reader` adds readers.
        """
        target = Path(path)
        reader = _READERS.get(target.suffix.lower())
        if reader is not None and not has_magic(target, PARAMETER_FILE):
            reader(target, self)
            return
        self.add_file(read_file(target, PARAMETER_FILE))

    def add_file(self, opened: OpenedFile) -> None:
        """Add the tensors of a file that was read (see `container.read_file`)."""
        source = _absolute(opened.file.path)
        for row in opened.tensors:
            self._insert(row.name, _Entry(row.dtype, row.shape, source, file=opened.file, offset=row.offset))

    def save(self, path: str | os.PathLike[str], names: Iterable[str] | None = None) -> None:
        """Write the named parameters (all of them by default) to a file that `open` reads."""
        chosen = self.names() if names is None else tuple(dict.fromkeys(names))
        tensors = [(name, *self.spec(name)) for name in chosen]
        write_file(path, PARAMETER_FILE, {}, b"", tensors, self.reader_in_turn())
        source = _absolute(path)
        for name in chosen:
            entry = self._entries[name]
            if entry.source is None:
                self._entries[name] = replace(entry, source=source)

    def unsaved(self) -> tuple[str, ...]:
        """Return the names of the parameters that are in no file."""
        return tuple(name for name, entry in self._entries.items() if entry.source is None)

    def _entry(self, name: str) -> _Entry:
        result = self._entries.get(name)
        if result is None:
            hint = nearest(name, self._entries)
            raise ParameterError(f"no parameter '{name}' among the {len(self._entries)} of the store{hint}")
        return result

    def _file(self, path: str | os.PathLike[str]) -> MappedFile:
        key = resolved(path)
        result = self._files.get(key)
        if result is None:
            result = self._files[key] = MappedFile(path, ParameterError)
        return result

    def _insert(self, name: str, entry: _Entry) -> None:
        present = self._entries.get(name)
        if present is None:
            self._entries[name] = entry
            mapping = entry.mapping
            if mapping is not None:
                self._mappings.setdefault(mapping, entry.source)
            return
        difference = _difference(present, entry)
        if difference:
            raise ParameterError(
                f"parameter '{name}' is in the store already with {difference}; give one of them another name"
            )
        if present.source is None and entry.source is not None:
            self._entries[name] = entry


def _unknown_type(name: str, kind: str) -> ParameterError:
    return ParameterError(f"parameter '{name}': {kind} is not an element type; known: {', '.join(ELEMENT_TYPES)}")


def _difference(left: _Entry, right: _Entry) -> str | None:
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return f"another type: {left.dtype} {list(left.shape)}, now {right.dtype} {list(right.shape)}"
    a, b = left.view(), right.view()
    if a.ctypes.data == b.ctypes.data:
        return None
    # Bytes are compared, not values: a NaN equals itself here, and -0.0 is not 0.0.
    same = np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
    return None if same else "other values"


def _absolute(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else _shared_path(os.path.abspath(path))


@functools.lru_cache(maxsize=64)
def _shared_path(path: str) -> Path:
    """Return one object for all weights of a file."""
    return Path(path)


def _is_movable(entry: _Entry, with_mapped: bool) -> bool:
    """Return whether an array may be moved to memory in which it stays."""
    if entry.is_held or (entry.source is not None and not with_mapped):
        return False
    return entry.source is not None or entry.later is not None or _is_of_numpy(entry.view())


def _is_of_numpy(array: np.ndarray) -> bool:
    """Return whether numpy allocated the memory of an array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None
