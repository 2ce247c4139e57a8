"""Subnormal weights: training with weight decay leaves many, and a product with one takes some 150 cycles on x86."""

from __future__ import annotations

import numpy as np

_MASKS = {4: (np.uint32, 0x7FFFFFFF, 0x007FFFFF), 8: (np.uint64, (1 << 63) - 1, (1 << 52) - 1)}
"""By the bytes of a float: the integers of its bits, those but the sign, and the largest of a subnormal number."""
CHUNK = 1 << 16
"""Elements that are looked at together: they, and twice their bits, stay in the second-level cache."""
NEGLIGIBLE = 2.0**-26
"""A subnormal weight is taken as zero where the largest weight is larger by this factor at least: products with that
round away what the other one adds."""


def flush_subnormals(array: np.ndarray) -> None:
    """Set subnormal elements of a contiguous array of f32 or f64 to zero, if they are negligible beside the largest."""
    if array.dtype.kind != "f" or array.dtype.itemsize not in _MASKS or not array.size:
        return
    kind, magnitude, largest_subnormal = _MASKS[array.dtype.itemsize]
    bits = array.reshape(-1).view(kind)
    chunks = _chunks_with_subnormals(bits, 2 * largest_subnormal)
    if not chunks:
        return
    largest = max(int((bits[start : start + CHUNK] & kind(magnitude)).max()) for start in range(0, bits.size, CHUNK))
    if kind(largest).view(array.dtype.type) * NEGLIGIBLE >= np.finfo(array.dtype).tiny:
        for chunk in chunks:
            magnitudes = chunk & kind(magnitude)
            chunk[(magnitudes - kind(1)) < kind(largest_subnormal)] = 0  # zero wraps around


def _chunks_with_subnormals(bits: np.ndarray, largest: int) -> list[np.ndarray]:
    """Return the chunks with a number of which twice the bits, without the sign, are `largest` or less, but not 0."""
    doubled = np.empty(min(CHUNK, bits.size), bits.dtype)
    chunks = []
    for start in range(0, bits.size, CHUNK):
        chunk = bits[start : start + CHUNK]
        twice = np.add(chunk, chunk, out=doubled[: chunk.size])  # the sign falls out
        if np.subtract(twice, 1, out=twice).min() < largest:  # zero wraps around
            chunks.append(chunk)
    return chunks
