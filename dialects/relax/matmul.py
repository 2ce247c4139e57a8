"""Matrix products."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Bool
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import broadcast_shapes, require_equal_dims, same_dtype


class Matmul(RelaxOp, name="matmul"):
    """numpy's `matmul`: batched over leading dims, vectors allowed; either operand may be read transposed."""

    lhs = operand()
    rhs = operand()
    transpose_lhs = Bool(False)
    transpose_rhs = Bool(False)

    @staticmethod
    def infer(lhs: TensorType, rhs: TensorType, *, transpose_lhs: bool, transpose_rhs: bool) -> TensorType:
        same_dtype("operands", lhs, rhs)
        if lhs.rank == 0 or rhs.rank == 0:
            raise OpError(f"operands must have rank 1 or more, got {lhs} and {rhs}")
        if (transpose_lhs and lhs.rank == 1) or (transpose_rhs and rhs.rank == 1):
            raise OpError("a vector cannot be transposed")
        left = lhs.shape if lhs.rank > 1 else (1, *lhs.shape)
        right = rhs.shape if rhs.rank > 1 else (*rhs.shape, 1)
        m, k = (left[-1], left[-2]) if transpose_lhs else left[-2:]
        k2, n = (right[-1], right[-2]) if transpose_rhs else right[-2:]
        require_equal_dims(k, k2, f"the contracted dims of {lhs} and {rhs}")
        shape = broadcast_shapes(left[:-2], right[:-2])
        shape += ((m,) if lhs.rank > 1 else ()) + ((n,) if rhs.rank > 1 else ())
        return TensorType(shape, lhs.dtype)
