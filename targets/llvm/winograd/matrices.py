"""The matrices of Winograd's algorithm F(m x m, 3 x 3), and their products with registers in few operations.

A tile of m + 2 by m + 2 elements becomes B^T d B, the window G g G^T; the elementwise product of both, summed over
the channels, becomes m by m results, A^T p A.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir

Matrix = tuple[tuple[float, ...], ...]


def _input(a: float, b: float) -> Matrix:
    """Return B^T of tiles of 4x4, of the points 0, a, -a, b, -b and infinity."""
    x, y = a * a, b * b
    return (
        (x * y, 0, -x - y, 0, 1, 0), (0, -a * y, -y, a, 1, 0), (0, a * y, -y, -a, 1, 0),
        (0, -b * x, -x, b, 1, 0), (0, b * x, -x, -b, 1, 0), (0, x * y, 0, -x - y, 0, 1),
    )  # fmt: skip


def _output(a: float, b: float) -> Matrix:
    """Return A^T of these points."""
    return tuple((float(i == 0), a**i, (-a) ** i, b**i, (-b) ** i, float(i == 3)) for i in range(4))


def _weight(a: float, b: float) -> Matrix:
    """Return G of these points."""
    x, y = a * a, b * b
    row_a, row_b = 2 * x * (x - y), 2 * y * (y - x)
    return (
        (1 / (x * y), 0, 0), (1 / row_a, a / row_a, x / row_a), (1 / row_a, -a / row_a, x / row_a),
        (1 / row_b, b / row_b, y / row_b), (1 / row_b, -b / row_b, y / row_b), (0, 0, 1),
    )  # fmt: skip


_POINTS, _INTEGER_POINTS = (0.5, 1.5), (1, 2)
"""The points a and b of tiles of 4x4 by their elements: floats have 0.6 of the error that 1 and 2 have, integers are
transformed to integers."""
_INPUT_2 = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
INPUT: dict[int, Matrix] = {2: _INPUT_2, 4: _input(*_POINTS)}
"""B^T by m."""
INTEGER_INPUT: dict[int, Matrix] = {2: _INPUT_2, 4: _input(*_INTEGER_POINTS)}
"""B^T by m, of integers."""
_OUTPUT_2 = ((1, 1, 1, 0), (0, 1, -1, -1))
OUTPUT: dict[int, Matrix] = {2: _OUTPUT_2, 4: _output(*_POINTS)}
"""A^T by m."""
_WEIGHT_2 = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_WEIGHT: dict[int, Matrix] = {2: _WEIGHT_2, 4: _weight(*_POINTS)}
"""G by m."""
_INTEGER_WEIGHT: dict[int, Matrix] = {2: _WEIGHT_2, 4: _weight(*_INTEGER_POINTS)}
"""G by m, for integers."""
_BLOCK = 1024
"""Windows transformed at a time: doubles that fit the cache, in products too small for BLAS threads."""


_INTEGER_ROWS = {2: (2, 2, 2, 2), 4: (4, 6, 6, 24, 24, 1)}
"""What makes integers of the rows of G, by m: transformed windows of int8 fit 16 bits, as transformed tiles do."""
_INTEGER_SCALE = {2: 2, 4: 24}
"""Multiples of all entries of `_INTEGER_ROWS`, by m. Results are too large by the square."""
INTEGER_OUTPUT: dict[int, Matrix] = {
    m: tuple(
        tuple(int(number) * _INTEGER_SCALE[m] // scale for number, scale in zip(row, _INTEGER_ROWS[m], strict=True))
        for row in matrix
    )
    for m, matrix in {2: _OUTPUT_2, 4: _output(*_INTEGER_POINTS)}.items()
}
"""A^T by m, for products with windows whose rows are multiplied by `_INTEGER_ROWS`."""


def transposed(matrix: Matrix) -> Matrix:
    """Return the transpose of a matrix."""
    return tuple(zip(*matrix, strict=True))


def exact_quotient(m: int) -> tuple[int, int]:
    """Return an odd factor and a number of bits: a result times the factor, modulo 2^32, is shifted by the bits.

    Sums of integers are exact modulo 2^32, even if intermediate results exceed 32 bits. The odd part of the square of
    the scale has an inverse modulo 2^32.
    """
    scale = _INTEGER_SCALE[m] ** 2
    bits = (scale & -scale).bit_length() - 1
    return pow(scale >> bits, -1, 1 << 32), bits


def transformed_integers(weight: np.ndarray, m: int) -> np.ndarray:
    """Transform int8, exactly: the rows of G are multiplied by `_INTEGER_ROWS`, in 16 bits."""
    scale = np.asarray(_INTEGER_ROWS[m], np.float64)
    exact = _transformed(weight.astype(np.float64), _on_both_sides(_INTEGER_WEIGHT[m]))
    return np.asarray(np.rint(exact * np.kron(scale, scale)[:, None, None]), np.int16)


def window_matrix(m: int) -> np.ndarray:
    """Return the matrix that transforms flat windows of 3x3, in f64."""
    return _on_both_sides(_WEIGHT[m])


def transformed_weight(weight: np.ndarray, m: int) -> np.ndarray:
    """Transform [3, 3, in, out] to [(m + 2)^2, in, out], computed in f64 and rounded once."""
    return _transformed(weight, window_matrix(m))


def _on_both_sides(matrix: Matrix) -> np.ndarray:
    g = np.asarray(matrix, np.float64)
    return np.kron(g, g)


def _transformed(weight: np.ndarray, both: np.ndarray) -> np.ndarray:
    windows = weight.reshape(both.shape[1], -1)
    array = np.empty((len(both), windows.shape[1]), weight.dtype)
    for start in range(0, windows.shape[1], _BLOCK):
        part = slice(start, start + _BLOCK)
        array[:, part] = both @ windows[:, part].astype(np.float64)
    return array.reshape(-1, *weight.shape[2:])


def multiply(matrix: Matrix, vectors: Sequence[ir.Value], ops: Operations) -> list[ir.Value]:
    """Multiply the matrix by a column of vectors.

    Columns that differ only in signs are added and subtracted first; rows that differ in signs only share partial sums.
    """
    matrix, vectors = _with_paired_columns(matrix, vectors, ops)
    products: dict[int, ir.Value] = {}
    for i, row in enumerate(matrix):
        if i in products:
            continue
        twin = next((k for k in range(i + 1, len(matrix)) if k not in products and _are_twins(row, matrix[k])), None)
        if twin is None:
            products[i] = _combine(row, vectors, ops)
            continue
        same = tuple(a if a == b else 0 for a, b in zip(row, matrix[twin], strict=True))
        other = tuple(a if a != b else 0 for a, b in zip(row, matrix[twin], strict=True))
        common, negated = _combine(same, vectors, ops), _combine(other, vectors, ops)
        products[i], products[twin] = ops.add(common, negated), ops.subtract(common, negated)
    return [products[i] for i in range(len(matrix))]


class Operations:
    """Arithmetic on vectors."""

    def __init__(
        self,
        add: Callable[[ir.Value, ir.Value], ir.Value],
        subtract: Callable[[ir.Value, ir.Value], ir.Value],
        scale: Callable[[ir.Value, float], ir.Value],
        fused: Callable[[ir.Value, float, ir.Value], ir.Value],
    ):
        self.add = add
        self.subtract = subtract
        self.scale = scale
        self.fused = fused
        """`fused(x, constant, y)` is x * constant + y."""


def _with_paired_columns(
    matrix: Matrix, vectors: Sequence[ir.Value], ops: Operations
) -> tuple[Matrix, Sequence[ir.Value]]:
    """Replace pairs of columns that differ only in signs by columns of the sum and the difference of their vectors."""
    columns, taken = list(zip(*matrix, strict=True)), set[int]()
    new: list[tuple[tuple[float, ...], ir.Value]] = []
    for j, column in enumerate(columns):
        if j in taken:
            continue
        others = (k for k in range(j + 1, len(columns)) if k not in taken and _are_twins(column, columns[k]))
        twin = next(others, None)
        if twin is None:
            new.append((column, vectors[j]))
            continue
        taken.add(twin)
        pairs = list(zip(column, columns[twin], strict=True))
        new.append((tuple(a if a == b else 0 for a, b in pairs), ops.add(vectors[j], vectors[twin])))
        new.append((tuple(a if a != b else 0 for a, b in pairs), ops.subtract(vectors[j], vectors[twin])))
    return tuple(zip(*(column for column, _ in new), strict=True)), [vector for _, vector in new]


def _are_twins(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether rows, or columns, differ in the signs of some elements, and share at least one other."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x or y]
    same, negated = sum(x == y for x, y in pairs), sum(x == -y for x, y in pairs)
    return same + negated == len(pairs) and same > 0 and negated > 0


def _combine(row: Sequence[float], vectors: Sequence[ir.Value], ops: Operations) -> ir.Value:
    """Emit the sum of vectors times constants, those with 1 first."""
    terms = sorted(((n, v) for n, v in zip(row, vectors, strict=True) if n), key=lambda term: (term[0] != 1, -term[0]))
    (number, total), *rest = terms
    total = total if number == 1 else ops.scale(total, number)
    for number, vector in rest:
        if number in (1, -1):
            total = ops.add(total, vector) if number == 1 else ops.subtract(total, vector)
        else:
            total = ops.fused(vector, number, total)
    return total
