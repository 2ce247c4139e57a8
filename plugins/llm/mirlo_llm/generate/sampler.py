"""The choice of a token from the logits of one position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.guidance import Guide
from mirlo_llm.generate.search import SearchOptions

NO_TOKEN = (
    "no token may follow: min_length, no_repeat_ngram_size, penalties and the form of the answer leave none; "
    "loosen one of them"
)
HIDDEN = np.float32(-np.inf)
LEAST_TEMPERATURE = 1e-6
"""Smallest temperature that f32 can divide by; lower ones are replaced by it."""
SAMPLE = 2048
"""Size of the sample that gives a lower bound of the largest values."""
BINS, BINS_PER_E = 1024, 32
"""Bins of a histogram of weights, each a factor e^(1/32) apart; the last one has all below e^-32."""


class Sampler:
    """Chooses the tokens of one sequence."""

    def __init__(
        self,
        options: SearchOptions,
        ends: Sequence[int],
        stream: int = 0,
        guide: Guide | None = None,
        bias: Mapping[int, float] | None = None,
    ) -> None:
        """Store the options; `bias` is added to the logits of tokens."""
        self._options, self._bias = options, bias
        self._ends = list(ends)
        self._guide = guide
        self._stream = stream
        self._is_plain = guide is None and not (
            options.repetition_penalty != 1
            or options.frequency_penalty
            or options.presence_penalty
            or options.no_repeat_ngram_size
            or bias
        )

    @cached_property
    def _random(self) -> np.random.Generator:
        """Return the random number generator, created on demand since seeding it is slow."""
        seed = self._options.seed
        return np.random.default_rng(seed if seed is None else [seed, self._stream])

    @property
    def state(self) -> Mapping[str, Any] | None:
        """Return the state of the random numbers; None if none are drawn."""
        return None if self._options.is_greedy else self._random.bit_generator.state

    @state.setter
    def state(self, state: Mapping[str, Any] | None) -> None:
        if state is not None:
            self._random.bit_generator.state = state

    def choose(self, logits: np.ndarray, tokens: Sequence[int], prompt: int) -> int:
        """Return the token after `tokens`, the first `prompt` of which belong to the prompt; logits stay unchanged."""
        options, unchanged = self._options, logits
        if not self._is_plain or len(tokens) < options.min_length:
            logits = self.penalized(logits.copy(), tokens, prompt)
        top = int(np.argmax(logits))
        if not np.isfinite(logits[top]):
            if logits is not unchanged and np.isfinite(unchanged.max()):
                raise GenerationError(NO_TOKEN)
            raise GenerationError(f"the model's logits are not finite: the largest is {logits[top]}")
        return top if options.is_greedy else self._drawn(logits, logits[top])

    def penalized(self, logits: np.ndarray, tokens: Sequence[int], prompt: int) -> np.ndarray:
        """Add biases and penalties to logits in place, and return them."""
        options = self._options
        if self._bias:
            logits[list(self._bias)] += np.fromiter(self._bias.values(), np.float32, len(self._bias))
        earlier = np.asarray(tokens, np.int64)
        if options.repetition_penalty != 1 and len(earlier):
            scored = earlier[earlier < len(logits)]  # those of images are never chosen
            values = logits[scored]  # tokens that occur twice get one value twice
            factor = np.float32(options.repetition_penalty)
            logits[scored] = np.where(values > 0, values / factor, values * factor)
        generated = earlier[prompt:]
        if (options.frequency_penalty or options.presence_penalty) and len(generated):
            seen, counts = np.unique(generated, return_counts=True)
            logits[seen] -= counts * np.float32(options.frequency_penalty) + np.float32(options.presence_penalty)
        size = options.no_repeat_ngram_size
        if size and len(earlier) >= size:
            windows = np.lib.stride_tricks.sliding_window_view(earlier, size)
            last = earlier[len(earlier) - size + 1 :]
            following = windows[(windows[:, : size - 1] == last).all(1), size - 1]
            logits[following[following < len(logits)]] = HIDDEN
        if len(earlier) < options.min_length:
            logits[self._ends] = HIDDEN
        if self._guide is not None:
            logits[~self._guide.allowed(tokens[prompt:])] = HIDDEN
        return logits

    def _drawn(self, logits: np.ndarray, top: np.float32) -> int:
        """Draw from the softmax of the logits, the largest of which is `top`, restricted to the most probable ones."""
        options = self._options
        places = _largest(logits, options.top_k) if 0 < options.top_k < len(logits) else None
        values = logits if places is None else logits[places]
        weights = np.exp((values - top) / np.float32(max(options.temperature, LEAST_TEMPERATURE)))
        if options.min_p > 0 or options.top_p < 1:
            kept = _most_probable(weights, options.top_p, options.min_p)
            places = kept if places is None else places[kept]
            weights = weights[kept]
        sums = np.cumsum(weights, dtype=np.float64)
        chosen = min(int(np.searchsorted(sums, self._random.random() * sums[-1], side="right")), len(sums) - 1)
        return chosen if places is None else int(places[chosen])


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the largest values; more than `count` only for ties.

    A sample gives a lower bound, below which values are left out without sorting.
    """
    step = len(values) // SAMPLE
    if step > 1:
        sample = values[::step]
        rank = min(len(sample), 2 * count // step + 8)
        places = np.flatnonzero(values >= np.partition(sample, -rank)[-rank])
        if count <= len(places) < len(values) // 2:
            inner: np.ndarray = places[_largest(values[places], count)]
            return inner
    return np.flatnonzero(values >= np.partition(values, -count)[-count])


def _most_probable(weights: np.ndarray, share: float, least: float) -> np.ndarray:
    """Return the indices of the largest weights that sum to a share of all and are not below `least`.

    The largest weight is 1. A histogram of log weights finds the bin that completes the share; only that bin is sorted.
    """
    if share >= 1:
        return np.flatnonzero(weights >= least)
    with np.errstate(divide="ignore"):
        bins = np.minimum(np.log(weights) * np.float32(-BINS_PER_E), np.float32(BINS - 1)).astype(np.int32)
    sums = np.cumsum(np.bincount(bins, weights, BINS))
    wanted = share * sums[-1]
    last = int(np.searchsorted(sums, wanted))
    before, border = np.flatnonzero(bins < last), np.flatnonzero(bins == last)
    border = border[np.argsort(-weights[border], kind="stable")]
    inner = np.cumsum(weights[border], dtype=np.float64) + (sums[last - 1] if last else 0.0)
    # The first token whose predecessors already have this share is the first that is left out.
    kept = np.concatenate([before, border[: int(np.searchsorted(inner, wanted)) + 1]])
    return kept[weights[kept] >= least] if least > 0 else kept
