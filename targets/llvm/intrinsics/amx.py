"""AMX: the matrix unit of x86, by numbers of its registers.

LLVM's intrinsics with numbers keep their order and their registers. Those with values (`llvm.x86.*.internal`) spill
where registers have several shapes, and end the process at some levels of optimization.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import enclosing
from mirlo.passes.schedule.primitives.tile_instruction import MatrixUnit, TileInstruction
from mirlo.runtime.records import dataclass

ROWS = "tir.tile_rows"
"""Attribute of an intrinsic: the rows of the register that it changes or stores."""
MATRIX_UNIT = "tir.matrix_unit"
"""Attribute of a function that uses the registers."""
REGISTERS = 8
MOST_ROWS, ROW_BYTES = 16, 64
CYCLES = 16.0
"""Cycles of a product, however many rows it has."""


@dataclass(frozen=True)
class AmxUnit:
    """Emits AMX's instructions; the pass `configure-tiles` configures the registers."""

    registers: int = REGISTERS

    def zero(self, register: int, rows: int) -> None:
        _call("tilezero", rows, _number(register))

    def load(self, register: int, address: ir.Value, pitch: ir.Value, rows: int) -> None:
        _call("tileloadd64", rows, _number(register), address, pitch)

    def store(self, register: int, address: ir.Value, pitch: ir.Value, rows: int) -> None:
        _call("tilestored64", rows, _number(register), address, pitch)

    def multiply(self, instruction: str, sums: int, rows: int, columns: int) -> None:
        _call(instruction, 0, *map(_number, (sums, rows, columns)))


AMX: MatrixUnit = AmxUnit()


def _product(name: str, rows: str, columns: str, sums: str, group: int) -> TileInstruction:
    shape = (MOST_ROWS, ROW_BYTES // 4, MOST_ROWS * group)
    return TileInstruction(name, ((rows, columns, sums),), group, unit=AMX, shape=shape, cycles=CYCLES)


PRODUCTS: dict[str, tuple[TileInstruction, ...]] = {
    "bf16": (_product("tdpbf16ps", "bf16", "bf16", "f32", 2),),
    "i8": (
        _product("tdpbssd", "i8", "i8", "i32", 4),
        _product("tdpbsud", "i8", "u8", "i32", 4),
        _product("tdpbusd", "u8", "i8", "i32", 4),
        _product("tdpbuud", "u8", "u8", "i32", 4),
    ),
}
"""By what `Machine.tiles` calls them, the products of bf16, and of int8 with and without signs."""


def call(name: str, *operands: ir.Value) -> ir.Operation:
    """Emit an intrinsic of x86 without a result."""
    sizes = ir.DenseI32ArrayAttr.get
    return ir.Operation.create(
        "llvm.call_intrinsic",
        operands=list(operands),
        attributes={
            "intrin": ir.StringAttr.get(f"llvm.x86.{name}"),
            "op_bundle_sizes": sizes([]),
            "operandSegmentSizes": sizes([len(operands), 0]),
        },
    )


def _call(name: str, rows: int, *operands: ir.Value) -> None:
    op = call(name, *operands)
    enclosing(op, "func.func").attributes[MATRIX_UNIT] = ir.UnitAttr.get()
    if rows:
        op.attributes[ROWS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), rows)


def _number(register: int) -> ir.Value:
    byte = ir.IntegerType.get_signless(8)
    attribute = ir.IntegerAttr.get(byte, register)
    return ir.Operation.create("llvm.mlir.constant", results=[byte], attributes={"value": attribute}).result
