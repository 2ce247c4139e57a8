"""Default rules of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import Expr, ExprLike, TensorExpr
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.passes.legalize.helpers import shape_of, tensor_type, wide_dtype
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.dialects.core.dtypes import DType
    from mirlo.passes.legalize.builder import LegalizeBuilder


def _batch(tensor: TensorExpr, axes: Sequence[Expr]) -> list[ExprLike]:
    """Return indices of the leading dims, broadcast against the output's batch axes."""
    dims = tensor.shape[:-2]
    own = axes[len(axes) - len(dims) :] if dims else ()
    return [0 if dim == 1 else axis for dim, axis in zip(dims, own, strict=True)]


@legalize("relax.matmul")
def matmul(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    return sum_products(op, b, op.out_dtype)


def sum_products(op: ir.OpView, b: LegalizeBuilder, sum_type: DType | None) -> ir.Value:
    """Legalize a product with accumulators of a type, by default that of the operands, and round sums to the result."""
    left_transposed, right_transposed = op.transpose_lhs, op.transpose_rhs
    shape, result = shape_of(op.output), tensor_type(op.output).dtype

    def body(p: PrimBuilder, lhs: TensorExpr, rhs: TensorExpr) -> TensorExpr:
        left_vector, right_vector = lhs.rank == 1, rhs.rank == 1
        k = lhs.shape[-2] if left_transposed else lhs.shape[-1]
        batch = len(shape) - (not left_vector) - (not right_vector)

        def element(*axes: Expr) -> Expr:
            leading, kk = axes[:batch], axes[-1]
            rest = list(axes[batch:-1])
            m = None if left_vector else rest.pop(0)
            n = None if right_vector else rest.pop(0)
            left = (kk, m) if left_transposed else (m, kk)
            right = (n, kk) if right_transposed else (kk, n)
            x = lhs.at(kk) if left_vector else lhs.at(*_batch(lhs, leading), *left)
            y = rhs.at(kk) if right_vector else rhs.at(*_batch(rhs, leading), *right)
            if sum_type is not None:
                x, y = x.cast(sum_type), y.cast(sum_type)
            return x * y

        total = p.reduce("add", shape, (k,), element, name="matmul")
        if total.dtype is result:
            return total
        return p.compute(shape, lambda *axes: total.at(*axes).cast(result), name="cast")

    return b.call_prim(body, op.lhs, op.rhs)


def wide_products(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Sum products of 16-bit floats in f32 and round once, for targets whose loops would round each sum."""
    element = tensor_type(op.output).dtype
    if op.out_dtype is not None or wide_dtype(element) is element:
        return decline("the accumulators have the type of the result", type=element)
    return sum_products(op, b, wide_dtype(element))
