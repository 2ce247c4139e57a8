"""Logarithms of the probabilities that a model gives to tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TokenLogprob:
    """The logarithm of the probability of a token, and the most probable tokens in its place."""

    token: int
    logprob: float | None
    """None for the first token of a prompt, which nothing predicts."""
    top: tuple[tuple[int, float], ...]
    """Tokens with the logarithms of their probabilities, the most probable one first."""


def token_logprob(logits: np.ndarray, token: int, most: int) -> TokenLogprob:
    """Return the logarithms for a token and for up to `most` alternatives.

    They are those of the model's own distribution, before penalties, temperatures and forms change it.
    """
    values = logits.astype(np.float64)
    top = values.max()
    values -= top + np.log(np.exp(values - top).sum())
    count = min(most, len(values))
    places = np.argpartition(values, -count)[-count:] if count else np.empty(0, np.intp)
    places = places[np.argsort(-values[places], kind="stable")]
    return TokenLogprob(token, float(values[token]), tuple((int(i), float(values[i])) for i in places))
