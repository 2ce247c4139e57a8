"""Emulation of bf16, and the storage of floats as 16 bits: computed in f32."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.lower.calls import find

EMULATE = (
    "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32},"
    "math-extend-to-supported-types{extra-types=f16,f64 target-type=f32},arith-expand{include-bf16=true},canonicalize"
)
"""Passes after which bf16 is only loaded, stored, selected and bitcast."""


def convert_by_f32(root: ir.Module | ir.OpView) -> None:
    """Split conversions between bf16 and floats other than f32 in two steps: the passes above support only f32."""
    narrow, wide = ir.BF16Type.get(), ir.F32Type.get()
    for name in ("arith.extf", "arith.truncf"):
        for op in find(root, name):
            source, target = op.operands[0].type, op.results[0].type
            if narrow not in (source, target) or wide in (source, target):
                continue
            with ir.InsertionPoint(op), op.location:
                first = "arith.extf" if source == narrow or name == "arith.extf" else "arith.truncf"
                second = "arith.truncf" if target in (narrow, ir.F16Type.get()) else "arith.extf"
                value = create(second, target, create(first, wide, op.operands[0]))
            op.results[0].replace_all_uses_with(value)
            op.erase()


def store_as_bits(root: ir.Module | ir.OpView, narrow: ir.Type) -> None:
    """Replace a float of 16 bits with i16 in every type below an operation, including kernel parameters."""
    casts: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "arith.bitcast" and narrow in (op.operands[0].type, op.results[0].type):
            casts.append(op)
        if op.name == "arith.constant" and op.results[0].type == narrow:
            op.attributes["value"] = _bits_of(op.attributes["value"].value, str(narrow))
        arguments = [argument for region in op.regions for block in region.blocks for argument in block.arguments]
        for value in (*op.results, *arguments):
            _retype(value, narrow)
        if op.name == "gpu.func":
            kinds = [argument.type for argument in op.regions[0].blocks[0].arguments]
            op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))
        return ir.WalkResult.ADVANCE

    # Now that everything is i16, casts between the two are between i16 and i16.
    walk(root, visit, ir.WalkOrder.PRE_ORDER)
    for cast in casts:
        cast.results[0].replace_all_uses_with(cast.operands[0])
        cast.erase()


def _retype(value: ir.Value, narrow: ir.Type) -> None:
    bits, kind = ir.IntegerType.get_signless(16), value.type
    if kind == narrow:
        value.set_type(bits)
    elif isinstance(kind, ir.MemRefType) and kind.element_type == narrow:
        value.set_type(ir.MemRefType.get(kind.shape, bits, layout=kind.layout, memory_space=kind.memory_space))


def _bits_of(number: float, kind: str) -> ir.Attribute:
    code = int(np.array(number, ml_dtypes.bfloat16 if kind == "bf16" else np.float16).view(np.uint16))
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(16), code - (1 << 16) if code >> 15 else code)
