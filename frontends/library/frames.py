"""Frames of a signal: parts of one length, which begin every few elements and may overlap."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.tensor import Tensor, iota, stack

MAX_SLICES = 4
"""Most elements of frames that are one slice for each. Up to 4 slices are faster than a gather; from 8 on, they are
slower, and take several times longer to compile."""


def frames_of(x: Tensor, axis: int, count: Dim, size: Dim, step: Dim | Tensor) -> Tensor:
    """Return `count` frames of `size` elements along an axis, one every `step`.

    The frames are the axis in the result, and their elements the one after it. A step that is a tensor is of type i64.
    """
    if isinstance(size, int) and isinstance(step, int) and 0 < size <= MAX_SLICES:
        return stack([x.slice(axis, at, count, step) for at in range(size)], axis + 1)
    starts = iota(x.builder, count) * step
    return x.gather(starts.reshape((count, 1)) + iota(x.builder, size), axis)
