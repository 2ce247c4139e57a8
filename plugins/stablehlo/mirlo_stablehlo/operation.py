"""A converter's view of an operation of StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mirlo.extend.frontend import MlirOperation, Tensor, UnsupportedOperation, ir
from mirlo_stablehlo.parts import is_complex
from mirlo_stablehlo.processes import ProcessGrid
from mirlo_stablehlo.ranked import RankedProgram

HELD = ("composite_attributes", "mhlo.backend_config", "backend_config")
"""The attributes of composites and custom calls with the attributes of the named operation."""


class StablehloOperation(MlirOperation):
    """An operation of the program, ready to be converted."""

    program: RankedProgram
    """The processes that run the program."""

    @property
    def grid(self) -> ProcessGrid:
        """Return the grid of processes that run the program."""
        return self.program.grid

    @property
    def is_complex(self) -> bool:
        """Return whether an operand or a result is a tensor of complex numbers."""
        return any(is_complex(value.type) for value in (*self.op.operands, *self.op.results))

    def by_parts(self, convert: Callable[[StablehloOperation], Tensor | Sequence[Tensor]]) -> list[Tensor]:
        """Convert an operation on complex tensors to one on the real and one on the imaginary parts."""
        parts: list[Tensor] = []
        for which in (0, 1):
            view = StablehloOperation(
                self.op, self.name, [(part[which % len(part)],) for part in self.parts], self.builder
            )
            view.scope, view.program = self.scope, self.program
            converted = convert(view)
            parts.extend([converted] if isinstance(converted, Tensor) else converted)
        return parts

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the operation named by a composite or custom call, as Python values."""
        held = next((self.op.attributes[name] for name in HELD if name in self.op.attributes), None)
        return {entry.name: _plain(entry.attr) for entry in held} if isinstance(held, ir.DictAttr) else {}


def _plain(attribute: ir.Attribute) -> object:
    """Return an attribute as a Python value."""
    if isinstance(attribute, (ir.BoolAttr, ir.IntegerAttr, ir.FloatAttr, ir.StringAttr)):
        return attribute.value
    if isinstance(attribute, (ir.ArrayAttr, ir.DenseI64ArrayAttr, ir.DenseBoolArrayAttr)):
        return [_plain(each) if isinstance(each, ir.Attribute) else each for each in attribute]
    raise UnsupportedOperation(f"has an attribute '{attribute}': expected a number, a bool, a text, or a list of these")
