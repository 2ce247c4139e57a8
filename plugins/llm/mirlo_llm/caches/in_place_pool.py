"""Caches of several sequences in arrays that a model updates in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mirlo.extend.runtime import InputError, UpdatingCall
from mirlo_llm.caches.cache_arrays import AXIS, CacheArrays, Rows
from mirlo_llm.caches.cache_pool import CachePool
from mirlo_llm.caches.state import UpdatingModel


class InPlacePool(CachePool):
    """Caches of a model that updates them in place: an array for all sequences, with room for `capacity` tokens each.

    The tokens of a sequence are the first rows of its part of the array. A call works on parts that are side by side:
    sequences are moved until this holds, which is rare, as most calls run the same sequences as those before.
    """

    def __init__(
        self, model: UpdatingModel, pairs: Mapping[str, str], count: int, capacity: int, limit: int | None,
        states: Mapping[str, str], block: int,
    ) -> None:  # fmt: skip
        super().__init__(model, pairs, count, limit, states)
        self._caches = CacheArrays(self._specs, model.artifact.windows, count, capacity, limit, block)
        self._owners = list(range(count))
        """The sequence that each part of the arrays belongs to."""
        self._calls: dict[tuple[int, int, int], tuple[UpdatingCall | None, Mapping[str, np.ndarray]]] = {}
        """Prepared calls on these arrays, by the first part, the number of parts and the identity of the constants."""

    @property
    def capacity(self) -> int:
        """Return the number of tokens of a sequence that fit."""
        return self._caches.capacity

    def mask(self, sequences: Sequence[int], tokens: int) -> np.ndarray:
        after = np.array([self.lengths[i] + tokens for i in sequences], np.int64)
        return (np.arange(int(after.max())) < after[:, None]).astype(np.int64)

    def _arrange(self, sequences: Sequence[int]) -> list[int]:
        """Move sequences to adjacent parts, near most of them."""
        owners, count = self._owners, len(sequences)
        places = [i for i, owner in enumerate(owners) if owner in sequences]
        if places[-1] - places[0] >= count:
            starts = range(len(owners) - count + 1)
            first = max(starts, key=lambda start: sum(start <= place < start + count for place in places))
            inside = range(first, first + count)
            away = [place for place in places if place not in inside]
            free = [place for place in inside if owners[place] not in sequences]
            for a, b in zip(away, free, strict=True):
                self._swap(a, b)
        return [owner for owner in owners if owner in sequences]

    def _swap(self, a: int, b: int) -> None:
        """Exchange two parts of the arrays."""
        self._caches.exchange(a, b, (self.lengths[self._owners[a]], self.lengths[self._owners[b]]))
        self._owners[a], self._owners[b] = self._owners[b], self._owners[a]

    def _run(
        self,
        inputs: Mapping[str, np.ndarray],
        sequences: Sequence[int],
        longest: int,
        constants: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        self._reserve(longest)
        first, count = self._owners.index(sequences[0]), len(sequences)
        if self._owners[first : first + count] != list(sequences):
            raise InputError(f"caches: the sequences {list(sequences)} are not in the order of select")
        tokens = longest - max(self.lengths[i] for i in sequences)
        for place, i in enumerate(sequences, first):
            self._caches.require_block(tokens, self.lengths[i])
            self._caches.write_rows(place, self.lengths[i], self.lengths[i] + tokens)
        views = {name: array[first : first + count] for name, array in self._caches.arrays.items()}
        key = (first, count, id(constants))
        if key not in self._calls:
            self._calls[key] = self._model.updating(views, self._pairs, constants), constants
        call, _ = self._calls[key]
        if call is not None:
            return call.run(inputs)
        arguments = {**inputs, **constants, **views}
        results = self._model.run(arguments, out={after: views[name] for name, after in self._pairs.items()})
        return {name: results[name] for name in self._others}

    def _reserve(self, rows: int) -> None:
        """Make room for this number of tokens of each sequence."""
        if self._caches.reserve(rows, [self.lengths[owner] for owner in self._owners]):
            self._calls.clear()

    def _held(self, sequence: int, length: int) -> int:
        return self._caches.known(self._owners.index(sequence), length)

    def _truncate(self, sequence: int, length: int) -> None:
        self._caches.truncate(self._owners.index(sequence), length)

    def _copy(self, source: int, target: int, length: int) -> None:
        self._caches.copy(self._owners.index(source), self._owners.index(target), length)

    def _arrays_of(self, sequence: int) -> Mapping[str, np.ndarray]:
        return self._caches.arrays

    def _read(self, sequence: int, start: int, stop: int) -> Rows | None:
        return self._caches.read(self._owners.index(sequence), start, stop)

    def _write(self, sequence: int, parts: Sequence[Rows], tokens: int) -> None:
        self._reserve(tokens)
        place, at = self._owners.index(sequence), self.lengths[sequence]
        for part in parts:
            self._caches.write(place, at, part)
            at += next(iter(part.values())).shape[AXIS]
