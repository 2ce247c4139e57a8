"""A prim function together with the schedule of its loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.passes.schedule.primitives.arguments import call_given
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tensorize import PrimScript, ScriptParameter
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class ScheduledPrim:
    """A prim function whose loops are arranged by the function `arrange` wherever it is used."""

    prim_func: PrimScript
    arrange: Callable[[Schedule], object]

    @property
    def name(self) -> str:
        """Return the name of the prim function."""
        return self.prim_func.name

    @property
    def parameters(self) -> Sequence[ScriptParameter]:
        """Return the parameters of the prim function."""
        return self.prim_func.parameters

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the attributes that each use provides."""
        return self.prim_func.numbers

    def specialize(
        self,
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType] | None,
        name: str,
        attributes: Mapping[str, object] | None = None,
    ) -> tuple[ir.OpView, list[TensorType]]:
        """Return the scheduled `func.func` for these types and attributes, and the types of its outputs."""
        function, results = self.prim_func.specialize(inputs, outputs, name, attributes)
        module = ir.Module.create(loc=function.operation.location)
        module.body.append(function.operation)
        schedule = Schedule(function, module)
        call_given(self.arrange, schedule)
        lowered = schedule.emit()
        lowered.operation.detach_from_parent()
        return lowered, results


def scheduled(prim_func: PrimScript, arrange: Callable[[Schedule], object]) -> ScheduledPrim:
    """Return a prim function whose loops `arrange` schedules, for each use of its own sizes.

    It may be attached wherever a prim function may. It is a kernel of its own: other operators are not fused into it.
    """
    return ScheduledPrim(prim_func, arrange)
