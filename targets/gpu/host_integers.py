"""Host integers while a program is read: constants are folded, others become instructions."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import FLOAT_PREDICATES, INT_PREDICATES
from mirlo.passes.registry import PassError
from mirlo.targets.gpu.host import FORMATS, OPERATIONS, compute
from mirlo.targets.gpu.program import HostInstruction, Step, Value

_CASTS = {
    "arith.extsi": "sext", "arith.trunci": "sext", "arith.index_cast": "sext", "arith.extui": "zext",
    "arith.index_castui": "zext",
}  # fmt: skip
_PREDICATES = [name if len(name) == 3 or name in ("eq", "ne") else f"s{name}" for name in INT_PREDICATES]
"""Predicates of `arith.cmpi`, by number, as host instructions name them."""
_FLOAT_PREDICATES = {FLOAT_PREDICATES["gt"]: "sgt"}
"""Predicates of `arith.cmpf`, likewise."""


class HostIntegers:
    """The integers of one program, by value of the module."""

    def __init__(self) -> None:
        self.known: dict[Any, Value] = {}
        self.steps: list[Step] = []
        """The list that receives instructions."""
        self._count = 0

    def of(self, value: Any) -> Value:
        """Return the integer of a value computed before."""
        if value not in self.known:
            raise PassError(f"a value of type {value.type} is none that the host of a GPU knows", value.location)
        return self.known[value]

    def name(self, value: ir.Value) -> str:
        """Return a name for a value that is known only when the program runs."""
        if str(value.type) not in FORMATS:
            raise PassError(f"the host of a GPU knows no values of type {value.type}", value.location)
        self._count += 1
        self.known[value] = f"%{self._count}"
        return f"%{self._count}"

    def named(self, value: ir.Value, kind: str, **fields: Any) -> None:
        """Add an instruction that defines a value."""
        name = self.name(value)
        self.steps.append(HostInstruction(kind, {"name": name, **fields}))

    def take(self, op: ir.OpView) -> bool:
        """Compute the result of an integer operation; return False if it is not one."""
        if op.name == "arith.constant":
            value = op.attributes["value"]
            if isinstance(value, (ir.IntegerAttr, ir.BoolAttr, ir.FloatAttr)):
                self.known[op.results[0]] = _held(value)
            return True  # vectors are for kernels
        short = _PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value] if op.name == "arith.cmpi" else ""
        if op.name == "arith.cmpf":
            short = _FLOAT_PREDICATES.get(ir.IntegerAttr(op.attributes["predicate"]).value, "")
        short = short or op.name.removeprefix("arith.")
        if op.name in _CASTS:
            source, result = op.operands[0], op.results[0]
            self.known[result] = self._make(_CASTS[op.name], [self.of(source), _bits(source.type)], _bits(result.type))
            return True
        if not op.name.startswith("arith.") or short not in OPERATIONS:
            return False
        of = list(map(self.of, op.operands))
        self.known[op.results[0]] = self._make(short, of, _bits(op.results[0].type))
        return True

    def add(self, a: Value, b: Value) -> Value:
        """Return a + b."""
        return b if a == 0 else a if b == 0 else self._make("addi", [a, b], 64)

    def multiply(self, a: Value, b: Value) -> Value:
        """Return a * b."""
        if 0 in (a, b):
            return 0
        return b if a == 1 else a if b == 1 else self._make("muli", [a, b], 64)

    def _make(self, op: str, of: list[Value], bits: int) -> Value:
        if all(isinstance(value, int) for value in of):
            return compute(op, [int(value) for value in of], bits)
        if op == "sext" and bits == 64 and of[1] == 64:
            return of[0]
        self._count += 1
        name = f"%{self._count}"
        self.steps.append(HostInstruction("let", {"name": name, "op": op, "bits": bits, "of": of}))
        return name


def constant_of(value: ir.Value) -> int | None:
    """Return the integer of a constant; None for other values."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


def _held(value: ir.Attribute) -> Any:
    if isinstance(value, ir.FloatAttr):
        return value.value
    # The bindings return one-bit true as -1.
    return int(value.value) & 1 if str(value.type) == "i1" else int(value.value)


def _bits(kind: ir.Type) -> int:
    return 64 if isinstance(kind, ir.IndexType) else int(kind.width)
