"""Conversion between storage and compute form of elements: bool, index and low-precision types differ."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.value import compare
from mirlo.dialects.tir.compute.emit import BodyEmitter, create, emit_constant
from mirlo.dialects.tir.compute.expr import BOOL, INDEX, Expr
from mirlo.dialects.tir.compute.narrow import decode_float, encode_float, is_coded, wrap_integer

CODE = DTYPES["i32"]


def from_storage(value: ir.Value, element: DType) -> ir.Value:
    """Convert a loaded element to the scalar that is computed with."""
    if element is BOOL:
        zero = emit_constant(0, value.type)
        return compare("ne", value, zero)
    if element is INDEX:
        return create("arith.index_cast", ir.IndexType.get(), value)
    if is_coded(element):
        code = create("arith.extui", ir.Type.parse(CODE.compute), value)
        return emit(decode_float(as_expr(code, CODE), element))
    if element.is_integer and element.bits < 8:
        return emit(wrap_integer(as_expr(value, element)))
    return value


def to_storage(value: ir.Value, element: DType) -> ir.Value:
    """Convert a scalar to its storage form."""
    storage = ir.Type.parse(element.storage)
    if element is BOOL:
        return create("arith.extui", storage, value)
    if element is INDEX:
        return create("arith.index_cast", storage, value)
    if is_coded(element):
        return create("arith.trunci", storage, emit(encode_float(as_expr(value, DTYPES["f32"]), element)))
    if element.is_integer and element.bits < 8:
        return emit(wrap_integer(as_expr(value, element)))
    return value


def as_expr(value: ir.Value, element: DType) -> Expr:
    """Wrap a value as an expression."""
    return Expr("value", (), element, value)


def emit(expr: Expr) -> ir.Value:
    """Emit an expression over values at the insertion point."""
    return BodyEmitter(_leaf).emit(expr)


def _leaf(expr: Expr, emitter: BodyEmitter) -> NoReturn:
    raise TypeError(f"'{expr.op}' has no meaning outside of a block: read a buffer instead")


def number_attribute(value: float, element: DType) -> ir.Attribute:
    """Return a number as an attribute of the storage type."""
    storage = ir.Type.parse(element.storage)
    if isinstance(storage, ir.FloatType):
        return ir.FloatAttr.get(storage, float(value))
    if is_coded(element):
        code = int(np.array(value, np.float32).astype(element.to_numpy()).view(np.uint8))
    else:
        code = int(value)
    wrapped_code = code & ((1 << storage.width) - 1)
    is_negative = wrapped_code >> (storage.width - 1)
    return ir.IntegerAttr.get(storage, wrapped_code - (1 << storage.width) if is_negative else wrapped_code)
