"""Legalization rules of target `c`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.passes.legalize.helpers import tensor_type, wide_dtype
from mirlo.passes.legalize.rules.matmul import sum_products
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.matmul", target="c", name="wide")
def wide_products(op: ir.OpView, b: LegalizeBuilder) -> ir.Value | Decline:
    """Sum products of 16-bit floats in f32, and round once: loops in C would round each product and each sum."""
    element = tensor_type(op.output).dtype
    if op.out_dtype is not None or wide_dtype(element) is element:
        return decline("the accumulators have the type of the result", type=element)
    return sum_products(op, b, wide_dtype(element))
