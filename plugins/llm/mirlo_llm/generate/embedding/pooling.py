"""Pooling of the rows of a text's tokens: functions of rows [batch, length, width] and a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

LEAST = 1e-9
"""Lower bound of the divisor of sums, as in sentence-transformers."""


def _cls(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    result: np.ndarray = rows[:, 0]
    return result


def _last(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    result: np.ndarray = rows[np.arange(len(rows)), mask.sum(1) - 1]
    return result


def _max(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.where(mask[:, :, None] != 0, rows, -1e9).max(1)
    return result


def _weighted(rows: np.ndarray, weights: np.ndarray, power: float = 1.0) -> np.ndarray:
    """Return weighted sums of rows, divided by a power of the sum of the weights."""
    sums = np.einsum("blw,bl->bw", rows, weights.astype(rows.dtype))
    result: np.ndarray = sums / np.maximum(weights.sum(1, keepdims=True), LEAST).astype(rows.dtype) ** power
    return result


POOLINGS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cls": _cls,
    "max": _max,
    "mean": _weighted,
    "mean_sqrt_len": lambda rows, mask: _weighted(rows, mask, 0.5),
    "weightedmean": lambda rows, mask: _weighted(rows, mask * np.arange(1, mask.shape[1] + 1)),
    "lasttoken": _last,
}
"""The poolings by their names in sentence-transformers."""
