"""Default rule of conversions between element types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.tir.compute import Expr, is_coded
from mirlo.passes.legalize.helpers import elementwise, saturated
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.cast")
def cast(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    target = op.dtype

    def converted(x: Expr) -> Expr:
        value = x.cast(target)
        return saturated(value) if is_coded(target) and op.saturate else value

    return elementwise(op, b, [op.x], converted)


@legalize("relax.bitcast")
def bitcast(op: ir.OpView, b: LegalizeBuilder) -> Decline | ir.Value:
    source, target = dtype_of_mlir(op.x.type.element_type), op.dtype
    if any(dtype is None or is_coded(dtype) for dtype in (source, target)):
        return decline("floats of 8 bits are numbers in the loops, not codes")

    def converted(x: Expr) -> Expr:
        # Between integers of one size, and bools, values that fit are equal, and others wrap.
        if x.dtype.is_float or target.is_float:
            return x.bitcast(target)
        return x.cast(target)

    return elementwise(op, b, [op.x], converted)
