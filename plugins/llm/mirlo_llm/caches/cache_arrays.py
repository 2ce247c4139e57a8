"""The arrays of caches that calls update in place: rows of all tokens, or of a window of tokens."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mirlo.extend.runtime import (
    CACHE_RANK,
    InputError,
    OutOfMemoryError,
    TensorSpec,
    empty_together,
    make_lock,
    numpy_dtype,
)

AXIS = 2
"""The axis of the rows in a cache: [batch, heads, rows, size]."""
BLOCK = 512
"""Default number of rows of a ring beside its window: the most new tokens of a call."""
ALL = 1 << 62
"""A number larger than the length of any sequence."""

Rows = Mapping[str, np.ndarray]
"""Rows [1, heads, rows, size] of each cache, by the names of the inputs."""


class ArraySharing:
    """The caches that share arrays, each with the first rows of a common sequence.

    Any thread may use it: caches write rows that no other one has, and copy the arrays while they hold the lock.
    """

    def __init__(self, first: CacheArrays) -> None:
        self.lock = make_lock()
        self.members = weakref.WeakSet([first])


class CacheArrays:
    """Caches in place: an array for each, with a part for each of several sequences.

    The rows of a sequence are the first ones of its part. The cache of a window is a ring: the row of a token is its
    position modulo the rows, of which there are as many as the window has, and as many more as a call may have new
    tokens. So a ring holds the last tokens only, and can go back as far as the window that is needed is still there.

    A fork has the same arrays. After the rows that all of them have, the first one to write does so in place; the
    others copy their rows before they write. A ring has no such rows, so it is copied.
    """

    def __init__(
        self, specs: Iterable[TensorSpec], windows: Mapping[str, int], count: int, capacity: int, limit: int | None,
        block: int,
    ) -> None:  # fmt: skip
        """Create caches of `count` sequences with room for `capacity` tokens, which grow up to `limit`."""
        if block < 1:
            raise InputError(f"caches: expected a block of 1 token or more, found {block}")
        self._specs = list(specs)
        self._windows = {spec.name: windows[spec.name] for spec in self._specs if spec.name in windows}
        self._most = {
            spec.name: ring_rows(spec, windows[spec.name], block) for spec in self._specs if spec.name in windows
        }
        self._count = count
        fixed = fixed_rows(spec for spec in self._specs if spec.name not in windows)
        limits = [rows for rows in (limit, fixed) if rows is not None]
        self.fixed = fixed
        """Rows of caches whose size is fixed, windows aside."""
        self.limit = min(limits, default=None)
        """Most tokens of a sequence."""
        self.capacity = fixed or (capacity if self.limit is None else min(capacity, self.limit))
        """Tokens of a sequence that there is room for; windows keep the last ones."""
        self._first = {name: [0] * count for name in self._windows}
        """The first token of each part whose row has not been overwritten, by the names of rings."""
        self._lengths = [0] * count
        """Tokens of each part, with those of a call in progress."""
        self._equal = np.zeros((count, count), np.int64)
        """How many first tokens of two parts are known to have the same rows; of a part and itself, all of them."""
        np.fill_diagonal(self._equal, ALL)
        self.arrays = self._new()
        self._sharing = ArraySharing(self)

    def fork(self) -> CacheArrays:
        """Return caches with the same tokens that continue separately; rows are copied once both have written."""
        clone = copy.copy(self)
        clone._first = {name: list(first) for name, first in self._first.items()}
        clone._lengths, clone._equal = list(self._lengths), self._equal.copy()
        with self._sharing.lock:
            self._sharing.members.add(clone)
        return clone

    def length_of(self, name: str, tokens: int) -> int:
        """Return the number of rows of a cache that are used for this number of tokens."""
        return min(tokens, self.arrays[name].shape[AXIS]) if name in self._windows else tokens

    def require_block(self, tokens: int, length: int) -> None:
        """Raise an error if a call with this number of new tokens would overwrite rows that it reads."""
        for name, window in self._windows.items():
            rows = self._most[name]
            if tokens + window - 1 > rows and length + tokens > rows:
                raise InputError(
                    f"caches: '{name}' keeps a window of {window} tokens and has room for {rows - window + 1} new ones "
                    f"in a call, found {tokens}: pass fewer at a time, or make the caches with block={tokens}"
                )

    def reserve(self, tokens: int, lengths: list[int]) -> bool:
        """Make room for this number of tokens of each sequence; return whether arrays were replaced.

        `lengths` are the numbers of tokens of the parts.
        """
        if tokens <= self.capacity:
            return False
        doubled = max(tokens, 2 * self.capacity)
        with self._sharing.lock:
            self._move(doubled if self.limit is None else min(doubled, self.limit), lengths)
        return True

    def _move(self, capacity: int, lengths: Sequence[int]) -> None:
        """Move the first tokens of each part to separate arrays; the caller has locked the sharing."""
        before, self.capacity, sharing = self.capacity, capacity, self._sharing
        try:
            new = self._new()
        except OutOfMemoryError:
            self.capacity = before
            raise
        for name, array in self.arrays.items():
            if array.shape == new[name].shape and name in self._windows:  # a ring of its full size
                new[name] = array if len(sharing.members) == 1 else _copied(array)
                continue
            for part, length in enumerate(lengths):
                new[name][part, :, :length] = array[part, :, :length]
        sharing.members.discard(self)
        self.arrays, self._sharing = new, ArraySharing(self)

    def write_rows(self, part: int, start: int, stop: int) -> None:
        """Prepare a part for writing the tokens from `start` to `stop`; arrays may be replaced."""
        with self._sharing.lock:
            others = [each for each in self._sharing.members if each is not self]
            if any(each._lengths[part] > start or self._windows for each in others):
                self._move(self.capacity, self._lengths)
            self._lengths[part] = stop
        self._forget_equal(part, start)
        for name, first in self._first.items():
            first[part] = max(first[part], stop - self.arrays[name].shape[AXIS])

    def known(self, part: int, length: int) -> int:
        """Return the number of tokens that a part can go back to: `length`, or 0 if a window has lost some of them."""
        needed = ((first[part], length - self._windows[name] + 1) for name, first in self._first.items())
        return length if all(first <= max(0, start) for first, start in needed) else 0

    def truncate(self, part: int, length: int) -> None:
        """Keep the first `length` tokens of a part, which `known` returned; later rows are not read again."""
        self._lengths[part] = min(self._lengths[part], length)
        if not length:
            for first in self._first.values():
                first[part] = 0

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of a part, which `known` returned, to another part."""
        self.take(self, source, target, length)

    def take(self, other: CacheArrays, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens, which `known` returned, from a part of other arrays; there must be room."""
        self.write_rows(target, 0, length)
        for name, array in other.arrays.items():
            own = self.arrays[name]
            if name not in self._windows:
                own[target, :, :length] = array[source, :, :length]
                continue
            start = max(other._first[name][source], length - own.shape[AXIS], 0)
            tokens = np.arange(min(start, length), length)
            own[target][:, tokens % own.shape[AXIS]] = array[source][:, tokens % array.shape[AXIS]]
            self._first[name][target] = start

    def exchange(self, a: int, b: int, lengths: tuple[int, int]) -> None:
        """Exchange two parts with these numbers of tokens."""
        with self._sharing.lock:
            if len(self._sharing.members) > 1:
                self._move(self.capacity, self._lengths)
        self._lengths[a], self._lengths[b] = lengths[1], lengths[0]
        for part in (a, b):
            self._forget_equal(part, 0)
        for name, array in self.arrays.items():
            first, second = (array.shape[AXIS],) * 2 if name in self._windows else lengths
            kept = array[a, :, :first].copy()
            array[a, :, :second] = array[b, :, :second]
            array[b, :, :first] = kept
        for known in self._first.values():
            known[a], known[b] = known[b], known[a]

    def select(self, parts: np.ndarray, length: int) -> None:
        """Replace each part by the rows of another part of the same length, without copying equal rows."""
        moved = [(part, int(source)) for part, source in enumerate(parts) if source != part]
        equal = self._equal[np.ix_(parts, parts)]
        starts = [min(int(self._equal[pair]), length) for pair in moved]
        first = {name: [known[source] for source in parts] for name, known in self._first.items()}
        for (part, _), start in zip(moved, starts, strict=True):
            self.write_rows(part, start, length)
        for name, array in self.arrays.items():
            is_ring, rows = name in self._windows, self.length_of(name, length)
            spans = [slice(0 if is_ring else start, rows) for start in starts]
            held = [array[source, :, span].copy() for (_, source), span in zip(moved, spans, strict=True)]
            for (part, _), span, new in zip(moved, spans, held, strict=True):
                array[part, :, span] = new
        self._equal, self._first = equal, first

    def _forget_equal(self, part: int, start: int) -> None:
        """Record that the rows of a part from `start` on differ from those of other parts."""
        self._equal[part] = self._equal[:, part] = np.minimum(self._equal[part], start)
        self._equal[part, part] = ALL

    def note_equal(self, length: int) -> None:
        """Record that the first tokens of all parts have the same rows."""
        self._equal = np.maximum(self._equal, length)

    def read(self, part: int, start: int, stop: int) -> dict[str, np.ndarray] | None:
        """Return a copy of the rows of some tokens of a part; None if a window has lost some of them."""
        result = {}
        for name, array in self.arrays.items():
            if name not in self._windows:
                result[name] = array[part : part + 1, :, start:stop].copy()
            elif start < self._first[name][part]:
                return None
            else:
                result[name] = array[part : part + 1][:, :, np.arange(start, stop) % array.shape[AXIS]]
        return result

    def write(self, part: int, start: int, rows: Rows) -> None:
        """Write the rows of tokens from `start` on, for which there is room."""
        stop = start + next((each.shape[AXIS] for each in rows.values()), 0)
        self.write_rows(part, start, stop)
        for name, array in self.arrays.items():
            new, size = rows[name][0], array.shape[AXIS]
            if name in self._windows:
                first = max(start, stop - size)  # a ring holds the last ones
                array[part][:, np.arange(first, stop) % size] = new[:, first - start :]
            else:
                array[part, :, start:stop] = new

    def _new(self) -> dict[str, np.ndarray]:
        rows = {spec.name: min(self.capacity, self._most.get(spec.name, self.capacity)) for spec in self._specs}
        rows |= {s.name: n for s in self._specs if isinstance(n := s.shape[AXIS], int) and s.name in self._windows}
        return new_arrays(self._specs, rows, self._count)


def _copied(array: np.ndarray) -> np.ndarray:
    (copy,) = empty_together([(array.dtype, array.shape)])
    copy[...] = array
    return copy


def require_rows(arrays: Mapping[str, np.ndarray], parts: Sequence[Rows], tokens: int) -> None:
    """Raise an error unless these are rows of this number of tokens for caches such as `arrays`."""
    for part in parts:
        if part.keys() != arrays.keys():
            raise InputError(f"caches: expected rows of {', '.join(arrays)}, found {', '.join(part) or 'none'}")
        counts = {array.shape[AXIS] if array.ndim == CACHE_RANK else -1 for array in part.values()}
        for name, array in part.items():
            _, heads, _, size = arrays[name].shape
            if len(counts) > 1 or array.shape != (1, heads, *counts, size) or array.dtype != arrays[name].dtype:
                expected = f"{arrays[name].dtype}[1, {heads}, tokens, {size}]"
                raise InputError(f"caches: rows of '{name}': expected {expected}, found {array.dtype}{[*array.shape]}")
    rows = sum(next(iter(part.values())).shape[AXIS] for part in parts)
    if arrays and rows != tokens:
        raise InputError(f"caches: expected rows of {tokens} tokens, found {rows}")


def ring_rows(spec: TensorSpec, window: int, block: int) -> int:
    """Return the maximum number of rows of the cache of a window."""
    rows = spec.shape[AXIS]
    if isinstance(rows, int) and rows < window:
        raise InputError(f"caches: {spec} is the cache of a window of {window} tokens, which needs as many rows")
    return rows if isinstance(rows, int) else window - 1 + block


def new_arrays(specs: Iterable[TensorSpec], rows: Mapping[str, int], batch: int) -> dict[str, np.ndarray]:
    """Return caches with room for this number of rows of each sequence, by the names of the inputs."""
    kinds = {}
    for spec in specs:
        shape = [dim if isinstance(dim, int) else batch for dim in spec.shape]
        shape[AXIS] = rows[spec.name]
        kinds[spec.name] = numpy_dtype(spec.dtype), tuple(shape)
    try:
        result = dict(zip(kinds, empty_together(list(kinds.values())), strict=True))
    except OutOfMemoryError as error:
        most = max(rows.values(), default=0)
        raise OutOfMemoryError(f"state: there is no memory for {most} rows of the caches: {error}") from None
    for array in result.values():
        array[...] = 0  # rows that are not valid are hidden, which NaN would survive
    return result


def fixed_rows(specs: Iterable[TensorSpec]) -> int | None:
    """Return the number of rows of the smallest cache with a fixed size, None if there is none."""
    return min((rows for rows in (spec.shape[AXIS] for spec in specs) if isinstance(rows, int)), default=None)
