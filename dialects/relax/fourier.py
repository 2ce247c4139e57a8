"""Matrices of discrete Fourier transforms."""

from __future__ import annotations

from math import prod

import numpy as np

from mirlo.dialects.core.attributes import Bool, Dims, ElementType
from mirlo.dialects.core.conditions import require_at_most
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import shape_text

LONGEST = 8192
"""Longest transform that is a product with a matrix; longer ones would need matrices of gigabytes."""
SLAB = 1 << 20
"""Elements of a matrix that are computed at once: a dozen arrays of f64 are of that size."""


def dft_element(
    turns: np.ndarray, n: np.ndarray, part: np.ndarray, result_part: np.ndarray, length: float,
    *, inverse: bool, mirrored: bool,
) -> np.ndarray:  # fmt: skip
    """Return the factor of element n's real (0) or imaginary (1) part in a result's part `result_part`.

    `turns` is n times the result's index, modulo `length`, so that angles of long transforms keep their precision.
    """
    angle = turns * (2 * np.pi) / length
    sine = np.sin(angle) if inverse else -np.sin(angle)
    factor = np.where(part == result_part, np.cos(angle), np.where(part < result_part, sine, -sine))
    if mirrored:  # each element stands for its mirror image too, but for the first and the middle one
        once = np.where((n == 0.0) | (2.0 * n == length), 1.0, 2.0)
        factor = np.where(2.0 * n > length, 0.0, once) * factor
    else:
        factor = np.where(n < length, factor, 0.0)
    return factor / length if inverse else factor


def dft_matrix(
    *, shape: tuple[int, ...], length: tuple[int, ...], inverse: bool, mirrored: bool, dtype: DType
) -> np.ndarray:
    """Return the matrix as an array, computed in f64 in slabs of its elements."""
    result = np.empty(shape, dtype.to_numpy())
    step = max(SLAB // max(prod(shape[1:]), 1), 1)
    for start in range(0, shape[0], step):
        slab = slice(start, min(start + step, shape[0]))
        axes = (slab, *map(slice, shape[1:]))
        n, part, k, result_part = np.ogrid[axes]
        turns = (n * k % length[0]).astype(np.float64)
        result[slab] = dft_element(
            turns, n, part, result_part, float(length[0]), inverse=inverse, mirrored=mirrored
        )  # fmt: skip
    return result


class DftMatrix(RelaxOp, name="dft_matrix"):
    """The factors of a discrete Fourier transform: [elements, parts of each, results, parts of each].

    A part is the real or the imaginary one. Elements beyond `length` have no influence. With `mirrored`, the elements
    are half a spectrum, of which the other half is the mirror image.
    """

    FLOPS_PER_ELEMENT = 40
    meaning = staticmethod(dft_matrix)
    shape = Dims()
    length = Dims()
    inverse = Bool(False)
    mirrored = Bool(False)
    dtype = ElementType()

    @staticmethod
    def infer(
        *, shape: tuple[Dim, ...], length: tuple[Dim, ...], inverse: bool, mirrored: bool, dtype: DType
    ) -> TensorType:
        if len(shape) != 4 or any(isinstance(parts, int) and parts not in (1, 2) for parts in shape[1::2]):
            raise OpError(f"shape must be [elements, 1 or 2, results, 1 or 2], got {shape_text(shape)}")
        if len(length) != 1:
            raise OpError(f"length must be one dim, got {shape_text(length)}")
        require_at_most(1, length[0], f"length must be at least 1, got {length[0]}")
        if not dtype.is_float:
            raise OpError(f"dtype must be a float type, got {dtype}")
        return TensorType(shape, dtype)
