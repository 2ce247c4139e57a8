"""The table of instructions that compute register tiles: the operands they multiply, and how they are emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.contraction.body import MultiplyAdd, ProductInput
from mirlo.passes.schedule.vectors import is_vector
from mirlo.runtime.callbacks import callback, check_callbacks
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass


class MatrixUnit(Protocol):
    """Emits the instructions of a matrix unit, whose registers have numbers."""

    @property
    def registers(self) -> int:
        """Return how many registers there are."""
        ...

    def zero(self, register: int, rows: int) -> None:
        """Emit that a register of this many rows becomes zero."""
        ...

    def load(self, register: int, address: ir.Value, pitch: ir.Value, rows: int) -> None:
        """Emit that a register of this many rows is loaded; they are `pitch` bytes apart."""
        ...

    def store(self, register: int, address: ir.Value, pitch: ir.Value, rows: int) -> None:
        """Emit that a register of this many rows is stored; they are `pitch` bytes apart."""
        ...

    def multiply(self, instruction: str, sums: int, rows: int, columns: int) -> None:
        """Emit that the products of a register of rows and one of columns are added to a register of sums."""
        ...


@dataclass(frozen=True)
class TileInstruction:
    """A row of the table: how one instruction adds products to accumulators.

    An instruction of vectors has `emit`; one of a matrix unit has `unit` and `shape`.
    """

    name: str
    operands: tuple[tuple[str, str, str], ...] = ()
    """Types of the elements of rows, columns and accumulators; without any, all those that `emit` takes.

    The names are those of MLIR's types but for `u8`, `i8`: 8 bits that are widened without and with their sign.
    """
    group: int = 1
    """Elements along K that are multiplied for an accumulator. Columns are stored as `[K / group][columns][group]`."""
    emit: Callable[[ir.Value, ir.Value, ir.Value], ir.Value] | None = callback(
        "a value of MLIR", lambda value: isinstance(value, ir.Value)
    )
    """Emits `accumulators + row * columns` of vectors."""
    flips: bool = False
    """Whether the sign bits of rows are flipped, as `emit` takes no operands of these signs.

    That adds 128 to each element, or subtracts it: a row of sign bits is multiplied, too, and subtracted at the end.
    """
    has_pairs: bool = False
    """Whether `emit` multiplies two rows and two columns, each of a group, and adds the products to 2 x 2 sums."""
    is_exchanged: bool = False
    """Whether `emit` multiplies columns by rows, so that the 2 x 2 sums are transposed."""
    widened: int = 0
    """The bits of integers that the elements of both operands are extended to before `emit`; 0 if they are not."""
    unit: MatrixUnit | None = None
    shape: tuple[int, int, int] | None = None
    """Most rows of an instruction of a matrix unit, its columns, and its elements along K."""
    cycles: float = 0.0
    """Cycles of an instruction of a matrix unit."""

    def __post_init__(self) -> None:
        check_callbacks(self, f"tile instruction '{self.name}'", MirloError)

    @property
    def depth(self) -> int:
        """Return the elements along K of one instruction."""
        return self.group if self.shape is None else self.shape[2]

    @property
    def is_per_lane(self) -> bool:
        """Return whether each lane multiplies one element of a row by one of a column, and adds the product."""
        return self.group == 1 and self.shape is None

    def takes(self, rows: ProductInput, columns: ProductInput, product: MultiplyAdd) -> bool:
        """Return whether the instruction multiplies these operands."""
        kinds = (kind_of(rows), kind_of(columns), str(product.accumulate_type))
        return not self.operands or kinds in self.operands

    def prepared(self, factor: ProductInput, value: ir.Value, is_row: bool) -> ir.Value:
        """Emit elements of a factor as `emit` takes them."""
        if self.widened:
            word = self.prepared_type(value.type.element_type if is_vector(value) else value.type)
            kind = ir.VectorType.get(list(value.type.shape), word) if is_vector(value) else word
            return create("arith.extui" if kind_of(factor).startswith("u") else "arith.extsi", kind, value)
        if self.flips and is_row:
            return create("arith.xori", value.type, value, emit_constant(SIGN_OF_BYTE, value.type))
        return value

    def prepared_type(self, element: ir.Type) -> ir.Type:
        """Return the type of elements as `emit` takes them."""
        return ir.IntegerType.get_signless(self.widened) if self.widened else element


SIGN_OF_BYTE = -128


def kind_of(factor: ProductInput) -> str:
    """Return the type of a factor's elements as rows of the table name it; of a computed factor, an empty text."""
    element = str(factor.argument.type)
    if not factor.body_ops:
        return element if factor.result == factor.argument else ""
    op = factor.body_ops[0]
    if len(factor.body_ops) > 1 or op.operands[0] != factor.argument:
        return ""
    return {"arith.extf": element, "arith.extsi": element, "arith.extui": f"u{element[1:]}"}.get(op.name, "")


def multiply_add(row: ir.Value, columns: ir.Value, total: ir.Value) -> ir.Value:
    """Emit `total + row * columns`, rounded once for floats."""
    if isinstance(total.type.element_type, ir.FloatType):
        return create("vector.fma", total.type, row, columns, total)
    return create("arith.addi", total.type, total, create("arith.muli", total.type, row, columns))


FMA = TileInstruction("fma", emit=multiply_add)
"""Products of all types: elements are widened to that of the accumulators when they are loaded."""

_INSTRUCTIONS: dict[str, TileInstruction] = {FMA.name: FMA}


def add_tile_instruction(instruction: TileInstruction) -> None:
    """Add a row to the table; `Schedule.register_tile` takes its name."""
    _INSTRUCTIONS[instruction.name] = instruction


def tile_instructions() -> dict[str, TileInstruction]:
    """Return the table, by the names of instructions."""
    return dict(_INSTRUCTIONS)
