"""The arithmetic of floats in a translation: residues, or floats of 64 bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mirlo.passes.exact.ir_text import FunctionText
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.values import FloatValue, IntValue, llvm_type
from mirlo.passes.lower.formats import FORMATS, FloatFormat

LOG2_E = 1.4426950216293335
"""log2(e) as the nearest f32: exp(x) is exp2(x * LOG2_E), as expansions write it."""


def format_of(kind: str) -> FloatFormat:
    """Return the format of a type of floats."""
    if kind not in FORMATS:
        raise OutsideError(f"the bits of {kind}")
    return FORMATS[kind]


def wide_bits(f: FunctionText, a: IntValue) -> str:
    """Return bits as integers of 64 bits."""
    if a.bits == 64:
        return a.name
    return f.op(f"zext {llvm_type(f'i{a.bits}', a.lanes)} {a.name} to {llvm_type('i64', a.lanes)}")


class Arithmetic(ABC):
    """The operations on floats; operands have equal numbers of lanes."""

    element: str
    """The LLVM type of a plane."""
    bytes = 8
    planes = 1
    key: tuple[object, ...] = ()
    """The key that distinguishes this arithmetic from others."""
    fuses = False
    """Whether a product and a sum of definitions are one operation."""
    has_common_functions = False
    """Whether a random function stands for the function that both forms have (`common_functions.py`)."""

    def canonical(self, f: FunctionText, x: FloatValue) -> FloatValue:
        """Return a value in reduced form."""
        return x

    def carried(self, f: FunctionText, x: FloatValue) -> FloatValue:
        """Return a value for a loop to carry."""
        return self.canonical(f, x)

    @abstractmethod
    def constant(self, f: FunctionText, value: float, lanes: int | None) -> FloatValue: ...
    @abstractmethod
    def add(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue: ...
    @abstractmethod
    def sub(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue: ...
    @abstractmethod
    def mul(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue: ...
    @abstractmethod
    def div(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue: ...
    @abstractmethod
    def neg(self, f: FunctionText, a: FloatValue) -> FloatValue: ...
    @abstractmethod
    def fma(self, f: FunctionText, a: FloatValue, b: FloatValue, c: FloatValue) -> FloatValue: ...
    @abstractmethod
    def exp2(self, f: FunctionText, a: FloatValue) -> FloatValue: ...
    @abstractmethod
    def maximum(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue: ...
    @abstractmethod
    def minimum(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue: ...
    @abstractmethod
    def absolute(self, f: FunctionText, a: FloatValue) -> FloatValue: ...
    @abstractmethod
    def compare(self, f: FunctionText, predicate: str, a: FloatValue, b: FloatValue) -> IntValue: ...
    @abstractmethod
    def classify(self, f: FunctionText, name: str, a: FloatValue) -> IntValue:
        """Return the result of isnan, isinf or isfinite."""

    @abstractmethod
    def function(self, f: FunctionText, name: str, operands: Sequence[FloatValue]) -> FloatValue:
        """Return the result of a function of floats for which the arithmetic has no other meaning."""

    @abstractmethod
    def truncated(self, f: FunctionText, a: FloatValue, kind: str) -> FloatValue:
        """Return a value rounded to a narrower type."""

    @abstractmethod
    def to_int(self, f: FunctionText, a: FloatValue, bits: int, name: str) -> IntValue: ...
    @abstractmethod
    def from_int(self, f: FunctionText, a: IntValue, is_signed: bool) -> FloatValue: ...
    @abstractmethod
    def to_bits(self, f: FunctionText, a: FloatValue, kind: str) -> IntValue:
        """Return the bits of a float of a type."""

    @abstractmethod
    def from_bits(self, f: FunctionText, a: IntValue, kind: str) -> FloatValue: ...

    def exp(self, f: FunctionText, a: FloatValue) -> FloatValue:
        return self.exp2(f, self.mul(f, a, self.constant(f, LOG2_E, a.lanes)))

    def select(self, f: FunctionText, condition: IntValue, a: FloatValue, b: FloatValue) -> FloatValue:
        a, b = self.canonical(f, a), self.canonical(f, b)
        kind, which = llvm_type(self.element, a.lanes), f"{llvm_type('i1', condition.lanes)} {condition.name}"
        pairs = zip(a.planes, b.planes, strict=True)
        return FloatValue(tuple(f.op(f"select {which}, {kind} {x}, {kind} {y}") for x, y in pairs), a.lanes)
