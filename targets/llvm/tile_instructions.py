"""The rows of target `llvm` in the table of instructions for register tiles."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from itertools import product
from types import MappingProxyType

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction, add_tile_instruction, multiply_add
from mirlo.targets.llvm.intrinsics import amx
from mirlo.targets.llvm.intrinsics.dot_instructions import DOTS, call_arm_dot, call_hvx_dot, call_matrices
from mirlo.targets.llvm.intrinsics.x86 import call_dot, has_dot


def _dot(name: str, is_swapped: bool = False) -> Callable[[ir.Value, ir.Value, ir.Value], ir.Value]:
    """Return what emits a dot product; swapped, columns are its first operand, which is the unsigned one."""

    def emit(row: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
        first, second = (columns, row) if is_swapped else (row, columns)
        if name in DOTS:
            return call_arm_dot(name, total, first, second)
        if name != "vpmaddubsw":
            return call_dot(name, total, first, second)
        pairs = call_dot(name, total, first, second)
        return call_dot("vpmaddwd", total, pairs, emit_constant(1, pairs.type))

    return emit


def _matrices(name: str, operands: tuple[str, str, str], group: int, is_exchanged: bool = False) -> TileInstruction:
    """Return the row of an instruction for two rows and two columns; exchanged, columns are its first operand."""

    def emit(rows: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
        first, second = (columns, rows) if is_exchanged else (rows, columns)
        return call_matrices(name, total, first, second)

    suffix = f".{operands[0]}.{operands[1]}" if is_exchanged else ""
    return TileInstruction(f"{name}{suffix}", (operands,), group, emit, has_pairs=True, is_exchanged=is_exchanged)


def _dots_of_bytes(name: str, swaps: bool, flipped: Container[tuple[str, str]]) -> Iterator[TileInstruction]:
    """Yield the rows of an instruction for four int8 of all signs, of which some flip the sign bits of rows."""
    for left, right in product(("u8", "i8"), repeat=2):
        emit = _dot(name, swaps and right == "u8")
        is_plain = (left, right) not in flipped
        if is_plain and swaps and left == right:
            continue
        suffix = "" if is_plain and (left, right) == ("u8", "i8") else f".{left}.{right}"
        yield TileInstruction(f"{name}{suffix}", ((left, right, "i32"),), 4, emit, flips=not is_plain)


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

EQUAL, MIXED = (("u8", "u8"), ("i8", "i8")), (("u8", "i8"), ("i8", "u8"))
"""The signs of two operands of bytes."""
GROUPS: Mapping[str, tuple[TileInstruction, ...]] = MappingProxyType({
    "vdpbf16ps": (TileInstruction("vdpbf16ps", (("bf16", "bf16", "f32"),), 2, _dot("vdpbf16ps")),),
    "bfdot": (TileInstruction("bfdot", (("bf16", "bf16", "f32"),), 2, _dot("bfdot")),),
    "vpdpbusd": tuple(_dots_of_bytes("vpdpbusd", True, EQUAL)),
    "vpmaddubsw": tuple(_dots_of_bytes("vpmaddubsw", True, EQUAL)),
    "vpmaddwd": (
        TileInstruction("vpmaddwd", (("i16", "i16", "i32"),), 2, _dot("vpmaddwd")),
        *(
            TileInstruction(f"vpmaddwd.{left}.{right}", ((left, right, "i32"),), 2, _dot("vpmaddwd"), widened=16)
            for left, right in (*EQUAL, *MIXED)
        ),
    ),
    "usdot": (
        TileInstruction("usdot", (("u8", "i8", "i32"),), 4, _dot("usdot")),
        TileInstruction("usdot.i8.u8", (("i8", "u8", "i32"),), 4, _dot("usdot", True)),
    ),
    "sdot": (
        TileInstruction("sdot", (("i8", "i8", "i32"),), 4, _dot("sdot")),
        TileInstruction("sdot.u8.i8", (("u8", "i8", "i32"),), 4, _dot("sdot"), flips=True),
    ),
    "udot": (
        TileInstruction("udot", (("u8", "u8", "i32"),), 4, _dot("udot")),
        TileInstruction("udot.i8.u8", (("i8", "u8", "i32"),), 4, _dot("udot"), flips=True),
    ),
    "smmla": (_matrices("smmla", ("i8", "i8", "i32"), 8),),
    "ummla": (_matrices("ummla", ("u8", "u8", "i32"), 8),),
    "usmmla": (
        _matrices("usmmla", ("u8", "i8", "i32"), 8),
        _matrices("usmmla", ("i8", "u8", "i32"), 8, is_exchanged=True),
    ),
    "bfmmla": (_matrices("bfmmla", ("bf16", "bf16", "f32"), 4),),
    "vrmpy": tuple(
        TileInstruction(f"vrmpy.{left}.{right}", ((left, right, "i32"),), 4, partial(call_hvx_dot, (left, right)))
        for left, right in product(("u8", "i8"), repeat=2)
    ),
})  # fmt: skip
"""Instructions that add the products of several adjacent elements to each lane, by the signs of their operands."""


def instruction_of_types(name: str, operands: tuple[str, str, str]) -> TileInstruction:
    """Return the row of an instruction for these types of rows, columns and accumulators."""
    return next(each for each in GROUPS[name] if operands in each.operands)


for _instruction in (
    *WORDS,
    *(each for rows in GROUPS.values() for each in rows),
    *(each for products in amx.PRODUCTS.values() for each in products),
):
    add_tile_instruction(_instruction)
