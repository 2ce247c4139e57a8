"""Factorizations with orthogonal matrices: Householder reflections; Jacobi rotations for eigen- and singular values.

Jacobi's method rotates all pairs of rows at once, n / 2 of them, and then exchanges the rows as players in a
tournament, so that n - 1 rounds, a sweep, pair each row with each other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mirlo.extend.frontend import OperationView, Tensor, TensorType, concat, maximum, minimum, where
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import transposed

MAX_SWEEPS = 30
"""Sweeps of Jacobi's method at most: it converges in about ten."""
PRECISION = {"f32": 1e-7, "f64": 1e-15}
"""The cosine below which two vectors are orthogonal."""


# Reflections


def qr_factors(op: OperationView, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return R with the reflections' vectors below its diagonal, and their factors, as LAPACK's geqrf does."""
    *batch, rows, columns = x.shape
    count = D.minimum(rows, columns)
    row, column = (op.positions(TensorType.of((rows, columns), "i64"), axis) for axis in (0, 1))
    at = op.positions(TensorType.of((count,), "i64"), 0)
    index = row[:, :1]

    def reflect(values: list[Tensor]) -> list[Tensor]:
        step, matrix, factors = values
        vector = matrix.gather(step.reshape((1,)), axis=matrix.rank - 1)
        alpha = where(index.equals(step), vector, 0).sum(-2, keepdims=True)
        below = where(index > step, vector, 0)
        largest = abs(below).max(-2, keepdims=True)
        scaled = below / where(largest.equals(0), 1, largest)
        norm = (scaled * scaled).sum(-2, keepdims=True).sqrt() * largest
        is_done = norm.equals(0)
        length = _hypotenuse(alpha, norm)
        beta = where(is_done, alpha, where(alpha < 0, length, -length))
        factor = where(is_done, 0, (beta - alpha) / where(is_done, 1, beta))
        tail = below / where(is_done, 1, alpha - beta)
        reflector = where(index.equals(step), 1, tail)
        product = transposed(op, reflector) @ matrix
        rest = matrix - factor * reflector * product
        own = where(index.equals(step), beta, where(index > step, tail, vector))
        result = where(column > step, rest, where(column.equals(step), own, matrix))
        return [step + 1, result, where(at.equals(step), factor.squeeze(-1), factors)]

    start = [op.constant(0, "i64"), x, op.constant(0, x.dtype).expand((*batch, count))]
    _, matrix, factors = op.builder.repeat(start, lambda values: values[0] < op.size(count), reflect)
    return matrix, factors


def _hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    """Return sqrt(x^2 + y^2), which does not overflow before it must."""
    large, small = maximum(abs(x), abs(y)), minimum(abs(x), abs(y))
    ratio = small / where(large.equals(0), 1, large)
    return large * (ratio * ratio + 1).sqrt()


def reflected(op: OperationView, vectors: Tensor, factors: Tensor, y: Tensor, *, is_transposed: bool) -> Tensor:
    """Return Q y, or its transpose times y; Q is stored as reflections: vectors below a diagonal, and factors."""
    count, rows = factors.shape[-1], vectors.shape[-2]
    index = op.positions(TensorType.of((rows, 1), "i64"), 0)
    last = op.size(count) - 1

    def reflect(values: list[Tensor]) -> list[Tensor]:
        step, result = values
        which = (step if is_transposed else last - step).reshape((1,))
        vector = vectors.gather(which, axis=vectors.rank - 1)
        reflector = where(index.equals(which), 1, where(index > which, vector, 0))
        factor = factors.gather(which, axis=factors.rank - 1).expand_dims(-1)
        return [step + 1, result - factor * reflector * (transposed(op, reflector) @ result)]

    start = [op.constant(0, "i64"), y]
    return op.builder.repeat(start, lambda values: values[0] < op.size(count), reflect)[1]


def orthogonal_matrix(op: OperationView, vectors: Tensor, factors: Tensor, columns: D.Dim) -> Tensor:
    """Return the first columns of Q, from its reflections."""
    rows = vectors.shape[-2]
    identity = op.emit("eye", shape=(rows, columns), dtype=vectors.dtype)
    return reflected(op, vectors, factors, identity.expand((*vectors.shape[:-2], rows, columns)), is_transposed=False)


# Rotations


def eigen_symmetric(op: OperationView, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of symmetric matrices in ascending order, and the eigenvectors as columns."""
    size = _rows(x)
    padded = size + size % 2
    square = op.emit("pad", x, pads=[0] * x.rank + [0] * (x.rank - 2) + [padded - size] * 2, mode="constant", value=0.0)
    vectors = _identity_rows(op, square)
    if size > 1:
        square, vectors = _rotate_until(op, [square, vectors], _rotate_symmetric(op, padded), _is_far_symmetric(op))
    values = _diagonal(op, square)[..., :size]
    vectors = vectors[..., :size, :size]  # rows are vectors
    order = op.emit("argsort", values, axis=values.rank - 1, descending=False).cast("i64")
    return values.gather_elements(order, axis=values.rank - 1), transposed(op, _rows_in_order(vectors, order))


def singular_values(op: OperationView, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, the singular values in descending order, and V^T of matrices with columns <= rows.

    Columns of U whose singular value is 0 are 0.
    """
    size = x.shape[-1]
    assert isinstance(size, int), size
    rows = transposed(op, x)
    padded = size + size % 2
    if padded != size:
        rows = concat([rows, op.constant(0, x.dtype).expand((*x.shape[:-2], 1, x.shape[-2]))], -2)
    vectors = _identity_rows(op, rows)
    if size > 1:
        rows, vectors = _rotate_until(op, [rows, vectors], _rotate_rows(op, padded), _is_far_from_orthogonal(op))
    rows, vectors = rows[..., :size, :], vectors[..., :size, :size]
    largest = abs(rows).max(-1, keepdims=True)
    scaled = rows / where(largest.equals(0), 1, largest)
    values = (scaled * scaled).sum(-1).sqrt() * largest.squeeze(-1)
    order = op.emit("argsort", values, axis=values.rank - 1, descending=True).cast("i64")
    values = values.gather_elements(order, axis=values.rank - 1)
    rows, vectors = _rows_in_order(rows, order), _rows_in_order(vectors, order)
    divisors = values.expand_dims(-1)
    left = rows / where(divisors.equals(0), 1, divisors)
    return transposed(op, left), values, vectors


Rotation = Callable[[list[Tensor]], Sequence[Tensor]]


def _rotate_until(
    op: OperationView, carried: list[Tensor], rotate: Rotation, is_far: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Repeat sweeps of rotations until the first tensor has converged."""
    size = _rows(carried[0])
    sweep = max(size - 1, 1)

    def goes_on(values: list[Tensor]) -> Tensor:
        step, first, *_ = values
        is_within = (step % sweep).not_equals(0)
        return is_within | ((step < MAX_SWEEPS * sweep) & is_far(first))

    def follow(values: list[Tensor]) -> list[Tensor]:
        step, *tensors = values
        return [step + 1, *rotate(tensors)]

    return op.builder.repeat([op.constant(0, "i64"), *carried], goes_on, follow)[1:]


def _tournament(op: OperationView, size: int) -> Tensor:
    """Return the order of rows in the next round: the first row stays, the others rotate."""
    half = size // 2
    top, bottom = list(range(half)), list(range(half, size))
    moved = [top[0], bottom[0], *top[1:-1]] if half > 1 else top
    others = [*bottom[1:], top[-1]] if half > 1 else bottom
    return op.constant(np.array([*moved, *others], np.int64))


def _angles(p: Tensor, q: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of the rotations that make [[p, product], [product, q]] diagonal."""
    is_done = product.equals(0)
    ratio = (q - p) / (2 * where(is_done, 1, product))
    tangent = 1 / (abs(ratio) + _hypotenuse(ratio, ratio.filled(1.0)))
    tangent = where(is_done, 0, where(ratio < 0, -tangent, tangent))
    cosine = 1 / (tangent * tangent + 1).sqrt()
    return cosine, tangent * cosine


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return the rows of matrices after rotating each row of the upper half with one of the lower half."""
    upper, lower = x.halves(x.rank - 2)
    c, s = cosine.expand_dims(-1), sine.expand_dims(-1)
    return concat([c * upper - s * lower, s * upper + c * lower], x.rank - 2)


def _rotate_symmetric(op: OperationView, size: int) -> Rotation:
    """Apply a round of Jacobi's method to symmetric matrices, and to the eigenvectors."""
    order, half = _tournament(op, size), size // 2

    def rotate(tensors: list[Tensor]) -> list[Tensor]:
        square, vectors = tensors
        diagonal = _diagonal(op, square)
        product = _diagonal(op, square[..., :half, half:])
        cosine, sine = _angles(diagonal[..., :half], diagonal[..., half:], product)
        both = _rotated(transposed(op, _rotated(square, cosine, sine)), cosine, sine)
        row, column = _places(op, square)
        both = where((row - column).equals(half) | (column - row).equals(half), 0, both)  # but for rounding
        both = both.gather(order, axis=square.rank - 2).gather(order, axis=square.rank - 1)
        return [both, _rotated(vectors, cosine, sine).gather(order, axis=vectors.rank - 2)]

    return rotate


def _rotate_rows(op: OperationView, size: int) -> Rotation:
    """Apply a round of Jacobi's method that makes rows orthogonal, and rotate the vectors too."""
    order = _tournament(op, size)

    def rotate(tensors: list[Tensor]) -> list[Tensor]:
        rows, _ = tensors
        upper, lower = rows.halves(rows.rank - 2)
        p, q, product = ((x * y).sum(-1) for x, y in ((upper, upper), (lower, lower), (upper, lower)))
        cosine, sine = _angles(p, q, product)
        return [_rotated(x, cosine, sine).gather(order, axis=x.rank - 2) for x in tensors]

    return rotate


def _is_far_symmetric(op: OperationView) -> Callable[[Tensor], Tensor]:
    """Return whether off-diagonal elements are still large relative to the matrix."""

    def is_far(square: Tensor) -> Tensor:
        row, column = _places(op, square)
        least = abs(square).max((-2, -1), keepdims=True) * PRECISION[square.dtype.name]
        return (row.not_equals(column) & (abs(square) > least)).any()

    return is_far


def _is_far_from_orthogonal(op: OperationView) -> Callable[[Tensor], Tensor]:
    """Return whether rows are not yet orthogonal, by the cosines between them."""

    def is_far(rows: Tensor) -> Tensor:
        products = rows @ transposed(op, rows)
        row, column = _places(op, products)
        lengths = _diagonal(op, products).sqrt()
        least = lengths.expand_dims(-1) * lengths.expand_dims(-2) * (4 * PRECISION[rows.dtype.name])
        return (row.not_equals(column) & (abs(products) > least)).any()

    return is_far


def _places(op: OperationView, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row index and the column index of each element of matrices."""
    matrix = TensorType.of(x.shape[-2:], "i64")
    return op.positions(matrix, 0), op.positions(matrix, 1)


def _diagonal(op: OperationView, x: Tensor) -> Tensor:
    """Return the diagonals of square matrices."""
    row, column = _places(op, x)
    return where(row.equals(column), x, 0).sum(-1)


def _identity_rows(op: OperationView, x: Tensor) -> Tensor:
    """Return unit matrices of the same number of rows."""
    rows = x.shape[-2]
    return op.emit("eye", shape=(rows, rows), dtype=x.dtype).expand((*x.shape[:-2], rows, rows))


def _rows_in_order(x: Tensor, order: Tensor) -> Tensor:
    """Return the rows of matrices in the specified order."""
    wanted = order.expand_dims(-1).expand((*order.shape, x.shape[-1]))
    return x.gather_elements(wanted, axis=x.rank - 2)


def _rows(x: Tensor) -> int:
    rows = x.shape[-2]
    assert isinstance(rows, int), rows
    return rows
