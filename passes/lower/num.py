"""SSA values with Python's operators: each emits one operation, by the builder that created the value."""

from __future__ import annotations

from typing import Protocol, Union

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.formats import FORMATS, FloatFormat

Number = Union["Num", float, int]


class Emitter(Protocol):
    """The builder of a value: emits the operations of Python's operators."""

    def like(self, x: Num, value: Number) -> Num:
        """Return a number as a value of the type of `x`."""

    def emit(self, op: str, kind: str, *operands: Num) -> Num:
        """Emit an operation by its name; return its value, of element type `kind`."""

    def compare(self, predicate: str, x: Num, y: Number) -> Num:
        """Emit a comparison."""


class Num:
    """A value with operators. Integers compare as signed; `>>` is the logical shift, `b.shift_right_signed` is not."""

    __slots__ = ("b", "kind", "value")

    def __init__(self, b: Emitter, value: ir.Value, kind: str):
        self.b = b
        self.value = value
        self.kind = kind

    @property
    def is_float(self) -> bool:
        return self.kind in FORMATS

    @property
    def format(self) -> FloatFormat:
        return FORMATS[self.kind]

    def _binary(self, float_op: str | None, int_op: str | None, other: Number, swapped: bool = False) -> Num:
        name = float_op if self.is_float else int_op
        if name is None:
            raise TypeError(f"a {self.kind} value does not have this operator")
        peer = self.b.like(self, other)
        pair = (peer, self) if swapped else (self, peer)
        return self.b.emit(name, self.kind, *pair)

    def __add__(self, other: Number) -> Num:
        return self._binary("arith.addf", "arith.addi", other)

    def __sub__(self, other: Number) -> Num:
        return self._binary("arith.subf", "arith.subi", other)

    def __mul__(self, other: Number) -> Num:
        return self._binary("arith.mulf", "arith.muli", other)

    def __truediv__(self, other: Number) -> Num:
        return self._binary("arith.divf", None, other)

    def __rsub__(self, other: Number) -> Num:
        return self._binary("arith.subf", "arith.subi", other, swapped=True)

    def __rtruediv__(self, other: Number) -> Num:
        return self._binary("arith.divf", None, other, swapped=True)

    __radd__ = __add__
    __rmul__ = __mul__

    def __and__(self, other: Number) -> Num:
        return self._binary(None, "arith.andi", other)

    def __or__(self, other: Number) -> Num:
        return self._binary(None, "arith.ori", other)

    def __xor__(self, other: Number) -> Num:
        return self._binary(None, "arith.xori", other)

    def __lshift__(self, other: Number) -> Num:
        return self._binary(None, "arith.shli", other)

    def __rshift__(self, other: Number) -> Num:
        return self._binary(None, "arith.shrui", other)

    def __invert__(self) -> Num:
        return self ^ -1

    def __neg__(self) -> Num:
        return self.b.emit("arith.negf", self.kind, self) if self.is_float else 0 - self

    def __lt__(self, other: Number) -> Num:
        return self.b.compare("lt", self, other)

    def __le__(self, other: Number) -> Num:
        return self.b.compare("le", self, other)

    def __gt__(self, other: Number) -> Num:
        return self.b.compare("gt", self, other)

    def __ge__(self, other: Number) -> Num:
        return self.b.compare("ge", self, other)

    def equals(self, other: Number) -> Num:
        return self.b.compare("eq", self, other)

    def differs(self, other: Number) -> Num:
        return self.b.compare("ne", self, other)

    @property
    def is_nan(self) -> Num:
        return self.b.compare("unordered", self, self)
