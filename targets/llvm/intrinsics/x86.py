"""Instructions of x86 that no upstream operation stands for."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.targets.llvm.machine import host_machine

_SCALEF: dict[tuple[str, tuple[int, ...] | None], str] = {("f32", (16,)): "ps", ("f64", (8,)): "pd"}
_MXCSR_ROUNDING = 4


def can_scale(b: ValueBuilder, kind: str) -> bool:
    """Whether `scale_by_power` is one instruction for these vectors on the machine that the code is made for."""
    return (kind, b.shape) in _SCALEF and host_machine().vector_bytes == 64


def scale_by_power(b: ValueBuilder, x: Num, whole: Num) -> Num:
    """x · 2^whole, rounded once; of what vanishes or overflows nothing is slow."""
    assert b.shape is not None
    lanes = b.shape[0]
    mask_type, i32 = ir.IntegerType.get_signless(lanes), ir.IntegerType.get_signless(32)
    every_lane = _constant(ir.IntegerAttr.get(mask_type, -1))
    rounding = _constant(ir.IntegerAttr.get(i32, _MXCSR_ROUNDING))
    made = ir.Operation.create(
        "llvm.call_intrinsic",
        results=[x.value.type],
        operands=[x.value, whole.value, x.value, every_lane, rounding],
        attributes={
            "intrin": ir.StringAttr.get(f"llvm.x86.avx512.mask.scalef.{_SCALEF[x.kind, b.shape]}.512"),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([5, 0]),
        },
    )
    return b.num(made.results[0])


def _constant(attribute: Any) -> Any:
    return ir.Operation.create("llvm.mlir.constant", results=[attribute.type], attributes={"value": attribute}).results[
        0
    ]
