"""SSA values with operators, and the table of comparison predicates.

    row = Value(block.arguments[0])
    inside = (row * 4 + 1).below(limit)          # arith.muli, arith.addi, arith.cmpi ult
    kept = select(inside & (x > 0.0), x, zero)   # arith.andi, arith.cmpf ogt, arith.select

A `Value` is an `ir.Value`: operations take it as an operand, and it equals the value that it was made of. Operators
emit one operation at the insertion point, for integers and indices or for floats, on scalars or vectors; none for
integers plus 0 and times 1. The other operand is a value of the same type, a Python number, or for indices a dim.
"""

from __future__ import annotations

from typing import TypeAlias

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, SymbolicDim

INT_PREDICATES = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
"""Predicates of `arith.cmpi` by name; those without `u` are signed."""
FLOAT_PREDICATES = {
    "eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "one": 6, "ugt": 9, "uge": 10, "ult": 11, "ule": 12, "ne": 13,
    "unordered": 14,
}  # fmt: skip
"""Predicates of `arith.cmpf` by name: ordered, false for NaN; `ne` and those with `u` are true for NaN."""


Operand: TypeAlias = "ir.Value | SymbolicDim | float"
"""What stands on the right of an operator."""


def element_of(kind: ir.Type) -> ir.Type:
    """Return the type of a scalar or of a vector's elements."""
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


class Value(ir.Value):
    """A scalar or vector of integers, indices or floats, with operators."""

    @property
    def is_float(self) -> bool:
        return isinstance(element_of(self.type), ir.FloatType)

    def __add__(self, other: Operand) -> Value:
        return self if self._is_identity(0, other) else self._emit("arith.addi", "arith.addf", other)

    def __sub__(self, other: Operand) -> Value:
        return self._emit("arith.subi", "arith.subf", other)

    def __mul__(self, other: Operand) -> Value:
        return self if self._is_identity(1, other) else self._emit("arith.muli", "arith.mulf", other)

    def __and__(self, other: ir.Value | Dim) -> Value:
        return self._emit("arith.andi", "", other)

    def __or__(self, other: ir.Value | Dim) -> Value:
        return self._emit("arith.ori", "", other)

    def __xor__(self, other: ir.Value | Dim) -> Value:
        return self._emit("arith.xori", "", other)

    def __lt__(self, other: Operand) -> Value:
        return self.compare("lt", other)

    def __le__(self, other: Operand) -> Value:
        return self.compare("le", other)

    def __gt__(self, other: Operand) -> Value:
        return self.compare("gt", other)

    def __ge__(self, other: Operand) -> Value:
        return self.compare("ge", other)

    def __getitem__(self, indices: ir.Value | tuple[ir.Value, ...]) -> Value:
        """Load an element of a buffer."""
        listed = indices if isinstance(indices, tuple) else (indices,)
        return create("memref.load", self.type.element_type, self, *listed)

    def divide_unsigned(self, divisor: ir.Value | Dim) -> Value:
        """Return the quotient of numbers that are not negative."""
        return self._emit("arith.divui", "", divisor)

    def remainder_unsigned(self, divisor: ir.Value | Dim) -> Value:
        """Return the remainder of numbers that are not negative."""
        return self._emit("arith.remui", "", divisor)

    def minimum(self, other: ir.Value | Dim) -> Value:
        """Return the smaller of two signed integers."""
        return self._emit("arith.minsi", "", other)

    def maximum(self, other: ir.Value | Dim) -> Value:
        """Return the larger of two signed integers."""
        return self._emit("arith.maxsi", "", other)

    def equals(self, other: Operand) -> Value:
        """Emit a comparison for equality; `==` compares the SSA values themselves."""
        return self.compare("eq", other)

    def below(self, limit: ir.Value | Dim) -> Value:
        """Return whether 0 <= value < limit, as one unsigned comparison."""
        return self.compare("ult", limit)

    def compare(self, predicate: str, other: Operand) -> Value:
        """Emit a comparison by the name of its predicate: `eq`, `lt` (signed, or ordered), `ult`, ..."""
        kind = self.type
        flag: ir.Type = ir.IntegerType.get_signless(1)
        if isinstance(kind, ir.VectorType):
            flag = ir.VectorType.get(kind.shape, flag)
        name, table = ("arith.cmpf", FLOAT_PREDICATES) if self.is_float else ("arith.cmpi", INT_PREDICATES)
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), table[predicate])
        return create(name, flag, self, self._operand(other), predicate=number)

    def cast(self, kind: ir.Type) -> Value:
        """Return an index as an integer of this type, or an integer as an index."""
        return self if self.type == kind else create("arith.index_cast", kind, self)

    def _is_identity(self, identity: int, other: Operand) -> bool:
        """Return whether an operation of integers with a number changes nothing."""
        return isinstance(other, int) and other == identity and not self.is_float

    def _emit(self, int_name: str, float_name: str, other: Operand) -> Value:
        name = int_name if not float_name or not self.is_float else float_name
        return create(name, self.type, self, self._operand(other))

    def _operand(self, other: Operand) -> ir.Value:
        if isinstance(other, SymbolicDim):
            return index(other)
        return other if isinstance(other, ir.Value) else emit_constant(other, self.type)


def create(name: str, result: ir.Type, *operands: ir.Value, **attributes: ir.Attribute) -> Value:
    """Emit one operation with one result at the insertion point."""
    return Value(ir.Operation.create(name, results=[result], operands=operands, attributes=attributes).result)


def call_intrinsic(name: str, result: ir.Type, *operands: ir.Value) -> Value:
    """Emit the call of an intrinsic of LLVM by its name."""
    sizes = ir.DenseI32ArrayAttr.get
    return create(
        "llvm.call_intrinsic", result, *operands, intrin=ir.StringAttr.get(name), op_bundle_sizes=sizes([]),
        operandSegmentSizes=sizes([len(operands), 0]),
    )  # fmt: skip


def inline_asm(
    text: str, constraints: str, result: ir.Type, *operands: ir.Value, has_side_effects: bool = False
) -> Value:
    """Emit a piece of assembly with one result."""
    flags: dict[str, ir.Attribute] = {"has_side_effects": ir.UnitAttr.get()} if has_side_effects else {}
    texts = {"asm_string": ir.StringAttr.get(text), "constraints": ir.StringAttr.get(constraints)}
    return create("llvm.inline_asm", result, *operands, **texts, **flags)


def select(condition: ir.Value, yes: ir.Value, no: ir.Value) -> Value:
    """Emit the choice between two values of one type."""
    return create("arith.select", yes.type, condition, yes, no)


def compare(predicate: str, left: ir.Value, right: Operand) -> Value:
    """Emit a comparison of integers or floats by the name of its predicate."""
    return Value(left).compare(predicate, right)


def index(dim: Dim) -> Value:
    """Emit the value of a dim; that of a symbolic one is bound when the function is finished."""
    if isinstance(dim, int):
        return emit_constant(dim, ir.IndexType.get())
    return create("tir.size", ir.IndexType.get(), dim=ir.StringAttr.get(str(dim)))


def is_constant(value: ir.Value) -> bool:
    """Return whether a value is a constant of `arith`."""
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.name == "arith.constant"


def integer_of(value: ir.Value) -> int | None:
    """Return the integer that a value is, None if it is no constant or none of integers."""
    attribute = value.owner.attributes["value"] if is_constant(value) else None
    return int(ir.IntegerAttr(attribute).value) if isinstance(attribute, ir.IntegerAttr) else None


def emit_constant(value: float, kind: ir.Type) -> Value:
    """Emit a number of a scalar type, or a vector of equal ones."""
    if isinstance(kind, ir.VectorType):
        return create(
            "arith.constant", kind, value=ir.DenseElementsAttr.get_splat(kind, _number(value, kind.element_type))
        )
    return create("arith.constant", kind, value=_number(value, kind))


def _number(value: float, kind: ir.Type) -> ir.Attribute:
    if isinstance(kind, ir.FloatType):
        return ir.FloatAttr.get(kind, float(value))
    if isinstance(kind, ir.IntegerType):
        width = kind.width
        wrapped = int(value) & ((1 << width) - 1)
        return ir.IntegerAttr.get(kind, wrapped - (1 << width) if wrapped >> (width - 1) and width > 1 else wrapped)
    return ir.IntegerAttr.get(kind, int(value))
