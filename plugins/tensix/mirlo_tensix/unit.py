"""Formats of numbers in L1, and tiles of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirlo_tensix.instructions import FP16_BIAS, TILE, Format

Bits = NDArray[np.uint16] | NDArray[np.uint32] | NDArray[np.float16]
"""Numbers as L1 has them: bf16 in 16 bits, tf32 in the first 19 of 32, fp16."""
DTYPES = {"bf16": np.dtype(np.uint16), "tf32": np.dtype(np.uint32), "fp16": np.dtype(np.float16)}
Sums = NDArray[np.uint32]
Integers = NDArray[np.int64]
KEPT = {1: (7, 5), 2: (7, 10), 3: (11, 10), 4: (11, 10)}
"""Bits of the significands of the left operand and of the right one that this many phases multiply."""


def to_bits(values: NDArray[np.float32], kind: Format, kept: int = 24) -> Bits:
    """Return values in a format, rounded to nearest, halves to even, to this many bits of the significand at most."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    lost = 24 - min(kept, kind.significand)
    bits = bits + ((1 << lost - 1) - 1) + (bits >> lost & 1) >> lost << lost
    if kind.name == "fp16":
        return fp16_bits(bits.astype(np.uint32))
    return (bits >> 16).astype(np.uint16) if kind.bytes == 2 else bits.astype(np.uint32)


def fp16_bits(numbers: Sums) -> Bits:
    """Return the bits of fp32 as fp16, towards zero.

    The largest exponent is one like the others: numbers up to 131,008 have one, what is beyond them is the largest, and
    there are neither infinities nor denormal numbers.
    """
    exponent = (numbers >> 23 & 0xFF).astype(np.int64) - FP16_BIAS
    parts = np.where(exponent > 31, 0x7FFF, exponent << 10 | numbers >> 13 & 0x3FF)
    return np.asarray(numbers >> 16 & 0x8000 | np.where(exponent <= 0, 0, parts), np.uint16).view(np.float16)


def widened(bits: Bits) -> Sums:
    """Return numbers as the bits of fp32."""
    if bits.dtype == np.float16:
        raw = bits.view(np.uint16).astype(np.uint32)
        exponent = raw >> 10 & 31
        return np.where(exponent == 0, 0, (exponent + FP16_BIAS) << 23 | (raw & 0x3FF) << 13) | (raw & 0x8000) << 16
    return bits.astype(np.uint32) << 16 if bits.dtype == np.uint16 else bits


def from_bits(bits: Bits) -> NDArray[np.float32]:
    return np.ascontiguousarray(widened(bits)).view(np.float32)


def to_tiles(matrix: Bits, fill: Any = 0) -> Bits:
    """Return a matrix as tiles of four faces, filled up where it ends within a tile."""
    rows, columns = (-(-size // TILE) for size in matrix.shape)
    whole = np.full((rows * TILE, columns * TILE), fill, matrix.dtype)
    whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    faces = whole.reshape(rows, 2, 16, columns, 2, 16).transpose(0, 3, 1, 4, 2, 5)
    return np.ascontiguousarray(faces)


def from_tiles(tiles: Bits, rows: int, columns: int) -> Bits:
    """Return the matrix of tiles, without padding."""
    down, right = -(-rows // TILE), -(-columns // TILE)
    faces = tiles.reshape(down, right, 2, 2, 16, 16).transpose(0, 2, 4, 1, 3, 5)
    return faces.reshape(down * TILE, right * TILE)[:rows, :columns]
