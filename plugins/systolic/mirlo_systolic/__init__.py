"""The target `systolic`: int8 convolutions and products of matrices on an NPU in SystemVerilog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.extend.target import Target

if TYPE_CHECKING:
    from mirlo.extend.schedules import CommandProgram, Instruction


class SystolicTarget(Target):
    """Takes int8 layers of models."""

    def instructions(self) -> Sequence[Instruction | CommandProgram]:
        """Return the instructions of the unit, and programs that show them on the RTL."""
        from mirlo_systolic.functions import INSTRUCTIONS
        from mirlo_systolic.programs import programs

        return (*INSTRUCTIONS, *programs())


TARGET = SystolicTarget(
    "systolic", "int8 layers on the NPU of this package", codegen="mirlo_systolic.generator:Systolic"
)
