"""The rows of target `llvm` in the table of instructions for register tiles."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction, add_tile_instruction
from mirlo.targets.llvm.intrinsics import amx
from mirlo.targets.llvm.intrinsics.x86 import call_dot


def _dot_bf16(row: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
    return call_dot("vdpbf16ps", total, row, columns)


def _dot_int8(row: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
    return call_dot("vpdpbusd", total, row, columns)


for _instruction in (
    TileInstruction("vdpbf16ps", (("bf16", "bf16", "f32"),), 2, _dot_bf16),
    TileInstruction("vpdpbusd", (("u8", "i8", "i32"),), 4, _dot_int8),
    *(each for products in amx.PRODUCTS.values() for each in products),
):
    add_tile_instruction(_instruction)
