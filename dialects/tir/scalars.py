"""Scalar operations and constants."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir


def create(name: str, result: ir.Type, *operands: Any, **attributes: Any) -> Any:
    """Emit one operation with one result at the insertion point."""
    return ir.Operation.create(name, results=[result], operands=list(operands), attributes=attributes).results[0]


def emit_constant(value: float, mlir_type: ir.Type) -> ir.Value:
    if isinstance(mlir_type, ir.FloatType):
        return create("arith.constant", mlir_type, value=ir.FloatAttr.get(mlir_type, float(value)))
    if isinstance(mlir_type, ir.IntegerType):
        width = mlir_type.width
        wrapped = int(value) & ((1 << width) - 1)
        signed = wrapped - (1 << width) if wrapped >> (width - 1) and width > 1 else wrapped
        return create("arith.constant", mlir_type, value=ir.IntegerAttr.get(mlir_type, signed))
    return create("arith.constant", mlir_type, value=ir.IntegerAttr.get(mlir_type, int(value)))
