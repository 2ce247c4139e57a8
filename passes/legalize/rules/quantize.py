"""Default rules of quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.tir.compute import Expr, TensorExpr, clamp, identity_of, roundeven
from mirlo.passes.legalize.helpers import saturated, shape_of
from mirlo.passes.rules import legalize


@legalize("relax.quantize")
def quantize(op: ir.OpView, b: Any) -> ir.Value:
    target = op.dtype

    def body(p: Any, x: TensorExpr, scale: TensorExpr, zero_point: TensorExpr | None) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            at = parameter_indices(axes, scale.rank, op.axis % max(x.rank, 1), op.block)
            # The quotient decides about rounding, so it is computed as in the reference: in the type of the scale.
            computed = scale.dtype if scale.dtype.bits >= 32 else DTYPES["f32"]
            value = x.at(*axes).cast(computed) / scale.at(*at).cast(computed)
            if target.is_float:
                shifted = value if zero_point is None else value + zero_point.at(*at).cast(computed)
                return saturated(shifted.cast(target))
            value = roundeven(value).cast(_exact(target))
            if zero_point is not None:
                value = value + zero_point.at(*at).cast(value.dtype)
            low, high = (identity_of(kind, target) for kind in ("max", "min"))
            return clamp(value, low, high).cast(target)

        return p.compute(x.shape, element, name="quantize")

    return b.call_prim(body, op.x, op.scale, op.zero_point)


@legalize("relax.dequantize")
def dequantize(op: ir.OpView, b: Any) -> ir.Value:

    def body(p: Any, x: TensorExpr, scale: TensorExpr, zero_point: TensorExpr | None) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            at = parameter_indices(axes, scale.rank, op.axis % max(x.rank, 1), op.block)
            value = x.at(*axes)
            if zero_point is not None:
                wide = "f32" if x.dtype.is_float else "i32" if x.dtype.bits < 32 else "i64"
                value = value.cast(wide) - zero_point.at(*at).cast(wide)
            work = scale.dtype if scale.dtype.bits >= op.dtype.bits else op.dtype
            work = work if work.bits >= 32 else DTYPES["f32"]
            return (value.cast(work) * scale.at(*at).cast(work)).cast(op.dtype)

        return p.compute(shape_of(op.output), element, name="dequantize")

    return b.call_prim(body, op.x, op.scale, op.zero_point)


def _exact(target: DType) -> DType:
    """Return a float type that exactly represents every value of the quantized type, and the next beyond."""
    return DTYPES["f64" if target.bits > 16 else "f32"]


def parameter_indices(axes: Sequence[Expr], rank: int, axis: int, block: int) -> list[Expr]:
    """Return the indices of an element's scale: one per tensor, per position along the axis, or per block."""
    if block:
        return [a // block if i == axis else a for i, a in enumerate(axes)]
    return [] if rank == 0 else [axes[axis]]
