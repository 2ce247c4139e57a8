"""A converter's view of an operation of TOSA."""

from __future__ import annotations

from mirlo.extend.frontend import BodyImporter, MlirOperation, Tensor, UnsupportedOperation, where
from mirlo_tflite.states import States


class TosaImporter(BodyImporter):
    """The interface of an import that operations use."""

    held: States
    """The variables of the program."""


class TosaOperation(MlirOperation):
    """An operation of the program, ready to be converted."""

    builder: TosaImporter

    def number(self, index: int, what: str) -> float:
        """Return the element of an operand that must be one known number; `what` is for the error."""
        element = self.scalar(index)
        if element is None:
            raise UnsupportedOperation(f"needs {what} that is a constant with one element")
        return float(element) if self.type(index).dtype.is_float else int(element)

    def zero_point(self, index: int, is_unsigned: bool = False) -> int:
        """Return the zero point that an operand holds; that of floats is 0."""
        bits = self.type(index).dtype.bits
        value = int(self.number(index, "a zero point"))
        return value % (1 << bits) if is_unsigned else value

    def regarding_nan(self, x: Tensor, number: float) -> Tensor:
        """Return elements, with a number in place of NaN where the operation ignores it."""
        return where(x.isnan(), number, x) if self.ignores_nan else x

    @property
    def ignores_nan(self) -> bool:
        """Return whether NaN loses against numbers."""
        return self.word("nan_mode") == "IGNORE" and self.type(0).dtype.is_float
