"""Flattening of multi-dimensional vectors for operations that LLVM supports in one dimension only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.intrinsics import emit
from mirlo.passes.lower.values import ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall

FLATTENED = ("fmod", "remainder")


def is_flat(op: IntrinsicCall) -> bool:
    """Return whether the operands are scalars or vectors of one dimension."""
    return not isinstance(op.type, ir.VectorType) or op.type.rank == 1


@intrinsic(*FLATTENED, priority=1)
def lower_flattened(op: IntrinsicCall, b: ValueBuilder) -> ir.Value | Decline:
    """Lower through a vector of one dimension."""
    if op.type is None or is_flat(op):
        return decline("the operands are not vectors of several dimensions")
    flat = [_shape_cast(value, [math.prod(value.type.shape)]) for value in op.args]
    return _shape_cast(emit(op.name, *flat), op.type.shape)


def _shape_cast(value: ir.Value, shape: list[int]) -> ir.Value:
    result = ir.VectorType.get(shape, value.type.element_type)
    return ir.Operation.create("vector.shape_cast", results=[result], operands=[value]).results[0]
