"""The perplexity of a text: how well a model predicts its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mirlo_llm.generate.caches import BatchCaches
from mirlo_llm.generate.decoder import CompiledDecoder, PaddedTokens
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.json_file import is_count

WINDOW = 512
"""Default number of tokens of a window."""


@dataclass(frozen=True)
class Perplexity:
    """The loss of a model on the tokens of a text."""

    tokens: int
    """Number of predicted tokens: all but the first one of each window."""
    loss: float
    """The mean negative log probability."""

    @property
    def value(self) -> float:
        """Return the perplexity, the exponential of the mean loss."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def split_windows(
    tokens: Sequence[int], window: int | None, context: int, start: Sequence[int] = ()
) -> list[np.ndarray]:
    """Return the windows of a text, one after the other; each has two tokens at least.

    `start` are the tokens that begin texts, as `tokens` do. They replace the first ones of each window, as llama.cpp
    does it: models that were trained with them predict badly without.
    """
    longest = min(limit for limit in (WINDOW if window is None else window, context or WINDOW) if limit)
    if window is not None and (not is_count(window, 2, 1 << 30) or longest < window):
        most = f"to {context}" if context else "on"
        raise GenerationError(f"window: expected a number of tokens from 2 {most}, found {window!r:.40}")
    if len(tokens) < 2:
        raise GenerationError(f"the text has {len(tokens)} tokens: a perplexity needs at least 2")
    windows = [np.array(tokens[at : at + longest], np.int64) for at in range(0, len(tokens), longest)]
    for each in windows:
        each[: len(start)] = start[: len(each)]
    return [each for each in windows if len(each) > 1]


def window_logits(decoder: CompiledDecoder, tokens: np.ndarray, chunk: int) -> Iterator[np.ndarray]:
    """Yield the logits after each token of a window, [tokens of a chunk, vocabulary]."""
    state: BatchCaches = decoder.new_state(len(tokens), 1, chunk)
    for first in range(0, len(tokens), chunk):
        part = tokens[None, first : first + chunk]
        after = first + part.shape[1]
        mask, positions = np.ones((1, after), np.int64), np.arange(first, after)[None]
        new = PaddedTokens(part, mask, positions, (part.shape[1],), [tokens[:first].tolist()])
        yield decoder.run(state, new, part.shape[1])[0]


def sum_losses(logits: np.ndarray, following: np.ndarray) -> float:
    """Return the sum of the negative log probabilities of the tokens that follow rows of logits."""
    rows = logits[: len(following)]
    top = rows.max(-1, keepdims=True)
    sums = np.exp(rows - top).sum(-1, dtype=np.float64)
    chosen = np.take_along_axis(rows, following[:, None], 1)[:, 0]
    return float((np.log(sums) + top[:, 0] - chosen).sum(dtype=np.float64))


def measure_perplexity(decoder: CompiledDecoder, windows: Sequence[np.ndarray], chunk: int) -> Perplexity:
    """Return the perplexity of windows, each computed separately."""
    loss, count = 0.0, 0
    for window in windows:
        at = 1
        for logits in window_logits(decoder, window, chunk):
            following = window[at : at + len(logits)]
            loss, count, at = loss + sum_losses(logits, following), count + len(following), at + len(logits)
    return Perplexity(count, loss / count)
