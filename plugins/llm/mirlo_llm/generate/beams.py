"""Beam search: the sequence with the largest probability among the best ones of each length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.sampler import NO_TOKEN, Sampler
from mirlo_llm.generate.search import SearchOptions
from mirlo_llm.generate.sequences import Sequences

NEVER = -1e9
"""The score of duplicate beams, so that only the first one is continued."""


@dataclass
class EndedSequences:
    """The best sequences that have ended."""

    count: int
    penalty: float
    """Exponent of the length penalty."""
    found: list[tuple[float, list[int]]] = field(default_factory=list)

    def score(self, total: float, length: int) -> float:
        """Return the score of a sequence with this number of generated tokens."""
        return total / math.pow(length, self.penalty)

    def add(self, total: float, tokens: Sequence[int], prompt: int) -> None:
        """Keep a sequence if it is one of the best."""
        self.found.append((self.score(total, len(tokens) - prompt), list(tokens)))
        self.found.sort(key=lambda each: -each[0])
        del self.found[self.count :]

    def is_final(self, best: float, length: int, stops_early: bool) -> bool:
        """Return whether no longer sequence can have a better score than the ended ones."""
        if len(self.found) < self.count:
            return False
        return stops_early or self.found[-1][0] >= self.score(best, length)


def search_beams(
    sequences: Sequences,
    prompt: Sequence[int],
    options: SearchOptions,
    penalties: Sampler,
    ends: Sequence[int],
    most: int,
) -> list[int]:
    """Return the best continuation of a prompt with up to `most` tokens in all, as Hugging Face defines it.

    `sequences` has as many sequences as there are beams.
    """
    beams = options.num_beams
    ended = EndedSequences(beams, options.length_penalty)
    sequences.tokens = [list(prompt) for _ in range(beams)]
    scores = np.full(beams, NEVER)
    scores[0] = 0.0
    while len(sequences.tokens[0]) < most:
        totals = scores[:, None] + _logarithms(sequences, penalties, len(prompt))
        # Twice as many as there are beams, so that enough remain if half of them end.
        order = np.argsort(-totals, axis=None, kind="stable")[: 2 * beams]
        best = [divmod(int(element), totals.shape[1]) for element in order if np.isfinite(totals.flat[element])]
        for parent, token in best[:beams]:
            if token in ends and totals[parent, token] > NEVER / 2:
                ended.add(float(totals[parent, token]), [*sequences.tokens[parent], token], len(prompt))
        chosen = [(parent, token) for parent, token in best if token not in ends][:beams]
        if not chosen:
            break
        scores = np.array([*(totals[which] for which in chosen), *[NEVER] * (beams - len(chosen))])
        chosen += chosen[:1] * (beams - len(chosen))
        length = len(sequences.tokens[0]) + 1 - len(prompt)
        sequences.select([parent for parent, _ in chosen])
        for row, (_, token) in zip(sequences.tokens, chosen, strict=True):
            row.append(token)
        if ended.is_final(float(totals.max()), length, options.early_stopping):
            break
    else:
        for total, row in zip(scores, sequences.tokens, strict=True):
            ended.add(float(total), row, len(prompt))
    if not ended.found:
        raise GenerationError(NO_TOKEN)
    return ended.found[0][1]


def _logarithms(sequences: Sequences, penalties: Sampler, prompt: int) -> np.ndarray:
    """Return the log probabilities of the next tokens after penalties: f64[beams, vocabulary]."""
    logits = sequences.logits().astype(np.float64)
    top = logits.max(1, keepdims=True)
    if not np.isfinite(top).all():
        raise GenerationError(f"the model's logits are not finite: the largest is {top.max()}")
    logits -= top + np.log(np.exp(logits - top).sum(1, keepdims=True))
    rows = zip(logits, sequences.tokens, strict=True)
    return np.stack([penalties.penalized(values, tokens, prompt) for values, tokens in rows])
