"""The caches of several sequences with separate lengths, as continuous batching needs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from mirlo.extend.runtime import InputError
from mirlo_llm.caches.cache_arrays import Rows, fixed_rows, require_rows
from mirlo_llm.caches.recurrent import PooledStates, require_same
from mirlo_llm.caches.state import UpdatingModel

NO_CONSTANTS: Mapping[str, np.ndarray] = {}


class CachePool(ABC):
    """Caches for a fixed number of sequences, by numbers from 0.

    A call runs some of them together, with as many new tokens of each. `lengths` are the numbers of tokens in the
    caches of each sequence. `states` of a fixed size, which a call replaces, cannot go back to any length.
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
        fixed = fixed_rows(spec for spec in self._specs if spec.name not in model.artifact.windows)
        self._limit = min((rows for rows in (limit, fixed) if rows is not None), default=None)
        self.lengths = [0] * count

    def select(self, sequences: Sequence[int], constants: Mapping[str, np.ndarray] | None = None) -> CacheSelection:
        """Return these sequences for a call, in the order that the rows of its inputs must have.

        `constants` are inputs that stay the same; calls are prepared once for each such object.
        """
        known = range(len(self.lengths))
        if not sequences or len(set(sequences)) != len(sequences) or any(i not in known for i in sequences):
            raise InputError(f"caches: expected different numbers below {len(known)}, found {list(sequences)}")
        return CacheSelection(self, self._arrange(sequences), constants or NO_CONSTANTS)

    def known(self, sequence: int, length: int) -> int:
        """Return the number of tokens, at most `length`, that a sequence can go back to.

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
        """Copy the first `length` tokens of a sequence, or those that are `known`, to another one; return their number.

        Rows that the target had before are replaced.

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

    @property
    def limit(self) -> int | None:
        """Return the maximum number of tokens of a sequence with those of a call; None if only memory limits it."""
        return self._limit

    def reserve(self, sequence: int, tokens: int, spare: int = 0) -> bool:
        """Return whether there is room for this number of new tokens of a sequence; arrays grow when written."""
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
        """Append tokens with known rows to a sequence, and set the states after them."""
        length = self.lengths[sequence]
        self._require(sequence, length)
        self._require_room(length + tokens)
        arrays = self._arrays_of(sequence)
        nonempty = [part for part in parts if part or arrays]
        require_rows(arrays, nonempty, tokens)
        if self._states is None:
            require_same(states, {})
        else:
            self._states.restore(sequence, states)
        self._write(sequence, nonempty, length + tokens)
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
        arguments = inputs if self._states is None else {**inputs, **self._states.join(sequences)}
        results = self._run(arguments, sequences, longest, constants)
        if self._states is not None:
            self._states.replace(results, sequences, self.lengths)
        for i in sequences:
            self.lengths[i] += tokens
        return results

    def _require_room(self, tokens: int) -> None:
        if self._limit is not None and tokens > self._limit:
            raise InputError(f"caches: a sequence may have {self._limit} tokens, {tokens} are needed: end it")

    def _held(self, sequence: int, length: int) -> int:
        """Return the number of tokens, at most `length`, that the caches of a sequence can go back to."""
        return length

    @abstractmethod
    def mask(self, sequences: Sequence[int], tokens: int) -> np.ndarray:
        """Return which rows are tokens after this number of new tokens of each sequence: i64[sequences, rows]."""

    @abstractmethod
    def _arrange(self, sequences: Sequence[int]) -> list[int]:
        """Return the order of these sequences in a call."""

    @abstractmethod
    def _run(
        self,
        inputs: Mapping[str, np.ndarray],
        sequences: Sequence[int],
        longest: int,
        constants: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Run the model; `longest` is the length of the longest of these sequences after the call."""

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
        """Return a copy of the rows of some tokens; None if they were overwritten."""

    @abstractmethod
    def _write(self, sequence: int, parts: Sequence[Rows], tokens: int) -> None:
        """Append rows to a sequence, which has this number of tokens afterwards."""

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
        """Return the number of tokens of each sequence: i64[sequences]."""
        return np.array([self._pool.lengths[i] for i in self.sequences], np.int64)

    @property
    def length(self) -> int:
        """Return the number of tokens of the longest sequence."""
        return int(self.lengths.max())

    def mask(self, tokens: int) -> np.ndarray:
        """Return which rows are tokens after this number of new tokens of each sequence: i64[sequences, rows]."""
        return self._pool.mask(self.sequences, tokens)

    def run(self, inputs: Mapping[str, np.ndarray], tokens: int | Sequence[int]) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, for this many new tokens of each sequence; return its other outputs."""
        count = tokens if isinstance(tokens, int) else max(tokens)
        return self._pool.run(inputs, self.sequences, count, self._constants)
