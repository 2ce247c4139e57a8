"""Caches of several sequences of a model whose calls return longer caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mirlo_llm.caches.cache_arrays import AXIS, Rows, new_arrays
from mirlo_llm.caches.cache_pool import CachePool
from mirlo_llm.caches.state import UpdatingModel


class GrowingPool(CachePool):
    """Caches of a model whose calls return longer caches.

    A call takes arrays in which its sequences are joined: each has its tokens in the last rows, after padding.
    """

    def __init__(
        self, model: UpdatingModel, pairs: Mapping[str, str], count: int, limit: int | None, states: Mapping[str, str]
    ) -> None:
        super().__init__(model, pairs, count, limit, states)
        none = dict.fromkeys(self._pairs, 0)
        self._caches = [new_arrays(self._specs, none, 1) for _ in range(count)]
        """The caches of each sequence; those of the last call are views of its arrays."""
        self._joined: list[int] = []
        """The sequences that `_arrays` hold."""
        self._arrays: dict[str, np.ndarray] = {}

    def mask(self, sequences: Sequence[int], tokens: int) -> np.ndarray:
        after = np.array([self.lengths[i] + tokens for i in sequences], np.int64)
        rows = int(after.max())
        return (np.arange(rows) >= (rows - after)[:, None]).astype(np.int64)

    def _arrange(self, sequences: Sequence[int]) -> list[int]:
        return list(self._joined if set(sequences) == set(self._joined) else sequences)

    def _run(
        self,
        inputs: Mapping[str, np.ndarray],
        sequences: Sequence[int],
        longest: int,
        constants: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        if list(sequences) != self._joined:
            self._join(sequences)
        results = self._model.run({**inputs, **constants, **self._arrays})
        self._arrays = {name: results[after] for name, after in self._pairs.items()}
        tokens = longest - max(self.lengths[i] for i in sequences)
        for place, i in enumerate(sequences):
            first = longest - self.lengths[i] - tokens
            self._caches[i] = {name: array[place : place + 1, :, first:] for name, array in self._arrays.items()}
        return {name: results[name] for name in self._others}

    def _join(self, sequences: Sequence[int]) -> None:
        """Join the caches of these sequences in arrays."""
        for i in set(self._joined) - set(sequences):  # which would keep the arrays of all in memory
            self._caches[i] = {name: array.copy() for name, array in self._caches[i].items()}
        rows = max(self.lengths[i] for i in sequences)
        arrays = new_arrays(self._specs, dict.fromkeys(self._pairs, rows), len(sequences))
        for place, i in enumerate(sequences):
            for name, array in self._caches[i].items():
                arrays[name][place, :, rows - self.lengths[i] :] = array[0]
        self._arrays, self._joined = arrays, list(sequences)

    def _truncate(self, sequence: int, length: int) -> None:
        self._replace(sequence, {name: array[:, :, :length] for name, array in self._caches[sequence].items()})

    def _copy(self, source: int, target: int, length: int) -> None:
        self._replace(target, {name: array[:, :, :length].copy() for name, array in self._caches[source].items()})

    def _arrays_of(self, sequence: int) -> Mapping[str, np.ndarray]:
        return self._caches[sequence]

    def _read(self, sequence: int, start: int, stop: int) -> Rows:
        return {name: array[:, :, start:stop].copy() for name, array in self._caches[sequence].items()}

    def _write(self, sequence: int, parts: Sequence[Rows], tokens: int) -> None:
        arrays = self._caches[sequence].items()
        caches = {name: np.concatenate([array, *(part[name] for part in parts)], AXIS) for name, array in arrays}
        self._replace(sequence, caches)

    def _replace(self, sequence: int, caches: dict[str, np.ndarray]) -> None:
        self._caches[sequence] = caches
        if sequence in self._joined:
            self._joined = []
