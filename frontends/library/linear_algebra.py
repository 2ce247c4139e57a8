"""Factors of matrices and triangular systems, for the import of any program."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import OperationView
from mirlo.frontends.tensor import Tensor


def transposed(op: OperationView, x: Tensor) -> Tensor:
    """Return each matrix transposed."""
    rank = x.rank
    return x.permute([*range(rank - 2), rank - 1, rank - 2])


def cholesky(op: OperationView, x: Tensor, *, lower: bool) -> Tensor:
    """Return the Cholesky factor of each matrix; the upper one is the transpose of the lower one."""
    result = op.emit("cholesky", x if lower else transposed(op, x))
    return result if lower else transposed(op, result)


def solve_triangular(
    op: OperationView, a: Tensor, b: Tensor, *, left: bool = True, lower: bool, is_transposed: bool = False,
    unit: bool = False,
) -> Tensor:  # fmt: skip
    """Solve a y = b, or y a = b by the transpose."""
    words = {"lower": lower, "transposed": is_transposed == left, "unit_diagonal": unit}
    result = op.emit("triangular_solve", a, b if left else transposed(op, b), **words)
    return result if left else transposed(op, result)


def first_on_diagonal(op: OperationView, flags: Tensor) -> Tensor:
    """Return the number, from 1, of the first true element on each diagonal; 0 if there is none."""
    *_, rows, columns = flags.shape
    size = D.minimum(rows, columns)
    row, column = (op.positions(TensorType.of((size, size), "i64"), axis) for axis in (0, 1))
    diagonal = flags[..., :size, :size] & row.equals(column)
    marked = diagonal.any(-1)
    numbers = marked.cast("i32")
    result = numbers.max(-1)
    position = numbers.argmax(-1).cast("i32")
    return result * (position + 1)


def first_zero_pivot(op: OperationView, factors: Tensor) -> Tensor:
    """Return the number, from 1, of the first pivot of each matrix that is 0; 0 if none is."""
    return first_on_diagonal(op, factors.equals(0))


def first_without_root(op: OperationView, factors: Tensor) -> Tensor:
    """Return the number, from 1, of the first pivot of each Cholesky factor that is not positive; 0 if none is."""
    return first_on_diagonal(op, factors.isnan())
