"""The choice of a token from the logits of one position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.generate.errors import GenerationError
from mirlo.generate.search import SearchOptions

HIDDEN = np.float32(-np.inf)


class Sampler:
    """Chooses the tokens of one sequence."""

    def __init__(self, options: SearchOptions, ends: Sequence[int], stream: int = 0) -> None:
        self._options = options
        self._ends = list(ends)
        self._random = np.random.default_rng(options.seed if options.seed is None else [options.seed, stream])
        self._is_plain = not (
            options.repetition_penalty != 1
            or options.frequency_penalty
            or options.presence_penalty
            or options.no_repeat_ngram_size
        )

    def choose(self, logits: np.ndarray, tokens: Sequence[int], prompt: int) -> int:
        """Return the token that follows `tokens`, of which the first `prompt` are given; the logits are not changed."""
        options = self._options
        if not self._is_plain or len(tokens) < options.min_length:
            logits = self._penalized(logits.copy(), tokens, prompt)
        if options.is_greedy:
            chosen = int(np.argmax(logits))
            if not np.isfinite(logits[chosen]):
                raise GenerationError(f"the model's logits are not finite: the largest is {logits[chosen]}")
            return chosen
        return self._drawn(logits)

    def _penalized(self, logits: np.ndarray, tokens: Sequence[int], prompt: int) -> np.ndarray:
        options = self._options
        given = np.asarray(tokens, np.int64)
        if options.repetition_penalty != 1 and len(given):
            seen = np.unique(given)
            values = logits[seen]
            factor = np.float32(options.repetition_penalty)
            logits[seen] = np.where(values > 0, values / factor, values * factor)
        made = given[prompt:]
        if (options.frequency_penalty or options.presence_penalty) and len(made):
            seen, counts = np.unique(made, return_counts=True)
            logits[seen] -= counts * np.float32(options.frequency_penalty) + np.float32(options.presence_penalty)
        size = options.no_repeat_ngram_size
        if size and len(given) >= size:
            windows = np.lib.stride_tricks.sliding_window_view(given, size)
            last = given[len(given) - size + 1 :]
            logits[windows[(windows[:, : size - 1] == last).all(1), size - 1]] = HIDDEN
        if len(given) < options.min_length:
            logits[self._ends] = HIDDEN
        return logits

    def _drawn(self, logits: np.ndarray) -> int:
        """Draw from the softmax of the logits, restricted to the most probable tokens."""
        options = self._options
        places, values = None, logits
        if 0 < options.top_k < len(logits):
            places = np.argpartition(logits, -options.top_k)[-options.top_k :]
            values = logits[places]
        scaled = values.astype(np.float64) / options.temperature
        top = scaled.max()
        if not np.isfinite(top):
            raise GenerationError(f"the model's logits are not finite: the largest is {top}")
        weights = np.exp(scaled - top)
        if options.min_p > 0 or options.top_p < 1:
            order = np.argsort(-weights, kind="stable")
            sums = np.cumsum(weights[order])
            # The first token whose predecessors already have this share is the first that is left out.
            kept = int(np.searchsorted(sums, options.top_p * sums[-1])) + 1 if options.top_p < 1 else len(order)
            kept = max(1, min(kept, int(np.count_nonzero(weights >= options.min_p))))
            places = order[:kept] if places is None else places[order[:kept]]
            weights = weights[order[:kept]]
        sums = np.cumsum(weights)
        chosen = min(int(np.searchsorted(sums, self._random.random() * sums[-1], side="right")), len(sums) - 1)
        return chosen if places is None else int(places[chosen])
