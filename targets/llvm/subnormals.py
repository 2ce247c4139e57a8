"""Subnormal weights: training with weight decay leaves many, and a product with one takes some 150 cycles on x86."""

from __future__ import annotations

import numpy as np

_MASKS = {4: (np.uint32, 0x7FFFFFFF, 0x007FFFFF), 8: (np.uint64, (1 << 63) - 1, (1 << 52) - 1)}
"""By the bytes of a float: the integers of its bits, those but the sign, and the largest of a subnormal number."""
CHUNK = 1 << 18
"""Elements that are looked at together: they stay in the cache."""
NEGLIGIBLE = 2.0**-26
"""A subnormal weight is taken as zero where the largest weight is larger by this factor at least: products with that
round away what the other one adds."""


def flush_subnormals(array: np.ndarray) -> None:
    """Set subnormal elements of a contiguous array of f32 or f64 to zero, if they are negligible beside the largest."""
    if array.dtype.kind != "f" or array.dtype.itemsize not in _MASKS or not array.size:
        return
    kind, magnitude, largest_subnormal = _MASKS[array.dtype.itemsize]
    bits = array.reshape(-1).view(kind)
    starts = range(0, bits.size, CHUNK)
    tiny = np.finfo(array.dtype).tiny
    chunks: list[tuple[slice, np.ndarray]] = []
    largest = 0
    for start in starts:
        chunk = slice(start, start + CHUNK)
        magnitudes = bits[chunk] & kind(magnitude)
        largest = max(largest, int(magnitudes.max()))
        are_subnormal = (magnitudes - kind(1)) < kind(largest_subnormal)  # zero wraps around
        if are_subnormal.any():
            chunks.append((chunk, are_subnormal))
    if chunks and kind(largest).view(array.dtype.type) * NEGLIGIBLE >= tiny:
        for chunk, are_subnormal in chunks:
            bits[chunk][are_subnormal] = 0
