"""Memory for outputs between guard bytes, which show whether a kernel wrote outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.dtypes import numpy_dtype

FENCE = 0xA5
BYTES = 64
"""Bytes of a fence, which keep the alignment of what is after them."""


class FencedOutputs:
    """Arrays for the outputs of static shape, to be passed to a call."""

    def __init__(self, outputs: Sequence[TensorSpec]) -> None:
        self._fences: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.arrays: dict[str, np.ndarray] = {}
        for spec in outputs:
            if spec.dtype == "string" or not all(isinstance(dim, int) for dim in spec.shape):
                continue
            dtype = numpy_dtype(spec.dtype)
            stop = BYTES + prod(spec.static_shape) * dtype.itemsize
            memory = np.full(stop + BYTES, FENCE, np.uint8)
            self._fences[spec.name] = memory[:BYTES], memory[stop:]
            self.arrays[spec.name] = memory[BYTES:stop].view(dtype).reshape(spec.static_shape)

    def overwritten(self) -> str | None:
        """Return the bytes that were written outside of an array; None if there are none."""
        for name, fences in self._fences.items():
            for fence, place in zip(fences, ("before", "behind"), strict=True):
                count = np.count_nonzero(fence != FENCE)
                if count:
                    return f"'{name}': {count} bytes {place} it were overwritten"
        return None
