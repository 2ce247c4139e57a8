"""Values of a few bits, several in a byte, the lowest bits first."""

from __future__ import annotations

import numpy as np


def pack_fields(values: np.ndarray, bits: int) -> np.ndarray:
    """Return values of 1, 2, 4 or 8 bits, one a byte [..., n], in bytes; the last byte of a row may have free bits."""
    count = 8 // bits
    packed: np.ndarray = values[..., ::count].copy()
    for i in range(1, count):
        field = values[..., i::count] << (i * bits)
        packed[..., : field.shape[-1]] |= field
    return packed


def unpack_fields(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return the values in bytes [..., n], one a byte: [..., n * 8 / bits]."""
    count = 8 // bits
    values = np.empty((*packed.shape, count), np.uint8)
    for i in range(count):
        values[..., i] = packed >> (i * bits) & ((1 << bits) - 1)
    return values.reshape(*packed.shape[:-1], packed.shape[-1] * count)
