"""SSA values of relax with operators, as converters of nodes compute with them.

    scaled = (x - zero_point) * scale            # relax.subtract, relax.multiply
    inside = (at >= 0) & (at < size)             # relax.greater_equal, relax.less, relax.logical_and

A `RelaxValue` is an `ir.Value`: operations take it as an operand, and it equals the value that it was made of. The
other operand of an operator is a value of the same element type or a number, which becomes a constant of that type.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy.typing as npt

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType

Operand: TypeAlias = "ir.Value | float"
"""What stands beside an operator."""


class RelaxEmitter(Protocol):
    """What operators use of a node."""

    def emit(self, operator: str, *operands: ir.Value) -> RelaxValue:
        """Make an operation of one result."""

    def constant(self, array: npt.ArrayLike, like: TensorType) -> ir.Value:
        """Return the value of a constant."""


class RelaxValue(ir.Value):
    """A tensor with operators, for which a node makes the operations."""

    __array_ufunc__ = None
    """Lets numbers of numpy on the left leave the operator to this class."""

    def __init__(self, value: ir.Value, node: RelaxEmitter) -> None:
        super().__init__(value)
        self.node = node

    def __neg__(self) -> RelaxValue:
        return self.node.emit("negative", self)

    def __invert__(self) -> RelaxValue:
        return self.node.emit("logical_not", self)

    def __add__(self, other: Operand) -> RelaxValue:
        return self._emit("add", other)

    def __radd__(self, other: float) -> RelaxValue:
        return self._reflected("add", other)

    def __sub__(self, other: Operand) -> RelaxValue:
        return self._emit("subtract", other)

    def __rsub__(self, other: float) -> RelaxValue:
        return self._reflected("subtract", other)

    def __mul__(self, other: Operand) -> RelaxValue:
        return self._emit("multiply", other)

    def __rmul__(self, other: float) -> RelaxValue:
        return self._reflected("multiply", other)

    def __truediv__(self, other: Operand) -> RelaxValue:
        """Divide as `relax.divide` does: integers towards zero."""
        return self._emit("divide", other)

    def __rtruediv__(self, other: float) -> RelaxValue:
        return self._reflected("divide", other)

    def __floordiv__(self, other: Operand) -> RelaxValue:
        return self._emit("floor_divide", other)

    def __mod__(self, other: Operand) -> RelaxValue:
        return self._emit("mod", other)

    def __and__(self, other: ir.Value) -> RelaxValue:
        return self._emit("logical_and", other)

    def __or__(self, other: ir.Value) -> RelaxValue:
        return self._emit("logical_or", other)

    def __lt__(self, other: Operand) -> RelaxValue:
        return self._emit("less", other)

    def __le__(self, other: Operand) -> RelaxValue:
        return self._emit("less_equal", other)

    def __gt__(self, other: Operand) -> RelaxValue:
        return self._emit("greater", other)

    def __ge__(self, other: Operand) -> RelaxValue:
        return self._emit("greater_equal", other)

    def equals(self, other: Operand) -> RelaxValue:
        """Compare the elements for equality; `==` compares the SSA values themselves."""
        return self._emit("equal", other)

    def _emit(self, operator: str, other: Operand) -> RelaxValue:
        return self.node.emit(operator, self, self._operand(other))

    def _reflected(self, operator: str, other: float) -> RelaxValue:
        return self.node.emit(operator, self._operand(other), self)

    def _operand(self, other: Operand) -> ir.Value:
        if isinstance(other, ir.Value):
            return other
        tensor_type = TensorType.from_mlir(self.type)
        assert tensor_type is not None
        return self.node.constant(other, tensor_type)
