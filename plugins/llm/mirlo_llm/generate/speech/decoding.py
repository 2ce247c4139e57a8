"""Choice of the tokens of a transcript: texts between timestamps that do not decrease."""

from __future__ import annotations

import numpy as np

from mirlo_llm.generate.speech.config import SpeechTokens

HIDDEN = np.float32(-np.inf)


class TranscriptRules:
    """Whisper's rules for token sequences: a segment is a timestamp, a text and a timestamp."""

    def __init__(self, tokens: SpeechTokens, vocabulary: int) -> None:
        self._tokens = tokens
        self._always = np.array([*tokens.hidden, *([] if tokens.no_times is None else [tokens.no_times])], np.int64)
        self._has_times = tokens.first_time < vocabulary

    def choose(self, logits: np.ndarray, chosen: list[int]) -> tuple[int, float]:
        """Return the token that follows those chosen so far, and the logarithm of its probability."""
        logits, tokens = logits.copy(), self._tokens
        logits[self._always] = HIDDEN
        if not chosen:
            logits[list(tokens.hidden_first)] = HIDDEN
        if self._has_times:
            self._hide_by_times(logits, chosen)
        logarithms = logits - _log_sum(logits)
        if self._has_times:
            times, texts = logarithms[tokens.first_time :], logarithms[: tokens.first_time]
            if _log_sum(times) > texts.max():
                logarithms[: tokens.first_time] = HIDDEN
        token = int(np.argmax(logarithms))
        return token, float(logits[token] - _log_sum(logits))

    def _hide_by_times(self, logits: np.ndarray, chosen: list[int]) -> None:
        tokens, first = self._tokens, self._tokens.first_time
        was_time = bool(chosen) and chosen[-1] >= first
        was_pair = len(chosen) < 2 or chosen[-2] >= first
        if was_time and was_pair:
            logits[first:] = HIDDEN
        elif was_time:  # the text has ended: its last time, or the end
            logits[: tokens.end] = HIDDEN
        earlier = [token for token in chosen if token >= first]
        if earlier:
            logits[first : earlier[-1] + (0 if was_time and not was_pair else 1)] = HIDDEN
        if not chosen:
            logits[:first] = HIDDEN
            if tokens.latest_start is not None:
                logits[first + tokens.latest_start + 1 :] = HIDDEN


def _log_sum(values: np.ndarray) -> float:
    """Return the logarithm of the sum of exponentials."""
    top = float(values.max(initial=-np.inf))
    if not np.isfinite(top):
        return top
    return top + float(np.log(np.exp(values - np.float32(top)).sum(dtype=np.float64)))
