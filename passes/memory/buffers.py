"""Buffers of a planned function: their views in other shapes, and constants in storage types."""

from __future__ import annotations

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.dense import read_dense
from mirlo.dialects.core.index_expr import contiguous_strides
from mirlo.dialects.core.types import TensorType


def i8() -> ir.Type:
    return ir.IntegerType.get_signless(8)


def reshaped(buffer: ir.Value, wanted: ir.Type) -> ir.Value:
    """View a contiguous buffer in another shape."""
    if buffer.type == wanted:
        return buffer
    shape = list(wanted.shape)
    return memref.ReinterpretCastOp(wanted, buffer, [], [], [], [0], shape, list(contiguous_strides(shape))).result


def stored(value: ir.Attribute, kind: ir.Type) -> ir.Attribute:
    """Convert a dense attribute of a relax tensor to the storage types of a buffer."""
    tensor = ir.RankedTensorType.get(kind.shape, kind.element_type)
    if value.type == tensor:
        return value
    import numpy as np

    declared = TensorType.from_mlir(value.type)
    assert declared is not None
    raw = read_dense(value, declared)
    bits = np.ascontiguousarray(raw).view(f"u{raw.dtype.itemsize}").reshape(kind.shape)
    return ir.DenseElementsAttr.get(bits, type=tensor)
