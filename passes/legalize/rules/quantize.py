"""Default rules of quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.tir.compute import Expr, TensorExpr, abs_, clamp, constant, identity_of, roundeven, select
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.narrow import decode_float, is_coded
from mirlo.passes.legalize.helpers import saturated, shape_of
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.quantize")
def quantize(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    target = op.dtype

    def body(p: PrimBuilder, x: TensorExpr, scale: TensorExpr, zero_point: TensorExpr | None) -> TensorExpr:
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
def dequantize(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:

    def body(p: PrimBuilder, x: TensorExpr, scale: TensorExpr, zero_point: TensorExpr | None) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            at = parameter_indices(axes, scale.rank, op.axis % max(x.rank, 1), op.block)
            value = x.at(*axes)
            if zero_point is not None:
                is_real = x.dtype.is_float or zero_point.dtype.is_float
                wide = "f32" if is_real else "i32" if x.dtype.bits < 32 else "i64"
                value = value.cast(wide) - zero_point.at(*at).cast(wide)
            work = scale.dtype if scale.dtype.bits >= op.dtype.bits else op.dtype
            work = work if work.bits >= 32 else DTYPES["f32"]
            return (value.cast(work) * scale.at(*at).cast(work)).cast(op.dtype)

        return p.compute(shape_of(op.output), element, name="dequantize")

    return b.call_prim(body, op.x, op.scale, op.zero_point)


@legalize("relax.unpack")
def unpack(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    bits = op.dtype.bits
    count = 8 // bits

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            *outer, last = axes
            byte = x.at(*outer, last // count).cast("i32")
            shifted = byte >> ((last % count).cast("i32") * bits)
            value = decode_float(shifted, op.dtype) if is_coded(op.dtype) else shifted.cast("i8")
            result: Expr = value.cast(op.dtype)
            return result

        return p.compute(shape_of(op.output), element, name="unpack")

    return b.call_prim(body, op.x)


@legalize("relax.quantize_rows")
def quantize_rows(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    block, digits = op.block, op.digits
    _, blocks, rows, _ = shape_of(op.codes)

    def body(p: PrimBuilder, x: TensorExpr) -> tuple[TensorExpr, ...]:
        def value(k: Expr, row: Expr, i: Expr) -> Expr:
            return x.at(row, k * block + i, outside=0.0).cast("f32")

        top = p.reduce("max", (blocks, rows), (block,), lambda k, r, i: abs_(value(k, r, i)), init=0.0, name="largest")
        unit = 127 * 256 ** (digits - 1)
        scale = p.compute((blocks, rows), lambda k, r: top.at(k, r) / float(unit), name="scale")

        def code(d: Expr, k: Expr, row: Expr, i: Expr) -> Expr:
            largest = top.at(k, row)
            is_finite = (largest > 0.0) & (largest < float("inf"))
            inverse = constant(float(unit), "f32") / largest
            rest = select(is_finite, roundeven(value(k, row, i) * inverse), constant(0.0, "f32")).cast("i32")
            digit = rest
            for position in range(1, digits):
                low = (rest << 24) >> 24
                rest = (rest - low) >> 8
                digit = select(d < position, select(d.equals(position - 1), low, digit), rest)
            return digit.cast("i8")

        codes = p.compute((digits, blocks, rows, block), code, name="quantize_rows")
        sums = p.reduce(
            "add", (digits, blocks, rows), (block,),
            lambda d, k, r, i: codes.at(d, k, r, i).cast("i32") * op.offset, name="sums",
        )  # fmt: skip
        return codes, scale, sums

    return b.call_prim(body, op.x)


def _exact(target: DType) -> DType:
    """Return a float type that exactly represents every value of the quantized type, and the next beyond."""
    return DTYPES["f64" if target.bits > 16 else "f32"]


def parameter_indices(axes: Sequence[Expr], rank: int, axis: int, block: int) -> list[Expr]:
    """Return the indices of an element's scale: one per tensor, per position along the axis, or per block."""
    if block:
        return [a // block if i == axis else a for i, a in enumerate(axes)]
    return [] if rank == 0 else [axes[axis]]
