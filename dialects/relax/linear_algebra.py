"""Linear algebra on the matrices in the last two dims."""

from __future__ import annotations

from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import FLOAT, require_equal_dims, require_kind


class Det(RelaxOp, name="det"):
    """The determinant of each square matrix."""

    x = operand()

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        _require_square(x)
        return x.with_shape(x.shape[:-2])


class Inverse(RelaxOp, name="inverse"):
    """The inverse of each square matrix; the result for a singular matrix is undefined."""

    x = operand()

    @staticmethod
    def infer(x: TensorType) -> TensorType:
        _require_square(x)
        return x


def _require_square(x: TensorType) -> None:
    require_kind(x, FLOAT, "operand")
    if x.rank < 2:
        raise OpError(f"operand must have at least two dims, got {x}")
    require_equal_dims(x.shape[-2], x.shape[-1], f"the last two dims of {x}")
