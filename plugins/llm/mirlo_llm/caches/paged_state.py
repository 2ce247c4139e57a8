"""Sequences in the pages of a pool, with the interfaces of `CacheState` and `CachePool`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from mirlo.extend.runtime import InputError
from mirlo_llm.caches.cache_arrays import Rows
from mirlo_llm.caches.page_pool import NO_CONSTANTS, PagePool
from mirlo_llm.caches.paged_sequence import PagedSequence

NO_STATES: Rows = {}


class PagedState:
    """A batch of sequences in pages; see `CacheState`. Sequences with a common beginning share pages, as forks do."""

    def __init__(self, pool: PagePool, batch: int, constants: Mapping[str, np.ndarray] = NO_CONSTANTS) -> None:
        self._pool, self._constants = pool, constants
        self._sequences = [pool.sequence() for _ in range(batch)]

    @property
    def length(self) -> int:
        """Return the number of tokens of the longest sequence."""
        return max(sequence.length for sequence in self._sequences)

    @property
    def is_in_place(self) -> bool:
        """Return whether calls update the caches without copying them."""
        return True

    @property
    def is_recurrent(self) -> bool:
        """Return whether there are states of a fixed size, which cannot go back to any length."""
        return False

    @property
    def states(self) -> Rows:
        """Return no states: there are none of a fixed size."""
        return NO_STATES

    def run(self, inputs: Mapping[str, np.ndarray], tokens: int | Sequence[int]) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, for this many new tokens of each sequence; return its other outputs."""
        return self._pool.run(inputs, self._sequences, tokens, self._constants)

    def rewind(self, length: int) -> int:
        """Drop all tokens but the first `length` of each sequence; return it."""
        for sequence in self._sequences:
            sequence.rewind(min(length, sequence.length))
        return length

    def fork(self) -> PagedState:
        """Return a state with the same tokens that continues separately."""
        state = copy.copy(self)
        state._sequences = [sequence.fork() for sequence in self._sequences]
        return state

    def select(self, rows: Sequence[int]) -> None:
        """Keep these sequences of the batch, in this order, such as the best beams."""
        before, self._sequences = self._sequences, []
        for i in rows:  # the sequence itself the first time, so that it writes to its last page
            known = before[i]
            self._sequences.append(known.fork() if known in self._sequences else known)

    def join(self, states: Sequence[PagedState]) -> None:
        """Replace the tokens of each sequence of the batch by those of a state of one sequence."""
        self._sequences = [state._only().fork() for state in states]

    def rows(self, start: int, stop: int) -> Rows:
        """Return the rows of some tokens of the only sequence, in one page, without copying them."""
        return self._only().rows(start, stop)

    def extend(self, parts: Sequence[Rows], tokens: int, states: Rows = NO_STATES) -> None:
        """Append tokens with rows in pages to the only sequence."""
        self._only().adopt(parts)

    def _only(self) -> PagedSequence:
        if len(self._sequences) != 1:
            raise InputError(f"pages: expected one sequence, found {len(self._sequences)}")
        return self._sequences[0]


class PagedSlots:
    """Sequences in pages by numbers from 0, each of a length of its own; see `CachePool`.

    A call has any number of new tokens of each of its sequences.
    """

    def __init__(self, pool: PagePool, count: int) -> None:
        self._pool = pool
        self._sequences = [pool.sequence() for _ in range(count)]

    @property
    def is_ragged(self) -> bool:
        """Return whether a call may have different numbers of new tokens for its sequences."""
        return True

    @property
    def limit(self) -> int | None:
        """Return None: only the number of pages limits a sequence."""
        return None

    def select(self, sequences: Sequence[int], constants: Mapping[str, np.ndarray] = NO_CONSTANTS) -> PagedSelection:
        """Return these sequences for a call, in the order that the rows of its inputs must have."""
        return PagedSelection(self._pool, list(sequences), [self._sequences[i] for i in sequences], constants)

    def known(self, sequence: int, length: int) -> int:
        """Return the first tokens of a sequence, up to `length`, that it can go back to."""
        return min(length, self._sequences[sequence].length)

    def rewind(self, sequence: int, length: int) -> int:
        """Drop all tokens of a sequence but the first `length`; return it."""
        self._sequences[sequence].rewind(length)
        return length

    def copy(self, source: int, target: int, length: int) -> int:
        """Replace a sequence by the first tokens of another one, in the same pages; return how many."""
        self._sequences[target] = self._sequences[source].fork(length)
        return length

    def rows(self, sequence: int, start: int, stop: int) -> Rows:
        """Return the rows of some tokens of a sequence, in one page, without copying them."""
        return self._sequences[sequence].rows(start, stop)

    def states(self, sequence: int) -> Rows:
        """Return no states: there are none of a fixed size."""
        return NO_STATES

    def extend(self, sequence: int, parts: Sequence[Rows], tokens: int, states: Rows = NO_STATES) -> None:
        """Append tokens with rows in pages to a sequence."""
        self._sequences[sequence].adopt(parts)

    def reserve(self, sequence: int, tokens: int, spare: int = 0) -> bool:
        """Reserve pages for new tokens of a sequence if `spare` pages remain free; return whether it did."""
        return self._pool.reserve(self._sequences[sequence], tokens, spare)


class PagedSelection:
    """Some sequences in pages, for one call; see `CacheSelection`."""

    def __init__(
        self,
        pool: PagePool,
        numbers: list[int],
        sequences: list[PagedSequence],
        constants: Mapping[str, np.ndarray],
    ) -> None:
        self._pool, self._sequences, self._constants = pool, sequences, constants
        self.sequences = numbers
        """In the order that the rows of inputs must have."""

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each sequence: i64[sequences]."""
        return np.array([sequence.length for sequence in self._sequences], np.int64)

    @property
    def length(self) -> int:
        """Return the number of tokens of the longest sequence."""
        return int(self.lengths.max())

    def mask(self, tokens: int) -> np.ndarray:
        """Return an empty mask, since models with pages take none: i64[sequences, 0]."""
        return np.zeros((len(self._sequences), 0), np.int64)

    def run(self, inputs: Mapping[str, np.ndarray], tokens: int | Sequence[int]) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, for this many new tokens of each sequence; return its other outputs."""
        return self._pool.run(inputs, self._sequences, tokens, self._constants)
