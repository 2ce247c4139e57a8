"""Log probabilities of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TokenLogprob:
    """The log probability of a token, and the most probable alternatives."""

    token: int
    logprob: float | None
    """The log probability; None for the first token of a prompt."""
    top: tuple[tuple[int, float], ...]
    """Alternatives with their log probabilities, the most probable one first."""


def token_logprob(logits: np.ndarray, token: int, most: int) -> TokenLogprob:
    """Return the log probabilities of a token and of up to `most` alternatives.

    They are those of the model, before penalties, temperature and constraints.
    """
    values = logits.astype(np.float64)
    top = values.max()
    values -= top + np.log(np.exp(values - top).sum())
    count = min(most, len(values))
    places = np.argpartition(values, -count)[-count:] if count else np.empty(0, np.intp)
    places = places[np.argsort(-values[places], kind="stable")]
    return TokenLogprob(token, float(values[token]), tuple((int(i), float(values[i])) for i in places))
