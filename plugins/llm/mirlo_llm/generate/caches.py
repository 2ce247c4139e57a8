"""Interfaces of the caches that generation uses, for contiguous arrays and for pages.

`mirlo_llm/caches/state.py` and `cache_pool.py` implement them for contiguous arrays, `paged_state.py` for pages. The
other modules of generation do not depend on the implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from mirlo_llm.caches.cache_arrays import Rows

Batch = TypeVar("Batch", bound="BatchCaches")


class CallCaches(Protocol):
    """The caches that a call reads and adds to."""

    @property
    def length(self) -> int:
        """Return the number of tokens of the longest sequence."""

    def run(self, inputs: Mapping[str, np.ndarray], tokens: int | Sequence[int]) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, for this many new tokens of each sequence; return its other outputs."""


class BatchCaches(CallCaches, Protocol):
    """The caches of the sequences of a batch, which grow together."""

    @property
    def is_in_place(self) -> bool:
        """Return whether sequences may have different lengths, with their tokens in the first rows."""

    @property
    def is_recurrent(self) -> bool:
        """Return whether there are states of a fixed size, which cannot go back to any length."""

    @property
    def states(self) -> Rows:
        """Return the states of a fixed size, by the names of the inputs."""

    def rows(self, start: int, stop: int) -> Rows | None:
        """Return sharable rows of tokens of the only sequence; None if they were overwritten."""

    def extend(self, parts: Sequence[Rows], tokens: int, states: Rows) -> None:
        """Append tokens with known rows to the only sequence, and set the states after them."""

    def rewind(self, length: int) -> int:
        """Drop all tokens but the first `length`; return the number of remaining tokens."""

    def fork(self: Batch) -> Batch:
        """Return caches with the same tokens that continue separately."""

    def select(self, rows: Sequence[int]) -> None:
        """Keep these sequences, in this order."""

    def join(self: Batch, states: Sequence[Batch]) -> None:
        """Replace the tokens of each sequence by those of caches of one sequence."""


class SelectedCaches(CallCaches, Protocol):
    """A selection of an engine's sequences for one call."""

    @property
    def sequences(self) -> Sequence[int]:
        """Return the numbers of the sequences, in the order of the inputs' rows."""

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each sequence: i64[sequences]."""

    def mask(self, tokens: int) -> np.ndarray:
        """Return which rows are tokens after this number of new tokens of each sequence: i64[sequences, rows]."""


class EngineCaches(Protocol):
    """The caches of sequences by numbers from 0, each of a length of its own."""

    @property
    def is_ragged(self) -> bool:
        """Return whether a call may have different numbers of new tokens for its sequences."""

    @property
    def limit(self) -> int | None:
        """Return the maximum number of tokens of a sequence with those of a call; None if only memory limits it."""

    def select(self, sequences: Sequence[int], constants: Mapping[str, np.ndarray]) -> SelectedCaches:
        """Return these sequences for a call; `constants` are inputs that stay the same."""

    def known(self, sequence: int, length: int) -> int:
        """Return the first tokens of a sequence, up to `length`, that it can go back to."""

    def rewind(self, sequence: int, length: int) -> int:
        """Drop all tokens of a sequence but the first `length`, or those that are `known`; return how many."""

    def copy(self, source: int, target: int, length: int) -> int:
        """Replace a sequence by the first tokens of another one; return how many."""

    def rows(self, sequence: int, start: int, stop: int) -> Rows | None:
        """Return sharable rows of tokens of a sequence; None if they were overwritten."""

    def states(self, sequence: int) -> Rows:
        """Return the states of a fixed size of a sequence."""

    def extend(self, sequence: int, parts: Sequence[Rows], tokens: int, states: Rows) -> None:
        """Append tokens with known rows to a sequence."""

    def reserve(self, sequence: int, tokens: int, spare: int = 0) -> bool:
        """Reserve memory for new tokens of a sequence if `spare` pages remain free; return whether it did."""
