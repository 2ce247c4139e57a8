"""The rows of target `llvm` in the table of instructions for register tiles."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction, add_tile_instruction, multiply_add
from mirlo.targets.llvm.intrinsics import amx
from mirlo.targets.llvm.intrinsics.x86 import call_dot, has_dot


def _dot_bf16(row: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
    return call_dot("vdpbf16ps", total, row, columns)


def _dot_int8(row: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
    return call_dot("vpdpbusd", total, row, columns)


def _multiply_words(row: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
    """Emit `total + row * columns` of int8 that are extended to i32, by products of 16-bit integers.

    `vpmaddwd` adds the products of the upper and of the lower halves of lanes: the upper halves of one must be zero.
    """
    if not has_dot("vpmaddwd", total):
        return multiply_add(row, columns, total)
    words = ir.VectorType.get([2 * total.type.shape[0]], ir.IntegerType.get_signless(16))
    return call_dot("vpmaddwd", total, *(create("vector.bitcast", words, value) for value in (row, columns)))


def _multiply_signed_words(row: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
    """Emit `total + row * columns` of int8 with signs, without those of the columns in the upper halves of lanes."""
    if not has_dot("vpmaddwd", total):
        return multiply_add(row, columns, total)
    low = ir.DenseElementsAttr.get_splat(columns.type, ir.IntegerAttr.get(columns.type.element_type, LOW_HALF))
    mask = create("arith.constant", columns.type, value=low)
    return _multiply_words(row, create("arith.andi", columns.type, columns, mask), total)


LOW_HALF = 0xFFFF
"""The lower half of an i32."""
WORDS = (
    TileInstruction("vpmaddwd.i8", (("i8", "i8", "i32"),), emit=_multiply_signed_words),
    TileInstruction(
        "vpmaddwd.u8", (("u8", "i8", "i32"), ("i8", "u8", "i32"), ("u8", "u8", "i32")), emit=_multiply_words
    ),
)
"""Products of single int8 in the lanes of their accumulators, in one instruction where `vpmulld` takes two."""

for _instruction in (
    *WORDS,
    TileInstruction("vdpbf16ps", (("bf16", "bf16", "f32"),), 2, _dot_bf16),
    TileInstruction("vpdpbusd", (("u8", "i8", "i32"),), 4, _dot_int8),
    *(each for products in amx.PRODUCTS.values() for each in products),
):
    add_tile_instruction(_instruction)
