"""Linear algebra on the matrices in the last two dims."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Bool
from mirlo.dialects.core.op import OpError, operand, result
from mirlo.dialects.core.traits import OnnxName
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import FLOAT, require_equal_dims, require_kind


def _elimination_steps(cls: type[RelaxOp], operands: Sequence[Sequence[int]]) -> int:
    """Return the elements of all matrices for each pivot."""
    (shape,) = operands
    return math.prod(shape) * shape[-1]


class Det(RelaxOp, name="det"):
    """The determinant of each square matrix."""

    ONNX = OnnxName("Det")
    meaning = staticmethod(array_meanings.det)
    meaning_steps = classmethod(_elimination_steps)
    x = operand()

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        _require_square(x)
        return x.with_shape(x.shape[:-2])


class Inverse(RelaxOp, name="inverse"):
    """The inverse of each square matrix; the result for a singular matrix is undefined."""

    ONNX = OnnxName("Inverse", domain="com.microsoft", exported=False)
    meaning = staticmethod(array_meanings.inverse)
    meaning_steps = classmethod(_elimination_steps)
    x = operand()

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        _require_square(x)
        return x


class Cholesky(RelaxOp, name="cholesky"):
    """The lower triangle L of each symmetric matrix, so that L times its transpose is the matrix.

    Only the lower triangle of the operand is read; the upper one of the result is 0. Rows from the first on whose
    pivot is not positive are NaN.
    """

    x = operand()

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        _require_square(x)
        return x


class TriangularSolve(RelaxOp, name="triangular_solve"):
    """The solution y of `x y = b`, or of `transpose(x) y = b`, for each triangular matrix x.

    The other triangle of x is not read, and the diagonal neither if it is declared to be ones.
    """

    x = operand()
    b = operand()
    lower = Bool(True)
    transposed = Bool(False)
    unit_diagonal = Bool(False)

    @staticmethod
    def infer(
        x: TensorType, b: TensorType, *, lower: bool, transposed: bool, unit_diagonal: bool
    ) -> TensorType:  # fmt: skip
        _require_square(x)
        if b.rank != x.rank or b.dtype is not x.dtype:
            raise OpError(f"the right side must have the rank and element type of {x}, got {b}")
        for axis in range(x.rank - 1):
            require_equal_dims(x.shape[axis], b.shape[axis], f"dim {axis} of {x} and {b}")
        return b


class Lu(RelaxOp, name="lu"):
    """The factors of each matrix with exchanged rows: L below the diagonal, whose diagonal is ones, and U.

    `pivots` holds the row with which each row was exchanged, in order.
    """

    x = operand()
    factors = result()
    pivots = result()

    @staticmethod
    def infer(x: TensorType) -> tuple[TensorType, TensorType]:
        require_kind(x, FLOAT, "operand")
        if x.rank < 2:
            raise OpError(f"operand must have at least two dims, got {x}")
        *batch, rows, columns = x.shape
        return x, TensorType.of((*batch, D.minimum(rows, columns)), "i32")


def _require_square(x: TensorType) -> None:
    require_kind(x, FLOAT, "operand")
    if x.rank < 2:
        raise OpError(f"operand must have at least two dims, got {x}")
    require_equal_dims(x.shape[-2], x.shape[-1], f"the last two dims of {x}")
