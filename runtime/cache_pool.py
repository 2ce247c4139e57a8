"""The caches of several sequences, each of a length of its own: what continuous batching keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from mirlo.runtime.cache_arrays import AXIS, BLOCK, CacheArrays, Rows, fixed_rows, new_arrays, require_rows
from mirlo.runtime.errors import InputError
from mirlo.runtime.recurrent import PooledStates, require_same
from mirlo.runtime.state import UpdatingModel, find_caches, is_in_place
from mirlo.runtime.update import UpdatingCall

NO_CONSTANTS: Mapping[str, np.ndarray] = {}


class CachePool(ABC):
    """Caches for a fixed number of sequences, by numbers from 0.

    A call runs some of them together, with as many new tokens of each. `lengths` are the tokens that the caches of each
    sequence hold. `states` of a fixed size, which a call replaces, cannot go back to any length.
    """

    def __init__(
        self, model: UpdatingModel, pairs: Mapping[str, str], count: int, limit: int | None, states: Mapping[str, str]
    ) -> None:
        self._model, self._pairs = model, dict(pairs)
        self._specs = [spec for spec in model.inputs if spec.name in self._pairs]
        self._others = [spec.name for spec in model.outputs if spec.name not in self._pairs.values()]
        self._states: PooledStates | None = None
        if states:
            self._states = PooledStates([spec for spec in model.inputs if spec.name in states], states, count)
        fixed = fixed_rows(spec for spec in self._specs if spec.name not in model.windows)
        self._limit = min((rows for rows in (limit, fixed) if rows is not None), default=None)
        self.lengths = [0] * count

    def select(self, sequences: Sequence[int], constants: Mapping[str, np.ndarray] | None = None) -> CacheSelection:
        """Return these sequences for a call, in the order that the rows of its inputs must have.

        `constants` are inputs that stay the same: calls are prepared for each object that is given.
        """
        known = range(len(self.lengths))
        if not sequences or len(set(sequences)) != len(sequences) or any(i not in known for i in sequences):
            raise InputError(f"caches: expected different numbers below {len(known)}, found {list(sequences)}")
        return CacheSelection(self, self._arrange(sequences), constants or NO_CONSTANTS)

    def known(self, sequence: int, length: int) -> int:
        """Return the first tokens of a sequence, up to `length`, that it can go back to.

        They are `length`; fewer if the model has states of a fixed size, which are known before the last call only, and
        none if the cache of a window has lost tokens of the window there.
        """
        tokens = self.lengths[sequence]
        most = min(length, tokens)
        return self._held(sequence, most if self._states is None else self._states.known(sequence, tokens, most))

    def rewind(self, sequence: int, length: int) -> int:
        """Forget all tokens of a sequence but the first `length`, or those that are `known`; return how many."""
        self._require(sequence, length)
        kept = self.known(sequence, length)
        if self._states is not None:
            self._states.copy(sequence, sequence, self.lengths[sequence], kept)
        self._truncate(sequence, kept)
        self.lengths[sequence] = kept
        return kept

    def copy(self, source: int, target: int, length: int) -> int:
        """Let a sequence begin with the first `length` tokens of another one, or with those that are `known` of it.

        Return how many: they take the place of what the sequence had.
        """
        self._require(source, length)
        if source == target:
            raise InputError(f"caches: sequence {source} cannot be copied to itself")
        kept = self.known(source, length)
        if self._states is not None:
            self._states.copy(source, target, self.lengths[source], kept)
        self._copy(source, target, kept)
        self.lengths[target] = kept
        return kept

    @property
    def is_ragged(self) -> bool:
        """Return whether a call may have different numbers of new tokens for its sequences."""
        return False

    def reserve(self, sequence: int, tokens: int, spare: int = 0) -> bool:
        """Return whether there is room for so many new tokens of a sequence: arrays grow when they are written."""
        return True

    def rows(self, sequence: int, start: int, stop: int) -> Rows | None:
        """Return a copy of the rows of some tokens of a sequence; None if a window has lost some of them."""
        self._require(sequence, stop)
        if not 0 <= start <= stop:
            raise InputError(f"caches: expected tokens from 0 to {stop}, found {start}")
        return self._read(sequence, start, stop)

    def states(self, sequence: int) -> Rows:
        """Return a copy of the states of a fixed size of a sequence, by the names of the inputs."""
        return {} if self._states is None else self._states.arrays(sequence)

    def extend(self, sequence: int, parts: Sequence[Rows], tokens: int, states: Rows) -> None:
        """Append tokens of which the rows are known to a sequence, and take the states behind them."""
        length = self.lengths[sequence]
        self._require(sequence, length)
        self._require_room(length + tokens)
        arrays = self._arrays_of(sequence)
        given = [part for part in parts if part or arrays]
        require_rows(arrays, given, tokens)
        if self._states is None:
            require_same(states, {})
        else:
            self._states.restore(sequence, states)
        self._write(sequence, given, length + tokens)
        self.lengths[sequence] = length + tokens

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        sequences: Sequence[int],
        tokens: int,
        constants: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Run the model on its other inputs for these sequences, in the order of `select`; return its other outputs."""
        longest = max(self.lengths[i] for i in sequences) + tokens
        if tokens < 1:
            raise InputError(f"caches: expected 1 token or more, found {tokens}")
        self._require_room(longest)
        given = inputs if self._states is None else {**inputs, **self._states.join(sequences)}
        results = self._run(given, sequences, longest, constants)
        if self._states is not None:
            self._states.replace(results, sequences, self.lengths)
        for i in sequences:
            self.lengths[i] += tokens
        return results

    def _require_room(self, tokens: int) -> None:
        if self._limit is not None and tokens > self._limit:
            raise InputError(f"caches: a sequence may have {self._limit} tokens, {tokens} are needed: end it")

    def _held(self, sequence: int, length: int) -> int:
        """Return how many first tokens of a sequence, up to `length`, the caches can go back to."""
        return length

    @abstractmethod
    def mask(self, sequences: Sequence[int], tokens: int) -> np.ndarray:
        """Return which rows are tokens once each sequence has so many more: i64[sequences, rows]."""

    @abstractmethod
    def _arrange(self, sequences: Sequence[int]) -> list[int]:
        """Return the order in which the caches of these sequences are given to a call."""

    @abstractmethod
    def _run(
        self,
        inputs: Mapping[str, np.ndarray],
        sequences: Sequence[int],
        longest: int,
        constants: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Run the model; `longest` is the length of the longest of these sequences behind the call."""

    @abstractmethod
    def _truncate(self, sequence: int, length: int) -> None:
        """Keep the first rows of a sequence."""

    @abstractmethod
    def _copy(self, source: int, target: int, length: int) -> None:
        """Copy the first rows of a sequence to another one."""

    @abstractmethod
    def _arrays_of(self, sequence: int) -> Mapping[str, np.ndarray]:
        """Return arrays with the types of the caches of a sequence."""

    @abstractmethod
    def _read(self, sequence: int, start: int, stop: int) -> Rows | None:
        """Return a copy of the rows of some tokens; None if they are not there any more."""

    @abstractmethod
    def _write(self, sequence: int, parts: Sequence[Rows], tokens: int) -> None:
        """Append rows to a sequence, which has so many tokens then."""

    def _require(self, sequence: int, length: int) -> None:
        if not 0 <= length <= self.lengths[sequence]:
            raise InputError(f"caches: sequence {sequence} has {self.lengths[sequence]} tokens, not {length}")


class CacheSelection:
    """Some sequences of a pool, for one call."""

    def __init__(self, pool: CachePool, sequences: list[int], constants: Mapping[str, np.ndarray]) -> None:
        self._pool, self._constants = pool, constants
        self.sequences = sequences
        """In the order that the rows of inputs must have."""

    @property
    def lengths(self) -> np.ndarray:
        """Return how many tokens each of the sequences has: i64[sequences]."""
        return np.array([self._pool.lengths[i] for i in self.sequences], np.int64)

    @property
    def length(self) -> int:
        """Return how many tokens the longest of the sequences has."""
        return int(self.lengths.max())

    def mask(self, tokens: int) -> np.ndarray:
        """Return which rows are tokens once each sequence has so many more: i64[sequences, rows]."""
        return self._pool.mask(self.sequences, tokens)

    def run(self, inputs: Mapping[str, np.ndarray], tokens: int | Sequence[int]) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, for so many new tokens of each sequence; return its other outputs."""
        count = tokens if isinstance(tokens, int) else max(tokens)
        return self._pool.run(inputs, self.sequences, count, self._constants)


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
        self._caches = CacheArrays(self._specs, model.windows, count, capacity, limit, block)
        self._owners = list(range(count))
        """The sequence that each part of the arrays belongs to."""
        self._calls: dict[tuple[int, int, int], tuple[UpdatingCall | None, Mapping[str, np.ndarray]]] = {}
        """Prepared calls on these arrays, by the first part, the number of parts and the identity of the constants."""

    @property
    def capacity(self) -> int:
        """Return the tokens of a sequence that there is room for."""
        return self._caches.capacity

    def mask(self, sequences: Sequence[int], tokens: int) -> np.ndarray:
        after = np.array([self.lengths[i] + tokens for i in sequences], np.int64)
        return (np.arange(int(after.max())) < after[:, None]).astype(np.int64)

    def _arrange(self, sequences: Sequence[int]) -> list[int]:
        """Move sequences to parts that are side by side: to where most of them are."""
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
        given = {**inputs, **constants, **views}
        results = self._model.run(given, out={after: views[name] for name, after in self._pairs.items()})
        return {name: results[name] for name in self._others}

    def _reserve(self, rows: int) -> None:
        """Make room for so many tokens of each sequence."""
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


class GrowingPool(CachePool):
    """Caches of a model that returns longer ones from each call.

    A call takes arrays in which its sequences are joined: the tokens of each are the last rows, behind padding.
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
        """Make arrays of these sequences."""
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
        made = {name: np.concatenate([array, *(part[name] for part in parts)], AXIS) for name, array in arrays}
        self._replace(sequence, made)

    def _replace(self, sequence: int, caches: dict[str, np.ndarray]) -> None:
        self._caches[sequence] = caches
        if sequence in self._joined:
            self._joined = []


def new_pool(
    model: UpdatingModel,
    count: int,
    capacity: int,
    limit: int | None,
    pairs: Mapping[str, str] | None,
    states: Mapping[str, str] | None = None,
    block: int = BLOCK,
) -> CachePool:
    """Return empty caches for a number of sequences; the arguments are those of `Executable.state`."""
    if count < 1 or capacity < 1:
        raise InputError(f"caches: expected 1 sequence or more with room for 1 token, found {count} and {capacity}")
    found = find_caches(model, count, pairs, states)
    if is_in_place(model, found):
        return InPlacePool(model, found, count, capacity, limit, states or {}, block)
    return GrowingPool(model, found, count, limit, states or {})
