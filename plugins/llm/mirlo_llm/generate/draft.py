"""Guesses of the next tokens by a smaller draft model, for one sequence or for those of an engine."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from mirlo_llm.caches.cache_arrays import ALL
from mirlo_llm.generate.decoder import CompiledDecoder
from mirlo_llm.generate.sequences import FIRST_CAPACITY, Sequences
from mirlo_llm.generate.slots import common

LATE = 2
"""Most tokens that an engine's sequence lacks in the caches of the draft model after a step: one that was chosen, and
the last guess, if it was right. Those of prompts are computed before."""


class DraftModel:
    """A draft model that guesses the most probable next tokens of one sequence."""

    def __init__(self, decoder: CompiledDecoder, chunk: int) -> None:
        self._sequences = Sequences(decoder, 1, chunk)
        self._context = decoder.config.context

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """Return up to `count` tokens that may follow."""
        if self._context:
            count = min(count, self._context - len(tokens))
        if count < 1:
            return []
        (known,) = self._sequences.tokens
        same = next((i for i, (a, b) in enumerate(zip(tokens, known, strict=False)) if a != b), None)
        self._sequences.rewind(min(len(tokens), len(known)) if same is None else same)
        known.extend(tokens[len(known) :])
        for _ in range(count):
            known.append(int(np.argmax(self._sequences.logits()[0])))
        return known[len(tokens) :]

    def fork(self) -> DraftModel:
        """Return a copy for another sequence."""
        clone = copy.copy(self)
        clone._sequences = self._sequences.fork()
        return clone


class EngineDraft:
    """A draft model that guesses the most probable next tokens of an engine's sequences, in calls that they share."""

    def __init__(self, decoder: CompiledDecoder, count: int, chunk: int) -> None:
        """Create caches for `count` sequences; a call computes up to `chunk` tokens of a prompt."""
        self._decoder, self._chunk = decoder, chunk
        self._pool = decoder.new_pool(FIRST_CAPACITY, count, chunk)
        self._held: list[list[int]] = [[] for _ in range(count)]
        """The tokens of each sequence that the caches hold."""

    def guess(self, sequences: Mapping[int, Sequence[int]], counts: Mapping[int, int]) -> dict[int, list[int]]:
        """Return up to `counts` tokens that may follow each sequence, by their numbers."""
        context = self._decoder.config.context or ALL
        most = {i: min(counts[i], context - len(tokens)) for i, tokens in sequences.items()}
        drafts = {i: list(tokens) for i, tokens in sequences.items() if most[i] > 0 and self._align(i, tokens, most[i])}
        late: dict[int, list[int]] = {}
        for i, tokens in drafts.items():
            late.setdefault(len(tokens) - len(self._held[i]), []).append(i)
        for places in late.values():
            self._extend(places, drafts)
        while places := [i for i, tokens in drafts.items() if len(tokens) - len(sequences[i]) < most[i]]:
            self._extend(places, drafts)
        return {i: tokens[len(sequences[i]) :] for i, tokens in drafts.items()}

    def _align(self, place: int, tokens: Sequence[int], count: int) -> bool:
        """Compute a sequence up to its last tokens; return whether there is memory for it and its guesses."""
        held = self._held[place]
        del held[self._pool.rewind(place, common(tokens, held)) :]
        if not self._pool.reserve(place, len(tokens) - len(held) + count):
            return False
        while (missing := len(tokens) - len(held)) > LATE:
            part = tokens[len(held) : len(held) + min(missing - 1, self._chunk)]
            self._run([place], [part[: self._decoder.call_length(part, self._chunk)]])
        return True

    def _extend(self, places: Sequence[int], drafts: Mapping[int, list[int]]) -> None:
        """Add the most probable next token to each of these sequences, which lack as many tokens."""
        missing = {i: drafts[i][len(self._held[i]) :] for i in places}
        for i, token in self._run(places, list(missing.values())).items():
            drafts[i].append(token)

    def _run(self, places: Sequence[int], parts: Sequence[Sequence[int]]) -> dict[int, int]:
        """Compute as many tokens of each of these sequences; return the most probable next ones."""
        selection = self._pool.select(places, self._decoder.constants)
        new = dict(zip(places, parts, strict=True))
        ordered = [new[i] for i in selection.sequences]
        logits = self._decoder.run_selected(selection, ordered, [self._held[i] for i in selection.sequences], 1)
        for i, part in new.items():
            self._held[i].extend(part)
        return {i: int(np.argmax(rows[-1])) for i, rows in zip(selection.sequences, logits, strict=True)}
