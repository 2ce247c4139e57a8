"""What the unit computes, bit by bit, in numpy: the reference of its results.

A product takes five bits of the significand of SrcA and seven of SrcB's, other ones in each fidelity phase. The
products of eight lanes are aligned to the greatest exponent among them, rounded, and summed as integers; two such sums
and the old value of Dst are aligned, added, and rounded again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mirlo_tensix import vector
from mirlo_tensix.instructions import FORMATS, TILE, Format

Bits = NDArray[np.uint16] | NDArray[np.uint32]
"""Numbers as L1 has them: bf16 in 16 bits, tf32 in the first 19 of 32."""
Sums = NDArray[np.uint32]
Integers = NDArray[np.int64]
KEPT = {1: (7, 5), 2: (7, 10), 3: (11, 10), 4: (11, 10)}
"""Bits of the significands of the left operand and of the right one that so many phases multiply."""


def to_bits(values: NDArray[np.float32], kind: Format, kept: int = 24) -> Bits:
    """Return values in a format, rounded to nearest, halves to even, to so many bits of the significand at most."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    lost = 24 - min(kept, kind.significand)
    bits = bits + ((1 << lost - 1) - 1) + (bits >> lost & 1) >> lost << lost
    return (bits >> 16).astype(np.uint16) if kind.bytes == 2 else bits.astype(np.uint32)


def widened(bits: Bits) -> NDArray[np.uint32]:
    """Return numbers as the bits of fp32."""
    return bits.astype(np.uint32) << 16 if bits.dtype == np.uint16 else bits


def from_bits(bits: Bits) -> NDArray[np.float32]:
    return np.ascontiguousarray(widened(bits)).view(np.float32)


def to_tiles(matrix: Bits, fill: int = 0) -> Bits:
    """Return a matrix as tiles of four faces, filled up where it ends within a tile."""
    rows, columns = (-(-size // TILE) for size in matrix.shape)
    whole = np.full((rows * TILE, columns * TILE), fill, matrix.dtype)
    whole[: matrix.shape[0], : matrix.shape[1]] = matrix
    faces = whole.reshape(rows, 2, 16, columns, 2, 16).transpose(0, 3, 1, 4, 2, 5)
    return np.ascontiguousarray(faces)


def from_tiles(tiles: Bits, rows: int, columns: int) -> Bits:
    """Return the matrix of tiles, without what surrounds it."""
    down, right = -(-rows // TILE), -(-columns // TILE)
    faces = tiles.reshape(down, right, 2, 2, 16, 16).transpose(0, 2, 4, 1, 3, 5)
    return faces.reshape(down * TILE, right * TILE)[:rows, :columns]


def _parts(bits: Bits, is_low: bool, is_a: bool) -> tuple[Integers, Integers, Integers]:
    """Return sign, exponent, and the slice of the significand that a phase takes."""
    wide = widened(bits).astype(np.int64)
    exponent = wide >> 23 & 0xFF
    whole = np.where(exponent > 0, (wide & 0x7FFFFF | 0x800000) >> 13, 0)
    high, low = (whole >> 6, whole >> 1 & 31) if is_a else (whole >> 4, (whole & 15) << 3)
    return wide >> 31, exponent, low if is_low else high


def _aligned(magnitude: Integers, borrow: Integers | int, by: Integers) -> Integers:
    by = np.minimum(by, 40)
    half = 1 << np.maximum(by - 1, 0)
    return np.where(by == 0, magnitude, (magnitude + half - borrow) >> by) * (by < 31)


def add_products(sums: Sums, left: Bits, right: Bits, phase: int) -> Sums:
    """Return sums [i, j] plus left [i, 16] times right [16, j], as one MVMUL adds them in a phase."""
    sign_b, exponent_b, piece_b = (part[:, :, None] for part in _parts(left, bool(phase >> 1), False))
    sign_a, exponent_a, piece_a = (part[None] for part in _parts(right, bool(phase & 1), True))
    is_zero = (exponent_a == 0) | (exponent_b == 0)
    adjust = -127 - 5 * (phase & 1) - 7 * (phase >> 1)
    exponent = np.where(is_zero, 0, exponent_a + exponent_b + adjust)
    value = np.where(is_zero, 0, piece_a * piece_b)
    rows, lanes, columns = value.shape
    split = (rows, 2, lanes // 2, columns)
    sign = np.broadcast_to(sign_a ^ sign_b, value.shape).reshape(split)
    exponent, value = exponent.reshape(split), value.reshape(split)
    most = exponent.max(2)
    by = np.minimum(most[:, :, None] - exponent, 30)
    rounded = (2 * value + (1 << by)) >> by + 1
    total = np.where(sign == 1, -rounded, rounded).sum(2)
    total, most = np.where(most > 0, total << 13, 0), np.maximum(most, 0)
    return _plus(sums.astype(np.int64), total, most)


def _plus(old: Integers, total: Integers, most: Integers) -> Sums:
    """Return old sums plus the totals of both groups of lanes, rounded."""
    own = old >> 23 & 0xFF
    significand = np.where(own > 0, old & 0x7FFFFF | 0x800000, 0)
    top = np.maximum(most.max(1), own)
    result = np.where(old >> 31 == 1, -1, 1) * _aligned(significand, 0, top - own)
    for group in range(2):
        each = total[:, group]
        result += np.sign(each) * _aligned(np.abs(each), (each < 0).astype(np.int64), top - most[:, group])
    magnitude = np.abs(result)
    by = 24 - np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    top = top - by
    narrowed = (magnitude + (1 << np.maximum(-by - 1, 0))) >> np.maximum(-by, 0)
    magnitude = np.where(by >= 0, magnitude << np.maximum(by, 0), narrowed)
    top = top + (magnitude >> 24 & 1)
    bits = (result < 0).astype(np.int64) << 31 | np.clip(top, 0, 255) << 23
    bits |= np.where(top >= 255, 0, magnitude & 0x7FFFFF)
    return np.where((result == 0) | (top <= 0), 0, bits).astype(np.uint32)


def product_bits(left: Bits, right: Bits, phases: int, activation: str | None = None) -> Bits:
    """Return the bits of a product of matrices as one core computes them, in the format of its operands.

    For each 32 of the reduction all phases are summed, in each of them the first 16, then the others.
    """
    depth = -(-left.shape[1] // TILE) * TILE
    a = np.zeros((left.shape[0], depth), left.dtype)
    b = np.zeros((depth, right.shape[1]), right.dtype)
    a[:, : left.shape[1]], b[: right.shape[0]] = left, right
    sums = np.zeros((a.shape[0], b.shape[1]), np.uint32)
    for k in range(0, depth, TILE):
        for phase in range(phases):
            for half in (k, k + 16):
                sums = add_products(sums, a[:, half : half + 16], b[half : half + 16], phase)
    if activation is not None:
        v = vector.Body()
        v.store(vector.UNARY[activation](v, v.load(0)), 0)
        tiles = {(0, 0): sums}
        vector.evaluate(v, tiles)
        sums = tiles[0, 0]
    return packed(sums, FORMATS["bf16" if left.dtype == np.uint16 else "tf32"])


def packed(sums: Sums, kind: Format = FORMATS["bf16"]) -> Bits:
    """Return sums as packers write them: bf16 is rounded to nearest, halves away from zero, denormals to zero."""
    if kind.bytes == 4:
        return sums
    is_nan = sums & 0x7FFFFFFF > 0x7F800000
    whole = np.where(is_nan, sums & 0x80000000 | 0x7F800000, sums).astype(np.uint64)
    bits = (whole + 0x8000 >> 16).astype(np.uint16)
    return np.where(bits & 0x7FFF < 0x80, 0, bits).astype(np.uint16)
