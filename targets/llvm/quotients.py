"""Quotients of sizes by powers of two as shifts: upstream expands each floor division to seven instructions."""

from __future__ import annotations

from mirlo.dialects.bindings import arith, ir


def shift_quotients(module: ir.Module) -> None:
    """Replace the floor divisions of functions by powers of two, outside of loops, where sizes are computed."""
    for function in module.body.operations:
        for region in function.operation.regions:
            for block in region.blocks:
                for op in list(block.operations):
                    if isinstance(op, arith.FloorDivSIOp):
                        _shift(op.operation)


def _shift(division: ir.Operation) -> None:
    dividend, divisor = division.operands
    constant = divisor.owner
    if isinstance(constant, ir.Block) or constant.name != "arith.constant":
        return
    value = constant.attributes["value"]
    if not isinstance(value, ir.IntegerAttr) or value.value <= 0 or value.value & (value.value - 1):
        return
    with ir.InsertionPoint(division), division.location:
        places = ir.IntegerAttr.get(divisor.type, value.value.bit_length() - 1)
        shifted = arith.ShRSIOp(dividend, arith.ConstantOp(divisor.type, places).result).result
    division.results[0].replace_all_uses_with(shifted)
    division.erase()
