"""Speculative decoding with a smaller draft model."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from mirlo_llm.generate.decoder import CompiledDecoder
from mirlo_llm.generate.sequences import Sequences


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
