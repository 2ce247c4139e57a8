"""Default rules of operators that create tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax.fourier import dft_element
from mirlo.dialects.tir.compute import Expr, TensorExpr, constant, maximum, select
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.numpy_functions import as_scalar_function
from mirlo.passes.legalize.helpers import shape_of
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.full")
def full(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)
    return b.call_prim(lambda p: p.compute(shape, lambda *_: constant(op.value, op.dtype), name="full"))


@legalize("relax.arange")
def arange(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)

    def element(i: Expr) -> Expr:
        # Computed in f64 (or i64 for integers), so that the last element is as exact as the first.
        if op.dtype.is_integer and op.start.is_integer() and op.step.is_integer():
            return (i.cast("i64") * int(op.step) + int(op.start)).cast(op.dtype)
        result: Expr = (i.cast("f64") * op.step + op.start).cast(op.dtype)
        return result

    return b.call_prim(lambda p: p.compute(shape, element, name="arange"))


@legalize("relax.eye")
def eye(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)

    def element(i: Expr, j: Expr) -> Expr:
        return select(j.equals(i + op.k), constant(1, op.dtype), constant(0, op.dtype))

    return b.call_prim(lambda p: p.compute(shape, element, name="eye"))


@legalize("relax.tri")
def tri(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            row, column = axes[-2:]
            kept = column >= row + op.k if op.upper else column <= row + op.k
            return select(kept, x.at(*axes), constant(0, x.dtype))

        return p.compute(x.shape, element, name="tri")

    return b.call_prim(body, op.x)


_dft_element = as_scalar_function(dft_element)


@legalize("relax.dft_matrix")
def dft_matrix(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    shape = shape_of(op.output)

    def element(n: Expr, part: Expr, k: Expr, result_part: Expr) -> Expr:
        length = constant(op.length[0], "i64")
        turns = n.cast("i64") * k.cast("i64") % maximum(length, 1)  # a call may find a length of 0
        numbers = (each.cast("f64") for each in (turns, n, part, result_part, length))
        return _dft_element(*numbers, inverse=op.inverse, mirrored=op.mirrored).cast(op.dtype)

    return b.call_prim(lambda p: p.compute(shape, element, name="dft_matrix"))
