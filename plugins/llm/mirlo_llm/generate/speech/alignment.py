"""Times of tokens by alignment of the decoder's cross-attention with the sound."""

from __future__ import annotations

import numpy as np


def token_ends(queries: np.ndarray, keys: np.ndarray, width: int) -> np.ndarray:
    """Return for each token, in states of the encoder, when it ends: i64[tokens].

    `queries` are f32[heads, tokens, size] and `keys` f32[heads, states, size], of the alignment heads. `width` is the
    width of the median filter over time.
    """
    if not queries.shape[1]:
        return np.zeros(0, np.int64)
    scores = queries @ keys.swapaxes(1, 2) * np.float32(queries.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    deviation = weights.std(1, keepdims=True)
    standard = (weights - weights.mean(1, keepdims=True)) / np.where(deviation > 0, deviation, 1)
    return first_times(-filter_medians(standard, width).mean(0, dtype=np.float32).astype(np.float64))


def filter_medians(values: np.ndarray, width: int) -> np.ndarray:
    """Replace each element by the median of those around it in the last dim, which is mirrored at its ends."""
    side = width // 2
    if values.shape[-1] <= side:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(side, side)], mode="reflect")
    medians: np.ndarray = np.median(np.lib.stride_tricks.sliding_window_view(padded, width, -1), -1)
    return medians


def first_times(costs: np.ndarray) -> np.ndarray:
    """Return the time at which each row begins on the cheapest path through f64[rows, times]: dynamic time warping.

    A path begins in the first row at the first time, and ends in the last one at the last; a step goes to the next
    row, the next time, or both.
    """
    rows, times = costs.shape
    before = _steps(costs)
    result = np.zeros(rows, np.int64)
    i, j = rows - 1, times - 1
    while i > 0:
        step = before[i, j] if j else UP
        if step != LEFT:
            result[i] = j
            i -= 1
        if step != UP:
            j -= 1
    return result


BOTH, UP, LEFT = range(3)
"""Predecessors on a path: the previous row and time, the previous row, or the previous time."""


def _steps(costs: np.ndarray) -> np.ndarray:
    """Return the predecessor of each element on its cheapest path, computed along diagonals, u8[rows, times]."""
    rows, times = costs.shape
    steps = np.full((rows, times), LEFT, np.uint8)
    infinite = np.full(rows + 1, np.inf, np.float32)
    # Totals of the last two diagonals, by rows; before the first row there is one beginning, at no time.
    older, last = infinite.copy(), infinite.copy()
    older[0] = 0
    for diagonal in range(rows + times - 1):
        first, end = max(0, diagonal - times + 1), min(rows, diagonal + 1)
        i = np.arange(first, end)
        both, up, left = older[first:end], last[first:end], last[first + 1 : end + 1]
        is_both, is_up = (both < up) & (both < left), (up < both) & (up < left)
        least = np.where(is_both, both, np.where(is_up, up, left))
        steps[i, diagonal - i] = np.where(is_both, BOTH, np.where(is_up, UP, LEFT))
        total = infinite.copy()
        total[first + 1 : end + 1] = costs[i, diagonal - i] + least
        older, last = last, total
    return steps
