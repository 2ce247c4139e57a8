"""Fourier transforms as products with matrices; long ones in steps over factors of their length."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.budget import fits_table
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.fourier import LONGEST, dft_matrix
from mirlo.frontends.library.complex_numbers import Complex
from mirlo.frontends.tensor import Tensor, concat, stack, where

MAX_LENGTH = 2**24
"""Longest transform: computing the factors between its steps takes 400 MB."""
DIRECT = 256
"""Longest transform that is one product where its length has factors."""


def transform_along(parts: list[Tensor], axis: int, length: int, inverse: bool) -> list[Tensor]:
    """Transform along one axis."""
    rank = parts[0].rank
    order = [*(i for i in range(rank) if i != axis), axis]
    result = _transformed([part.permute(order) for part in parts], length, inverse)
    return [part.permute([order.index(i) for i in range(rank)]) for part in result]


def _transformed(parts: list[Tensor], length: int, inverse: bool) -> list[Tensor]:
    """Transform the last dim. Of n = a * b elements, first those that are b apart, and then b neighbours."""
    first = _factor(length)
    if first == 1:
        return _product(parts, (length, length), length, inverse, result_parts=2)
    second = length // first
    outer = parts[0].shape[:-1]
    rank = len(outer) + 2
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    table = [part.reshape((*outer, first, second)).permute(swapped) for part in parts]
    table = _transformed(table, first, inverse)
    table = _times(table, _twiddles(length, second, first, inverse))
    table = _transformed([part.permute(swapped) for part in table], second, inverse)
    return [part.permute(swapped).reshape((*outer, length)) for part in table]


def _factor(length: int) -> int:
    """Return the largest divisor that is at most the root, 1 for lengths that are transformed at once."""
    if length > MAX_LENGTH:
        raise OpError(f"transforms {length} elements: at most {MAX_LENGTH} are supported")
    result = next(i for i in range(int(length**0.5), 0, -1) if length % i == 0) if length > DIRECT else 1
    if result == 1 and length > LONGEST:
        raise OpError(f"transforms {length} elements, a prime number: at most {LONGEST} are supported")
    return result


def _twiddles(length: int, rows: int, columns: int, inverse: bool) -> np.ndarray:
    """Return the factors between the two steps."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    result: np.ndarray = np.exp((2j if inverse else -2j) * np.pi * turns / length)
    return result


def _times(parts: list[Tensor], factors: np.ndarray) -> list[Tensor]:
    re, im = parts
    return (Complex(re, im) * Complex(re.like(factors.real), re.like(factors.imag))).tensors()


def spectrum_of_real(x: Tensor, length: int) -> list[Tensor]:
    """Return the first half of the spectrum of real rows."""
    bins = length // 2 + 1
    if _factor(length) == 1:
        return _product([x], (length, bins), length, False, result_parts=2)
    return [part[..., :bins] for part in _transformed([x, x.filled(0)], length, False)]


def real_of_spectrum(parts: list[Tensor], length: int) -> Tensor:
    """Return the real rows whose spectrum's first half is given."""
    bins = length // 2 + 1
    if _factor(length) == 1:
        return _product(parts, (bins, length), length, True, result_parts=1, mirrored=True)[0]
    real, imaginary = parts
    mirrored = []
    # The spectrum of real numbers has real elements at 0 and in the middle.
    ends = np.ones(bins)
    ends[0] = 0
    if length % 2 == 0:
        ends[-1] = 0
    imaginary = where(Tensor(real.builder, TensorType.of((bins,), "bool"), array=ends == 1), imaginary, 0)
    for part, sign in ((real, 1), (imaginary, -1)):
        rest = part[..., 1 : (length + 1) // 2].flip([part.rank - 1])
        rest = -rest if sign < 0 else rest
        mirrored.append(concat([part, rest], part.rank - 1))
    return _transformed(mirrored, length, True)[0]


def transform_rows(x: Tensor, length: Dim, *, inverse: bool, onesided: bool) -> Tensor:
    """Transform rows [..., elements, 1 or 2 parts] of complex numbers, of which those beyond `length` are cut off.

    The result is [..., bins, 2], or [..., bins, 1] if half a spectrum is transformed back. Sizes may be dynamic.
    """
    *outer, size, parts = x.shape
    mirrored = inverse and onesided
    bins, result_parts = length // 2 + 1 if onesided and not inverse else length, 1 if mirrored else 2
    if isinstance(length, int) and size == (length // 2 + 1 if mirrored else length):
        is_large = not fits_table(*map(D.static_dim, (size, parts, bins, result_parts)), element_bytes=4)
        if length > LONGEST or (is_large and _factor(length) > 1):
            return _transform_long_rows(x, length, inverse=inverse, onesided=onesided)
    matrix = _matrix(x, (size, parts, bins, result_parts), length, inverse=inverse, mirrored=mirrored)
    return (x.reshape((*outer, size * parts)) @ matrix).reshape((*outer, bins, result_parts))


def _transform_long_rows(x: Tensor, length: int, *, inverse: bool, onesided: bool) -> Tensor:
    """Transform rows like `transform_rows`, of a length for which one matrix is too large."""
    is_real = x.shape[-1] == 1
    re = x[..., 0]
    im = re.filled(0) if is_real else x[..., 1]
    if inverse and onesided:
        return real_of_spectrum([re, im], length).expand_dims(-1)
    if onesided and is_real:
        return stack(spectrum_of_real(re, length), re.rank)
    bins = length // 2 + 1 if onesided else length
    return stack([part[..., :bins] for part in _transformed([re, im], length, inverse)], re.rank)


def _product(
    parts: list[Tensor], sizes: tuple[int, int], length: int, inverse: bool, *, result_parts: int,
    mirrored: bool = False,
) -> list[Tensor]:  # fmt: skip
    """Multiply rows with a matrix of a transform."""
    elements, bins = sizes
    if parts[0].shape[-1] != elements:
        raise OpError(f"transforms {parts[0].shape[-1]} elements, where {elements} are expected")
    shape = (elements, len(parts), bins, result_parts)
    matrix = _matrix(parts[0], shape, length, inverse=inverse, mirrored=mirrored, is_planar=True)
    last = parts[0].rank - 1
    result = concat(parts, last) @ matrix
    return [result] if result_parts == 1 else result.split((bins, bins), last)


def _matrix(
    x: Tensor, shape: tuple[Dim, ...], length: Dim, *, inverse: bool, mirrored: bool, is_planar: bool = False
) -> Tensor:
    """Return the matrix of a transform of rows of x: a constant if it is of a known size that is not large.

    Others are computed in each call.

    `shape` is [elements, their parts, results, their parts]. With `is_planar` all real parts come before the imaginary
    ones, else each element's parts are neighbours.
    """
    rows, cols = shape[0] * shape[1], shape[2] * shape[3]
    order = [1, 0, 3, 2] if is_planar else [0, 1, 2, 3]
    known = [dim for dim in (*shape, length) if isinstance(dim, int)]
    is_static = len(known) > len(shape)
    sizes = known[: len(shape)]
    if is_static and not 0 < known[-1] <= LONGEST:
        raise OpError(f"a transform of length {known[-1]} is not supported: from 1 to {LONGEST} are")
    if is_static and sizes[0] > LONGEST:
        raise OpError(f"a transform of {sizes[0]} elements is not supported: at most {LONGEST} are")
    if not is_static or not fits_table(*sizes, element_bytes=4):
        matrix = x.builder.emit(
            "dft_matrix", shape=shape, length=(length,), inverse=inverse, mirrored=mirrored, dtype=x.dtype
        )
        return matrix.permute(order).reshape((rows, cols))
    exact = dft_matrix(shape=tuple(sizes), length=(known[-1],), inverse=inverse, mirrored=mirrored, dtype=x.dtype)
    return x.like(exact.transpose(order).reshape(sizes[0] * sizes[1], sizes[2] * sizes[3]))
