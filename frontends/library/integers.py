"""Floats as integers that saturate, and the bits of integers."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.tensor import Tensor, maximum, where


def saturating_cast(x: Tensor, target: DType) -> Tensor:
    """Return floats as integers of 8 bits and more: cut off, outside of the type its nearest value, NaN 0."""
    if x.dtype.bits < 32:
        x = x.cast("f32")
    limits = np.iinfo(target.to_numpy())
    above = x >= float(limits.max + 1)
    outside = above | x.isnan()
    bounded = maximum(x, float(limits.min))
    result = where(outside, 0, bounded).cast(target)
    return where(above, limits.max, result)


def count_ones(x: Tensor) -> Tensor:
    """Return how many bits of unsigned integers are set: they are added up in fields of 2, 4, 8 bits, and so on."""
    bits, width = x.dtype.bits, 1
    while width < bits:
        mask = x.like(np.array(sum(((1 << width) - 1) << at for at in range(0, bits, 2 * width)), np.uint64))
        high = x >> width
        x = (x & mask) + (high & mask)
        width *= 2
    return x


def count_leading_zeros(x: Tensor) -> Tensor:
    """Return how many bits of unsigned integers are above the first that is set: those below it are set, too."""
    distance = 1
    while distance < x.dtype.bits:
        shifted = x >> distance
        x = x | shifted
        distance *= 2
    return count_ones(~x)
