"""Values of host functions while they are built: constants are folded, others become operations."""

from __future__ import annotations

from mirlo.dialects.bindings import arith, func, ir
from mirlo.dialects.core.surgery import clone_with
from mirlo.dialects.core.value import index, integer_of
from mirlo.passes.registry import PassError
from mirlo.targets.gpu.program import Value

DIVIDE = "mirlo_check_division"
"""The function that ends a call before a division that has no result: of the device, the operands, the least value."""
_DIVISIONS = frozenset(
    f"arith.{name}" for name in ("divsi", "remsi", "floordivsi", "ceildivsi", "divui", "remui", "ceildivui")
)
_OPERATIONS = _DIVISIONS | frozenset(
    f"arith.{name}"
    for name in (
        "addi", "subi", "muli", "minsi", "maxsi", "minui", "maxui", "andi", "ori", "xori", "cmpi", "select", "extsi",
        "extui", "trunci", "index_cast", "index_castui", "sitofp", "fptosi", "mulf", "minimumf", "cmpf",
    )
)  # fmt: skip
"""What the host computes, of scalars."""
_TYPES = ("i1", "i8", "i16", "i32", "i64", "index", "f32", "f64")
"""The types of values that the host computes with, reads and writes."""


class HostValues:
    """The values of the host functions, by the corresponding values of the planned module."""

    def __init__(self) -> None:
        self._known: dict[ir.Value, ir.Value] = {}
        self.device: ir.Value | None = None
        """The device's structure, an argument of the function that is built."""

    def of(self, value: ir.Value) -> ir.Value:
        """Return the host value for a value of the module."""
        if value not in self._known:
            raise PassError(f"a value of type {value.type} is none that the host of a GPU knows", value.location)
        return self._known[value]

    def number(self, value: ir.Value) -> Value:
        """Return an index as a constant, if it is one."""
        known = self.of(value)
        constant = integer_of(known)
        return known if constant is None else constant

    def set(self, value: ir.Value, stands: ir.Value) -> None:
        """Map a value of the module to one of the host."""
        if str(value.type) not in _TYPES:
            raise PassError(f"the host code of a GPU model has no values of type {value.type}", value.location)
        self._known[value] = stands

    def alias(self, value: ir.Value, other: ir.Value) -> None:
        """Map a value of the module to the host value of another one."""
        self._known[value] = self.of(other)

    def memory(self, value: ir.Value, stands: ir.Value) -> None:
        """Map a buffer to words in the memory of the host."""
        self._known[value] = stands

    def take(self, op: ir.Operation) -> bool:
        """Compute the result of an operation on scalars; return False if it is not one."""
        if op.name == "arith.constant":
            if str(op.results[0].type) in _TYPES:  # vectors are for kernels
                self._known[op.results[0]] = clone_with(op, []).results[0]
            return True
        if op.name not in _OPERATIONS:
            return False
        operands = list(map(self.of, op.operands))
        if op.name in _DIVISIONS:
            self._check_division(op.name.endswith("ui"), *operands)
        self.set(op.results[0], clone_with(op, operands).results[0])
        return True

    def _check_division(self, unsigned: bool, dividend: ir.Value, divisor: ir.Value) -> None:
        """End the call where a division by zero, or one that overflows, would end the process."""
        if integer_of(divisor) not in (None, 0, -1):
            return
        width = 64 if isinstance(divisor.type, ir.IndexType) else divisor.type.width
        words = [index(0), index(1)] if unsigned else [as_word(dividend), index(-(1 << width - 1))]
        assert self.device is not None
        operands = [self.device, words[0], as_word(divisor), words[1]]
        func.CallOp([ir.IntegerType.get_signless(1)], ir.FlatSymbolRefAttr.get(DIVIDE), operands)

    def add(self, a: Value, b: Value) -> Value:
        """Return a + b."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if isinstance(a, int) and a == 0:
            return b
        return a if isinstance(b, int) and b == 0 else arith.AddIOp(as_index(a), as_index(b)).result

    def multiply(self, a: Value, b: Value) -> Value:
        """Return a * b."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        return arith.MulIOp(as_index(a), as_index(b)).result


def as_index(value: Value) -> ir.Value:
    """Return a number as a value."""
    return index(value) if isinstance(value, int) else value


def as_word(value: ir.Value) -> ir.Value:
    """Return an integer, a float or a bool as an index: floats as their bits, bools as 0 and 1."""
    if isinstance(value.type, ir.IndexType):
        return value
    if isinstance(value.type, ir.FloatType):
        value = arith.BitcastOp(ir.IntegerType.get_signless(value.type.width), value).result
    cast = arith.IndexCastUIOp if value.type.width == 1 else arith.IndexCastOp
    return cast(ir.IndexType.get(), value).result


def from_word(word: ir.Value, kind: ir.Type) -> ir.Value:
    """Return an index as a value of another type, of which it is `as_word`."""
    if isinstance(kind, ir.IndexType):
        return word
    width = ir.IntegerType.get_signless(kind.width)
    value = arith.IndexCastOp(width, word).result
    return arith.BitcastOp(kind, value).result if isinstance(kind, ir.FloatType) else value
