"""A converter's view of an operation of TOSA."""

from __future__ import annotations

from mirlo.extend.frontend import BodyImporter, MlirOperation, Tensor, UnsupportedOperation, where
from mirlo_tflite.states import States


class TosaImporter(BodyImporter):
    """The interface of the import for operations."""

    held: States
    """The variables of the program."""


class TosaOperation(MlirOperation):
    """An operation of the program, ready to be converted."""

    builder: TosaImporter

    def number(self, index: int, what: str) -> float:
        """Return the only element of a constant operand; `what` is its name in errors."""
        element = self.scalar(index)
        if element is None:
            raise UnsupportedOperation(f"needs {what} that is a constant with one element")
        return float(element) if self.type(index).dtype.is_float else int(element)

    def zero_point(self, index: int, is_unsigned: bool = False) -> int:
        """Return the zero point in an operand; 0 for floats."""
        bits = self.type(index).dtype.bits
        value = int(self.number(index, "a zero point"))
        return value % (1 << bits) if is_unsigned else value

    def regarding_nan(self, x: Tensor, number: float) -> Tensor:
        """Replace NaN by a number if the operation ignores it."""
        return where(x.isnan(), number, x) if self.ignores_nan else x

    @property
    def ignores_nan(self) -> bool:
        """Return whether numbers win over NaN."""
        return self.word("nan_mode") == "IGNORE" and self.type(0).dtype.is_float
