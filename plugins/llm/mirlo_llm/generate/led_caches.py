"""The caches of an engine on several ranks: one rank leads, the others repeat its operations.

All ranks must call their part of the model in the same order. The leader runs the engine: it admits requests and
chooses tokens. Before it changes its caches or calls the model, it sends the operation to the other ranks, which have
caches but no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo_llm.caches.cache_arrays import Rows
from mirlo_llm.generate.caches import EngineCaches, SelectedCaches
from mirlo_llm.generate.decoder import CompiledDecoder
from mirlo_llm.generate.errors import GenerationError


@dataclass(frozen=True)
class NewCaches:
    """Create empty caches for this number of sequences."""

    capacity: int
    count: int
    block: int


@dataclass(frozen=True)
class RewindSequence:
    """Forget all tokens of a sequence but the first ones."""

    sequence: int
    length: int


@dataclass(frozen=True)
class CopySequence:
    """Start a sequence with tokens of another one."""

    source: int
    target: int
    length: int


@dataclass(frozen=True)
class ReserveTokens:
    """Reserve memory for new tokens of a sequence."""

    sequence: int
    tokens: int
    spare: int


@dataclass(frozen=True)
class RunModel:
    """Run the model for new tokens of some sequences."""

    sequences: tuple[int, ...]
    inputs: Mapping[str, np.ndarray]
    tokens: int | tuple[int, ...]


CacheOperation = NewCaches | RewindSequence | CopySequence | ReserveTokens | RunModel
SendOperation = Callable[[CacheOperation], None]
"""Sends an operation to all other ranks, in order."""


class LedCaches:
    """The leader's caches, which implement `EngineCaches`.

    Rows are not shared with other sequences, since each rank holds those of its heads only.
    """

    def __init__(self, caches: EngineCaches, send: SendOperation) -> None:
        self._caches, self._send = caches, send

    @property
    def is_ragged(self) -> bool:
        """Return whether a call may have different numbers of new tokens for its sequences."""
        return self._caches.is_ragged

    @property
    def limit(self) -> int | None:
        """Return the maximum number of tokens of a sequence with those of a call; None if only memory limits it."""
        return self._caches.limit

    def select(self, sequences: Sequence[int], constants: Mapping[str, np.ndarray]) -> LedSelection:
        """Return these sequences for a call."""
        if constants:
            raise GenerationError("adapters: an engine on several ranks has none")
        return LedSelection(self._caches.select(sequences, constants), tuple(sequences), self._send)

    def known(self, sequence: int, length: int) -> int:
        """Return the first tokens of a sequence, up to `length`, that it can go back to."""
        return self._caches.known(sequence, length)

    def rewind(self, sequence: int, length: int) -> int:
        """Forget all tokens of a sequence but the first `length`, or those that are `known`; return how many."""
        self._send(RewindSequence(sequence, length))
        return self._caches.rewind(sequence, length)

    def copy(self, source: int, target: int, length: int) -> int:
        """Start a sequence with the first tokens of another one; return how many."""
        self._send(CopySequence(source, target, length))
        return self._caches.copy(source, target, length)

    def rows(self, sequence: int, start: int, stop: int) -> Rows | None:
        """Return None: rows cannot be shared."""
        return None

    def states(self, sequence: int) -> Rows:
        """Return the states of a fixed size of a sequence."""
        return self._caches.states(sequence)

    def extend(self, sequence: int, parts: Sequence[Rows], tokens: int, states: Rows) -> None:
        """Raise an error, since `rows` never returns rows to add."""
        raise GenerationError("caches: rows of one rank cannot extend a sequence that all ranks have")

    def reserve(self, sequence: int, tokens: int, spare: int = 0) -> bool:
        """Reserve memory for new tokens of a sequence if `spare` pages remain free; return whether it did."""
        self._send(ReserveTokens(sequence, tokens, spare))
        return self._caches.reserve(sequence, tokens, spare)


class LedSelection:
    """A selection of the leader's sequences for one call, which implements `SelectedCaches`."""

    def __init__(self, selection: SelectedCaches, chosen: tuple[int, ...], send: SendOperation) -> None:
        """Store the selection; `chosen` are its sequences in the caller's order."""
        self._selection, self._chosen, self._send = selection, chosen, send

    @property
    def length(self) -> int:
        """Return the number of tokens of the longest sequence."""
        return self._selection.length

    @property
    def sequences(self) -> Sequence[int]:
        """Return the numbers of the sequences, in the order that the rows of inputs must have."""
        return self._selection.sequences

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each sequence: i64[sequences]."""
        return self._selection.lengths

    def mask(self, tokens: int) -> np.ndarray:
        """Return which rows are tokens after this number of new tokens of each sequence: i64[sequences, rows]."""
        return self._selection.mask(tokens)

    def run(self, inputs: Mapping[str, np.ndarray], tokens: int | Sequence[int]) -> dict[str, np.ndarray]:
        """Run the model on all ranks for new tokens of each sequence; return its other outputs."""
        counts = tokens if isinstance(tokens, int) else tuple(tokens)
        self._send(RunModel(self._chosen, inputs, counts))
        return self._selection.run(inputs, tokens)


def follow(decoder: CompiledDecoder, operations: Iterable[CacheOperation]) -> None:
    """Repeat the operations of the leader until there are no more."""
    caches: EngineCaches | None = None
    for operation in operations:
        if isinstance(operation, NewCaches):
            caches = None  # those before give their memory back first, as they do where the leader is
            caches = decoder.new_pool(operation.capacity, operation.count, operation.block)
            continue
        if caches is None:
            raise GenerationError("ranks: the leader uses caches that it has not begun with")
        if isinstance(operation, RewindSequence):
            caches.rewind(operation.sequence, operation.length)
        elif isinstance(operation, CopySequence):
            caches.copy(operation.source, operation.target, operation.length)
        elif isinstance(operation, ReserveTokens):
            caches.reserve(operation.sequence, operation.tokens, operation.spare)
        else:
            caches.select(operation.sequences, {}).run(operation.inputs, operation.tokens)
