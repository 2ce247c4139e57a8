"""Quotients of sizes by powers of two as shifts: upstream expands each floor division to seven instructions."""

from __future__ import annotations

from mirlo.dialects.bindings import arith, ir
from mirlo.dialects.core.value import integer_of


def shift_quotients(module: ir.Module) -> None:
    """Replace the floor divisions by powers of two outside of loops, where sizes are computed, by shifts."""
    for function in module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                for op in list(block.operations):
                    if isinstance(op, arith.FloorDivSIOp):
                        _shift(op.operation)


def _shift(division: ir.Operation) -> None:
    dividend, divisor = division.operands
    number = integer_of(divisor)
    if number is None or number <= 0 or number & (number - 1):
        return
    with ir.InsertionPoint(division), division.location:
        places = ir.IntegerAttr.get(divisor.type, number.bit_length() - 1)
        shifted = arith.ShRSIOp(dividend, arith.ConstantOp(divisor.type, places).result).result
    division.results[0].replace_all_uses_with(shifted)
    division.erase()
