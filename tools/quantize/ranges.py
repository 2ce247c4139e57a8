"""Ranges of values: by the least and the largest, or by a histogram of all values that occur."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from mirlo.runtime.records import dataclass

BINS = 2048
"""Bins of a histogram: eight for each of the values that int8 has, when nothing is clipped."""
LEVELS = 256
_SHRUNK = np.linspace(0.05, 1.0, 96)
"""Parts of the range that are tried, for entropy and mse."""


@dataclass(frozen=True)
class Quantizer:
    """A scale and a zero point: `value = (quantized - zero) * scale`."""

    scale: np.float32
    zero: int
    low: int = -128
    high: int = 127

    @property
    def range(self) -> tuple[float, float]:
        """Return the least and the largest value that it represents."""
        return (self.low - self.zero) * float(self.scale), (self.high - self.zero) * float(self.scale)

    def stored(self, x: np.ndarray) -> np.ndarray:
        """Return the quantized values."""
        steps = np.clip(np.rint(x / self.scale) + self.zero, self.low, self.high)
        return np.asarray(steps.astype(np.int8 if self.low < 0 else np.uint8))


def quantizer_of(low: float, high: float, unsigned: bool = False) -> Quantizer:
    """Return the quantizer of a range, which represents 0 exactly."""
    bottom, top = (0, 255) if unsigned else (-128, 127)
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / (LEVELS - 1))
    if not scale > np.finfo(np.float32).tiny:
        return Quantizer(np.float32(1), bottom if unsigned else 0, bottom, top)
    zero = int(np.clip(np.rint(bottom - low / float(scale)), bottom, top))
    return Quantizer(scale, zero, bottom, top)


@dataclass
class RangeObserver:
    """The observed values of a tensor: first their limits, then their counts."""

    low: float = np.inf
    high: float = -np.inf
    channels: np.ndarray | None = None
    """The largest magnitude in each channel, where channels are compared."""
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def see_limits(self, x: np.ndarray, by_channel: bool) -> None:
        if not x.size:
            return
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        if by_channel and x.ndim >= 2:
            magnitudes = np.abs(x).max(axis=(0, *range(2, x.ndim)))
            self.channels = magnitudes if self.channels is None else np.maximum(self.channels, magnitudes)

    def count(self, x: np.ndarray) -> None:
        """Count the values between the limits, which are known by now."""
        if self.high > self.low:
            step = (self.high - self.low) / BINS
            bins = ((x.reshape(-1) - np.float32(self.low)) * np.float32(1 / step)).astype(np.int32)
            self.counts += np.bincount(np.clip(bins, 0, BINS - 1), minlength=BINS)

    def range(self, method: str, percentile: float) -> tuple[float, float]:
        """Return the range that a method chooses."""
        if not self.high >= self.low:
            return 0.0, 0.0
        if method == "minmax" or not self.counts.sum():
            return self.low, self.high
        edges = np.linspace(self.low, self.high, BINS + 1)
        if method == "percentile":
            return _percentile(self.counts, edges, percentile)
        cost = _entropy if method == "entropy" else _squared_error
        return _least(self.counts, edges, cost)


def _percentile(counts: np.ndarray, edges: np.ndarray, percentile: float) -> tuple[float, float]:
    """Return the range without as many values at each end as the percentile leaves out."""
    out = (1 - percentile / 100) / 2 * counts.sum()
    below, above = np.cumsum(counts), np.cumsum(counts[::-1])
    low = edges[int(np.searchsorted(below, out, side="right"))]
    high = edges[BINS - int(np.searchsorted(above, out, side="right"))]
    return (low, high) if high > low else (float(edges[0]), float(edges[-1]))


Cost = Callable[[np.ndarray, np.ndarray, float, float], float]


def _least(counts: np.ndarray, edges: np.ndarray, cost: Cost) -> tuple[float, float]:
    """Return the range of least cost: both ends shrink together, then each alone."""
    ends = min(float(edges[0]), 0.0), max(float(edges[-1]), 0.0)
    centres = (edges[1:] + edges[:-1]) / 2
    tried = {(p * ends[0], p * ends[1]): cost(counts, centres, p * ends[0], p * ends[1]) for p in _SHRUNK}
    best = min(tried, key=tried.__getitem__)
    if ends[0] < 0 < ends[1]:
        for side in (0, 1):
            for part in _SHRUNK[::4]:
                each = (part * ends[0], best[1]) if side == 0 else (best[0], part * ends[1])
                tried[each] = cost(counts, centres, *each)
            best = min(tried, key=tried.__getitem__)
    return best


def _squared_error(counts: np.ndarray, centres: np.ndarray, low: float, high: float) -> float:
    quantizer = quantizer_of(low, high)
    steps = (
        np.clip(np.rint(centres / float(quantizer.scale)) + quantizer.zero, quantizer.low, quantizer.high)
        - quantizer.zero
    )
    inside = (centres >= low) & (centres <= high)
    step = float(quantizer.scale)
    # Values within a bin are spread: the error of rounding is that of a uniform distribution, not of the centre alone.
    error = np.where(inside, step * step / 12, (steps * step - centres) ** 2)
    return float((counts * error).sum())


def _entropy(counts: np.ndarray, centres: np.ndarray, low: float, high: float) -> float:
    """Return the divergence between the clipped values and their quantization to 256 levels."""
    inside = (centres >= low) & (centres <= high)
    if inside.sum() < LEVELS:
        return np.inf
    # Zeros are exact in any range. With the many of them after a Relu, what is clipped would seem to be nothing.
    counts = np.where(np.abs(centres) <= centres[1] - centres[0], 0, counts)
    reference = counts[inside].astype(np.float64)
    first, last = np.flatnonzero(inside)[[0, -1]]
    kept = reference.copy()
    reference[0] += counts[:first].sum()
    reference[-1] += counts[last + 1 :].sum()
    level = np.minimum(np.arange(len(kept)) * LEVELS // len(kept), LEVELS - 1)
    total = np.bincount(level, kept, LEVELS)
    used = np.bincount(level, kept > 0, LEVELS)
    mean = np.divide(total, used, out=np.zeros(LEVELS), where=used > 0)
    model = np.where(kept > 0, mean[level], 0.0)
    if not model.sum() or not reference.sum():
        return np.inf
    p, q = reference / reference.sum(), model / model.sum()
    epsilon = 1e-9
    positive = p > 0
    return float((p[positive] * np.log(p[positive] / np.maximum(q[positive], epsilon))).sum())
