"""What code generators of NVIDIA's libraries share: their options, and the numbering of a region's values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirlo.passes.byoc.codegen import Artifact, CodeGenerator, ExternalModule, option
from mirlo.passes.byoc.view import ExternalFunction, ExternalValue, Step
from mirlo.passes.figures import Figures
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.library_plan import LibraryRegion, write
from mirlo.targets.nvvm.speeds import library_figures

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Values:
    """The values of one region: inputs, outputs, constants, and intermediate values."""

    def __init__(self, function: ExternalFunction) -> None:
        self._numbers = {value: number for number, value in enumerate((*function.inputs, *function.outputs))}
        self._next = len(function.inputs) + len(function.outputs)
        self.constants: dict[str, str] = {}
        self.sizes: dict[str, int] = {}

    def number(self, value: ExternalValue) -> int:
        """Return the number of a value."""
        if value not in self._numbers:
            self._numbers[value] = self._next
            if value.constant is not None:
                self.constants[str(self._next)] = value.constant
            else:
                size = ELEMENT_TYPES[value.type.dtype.name].bytes
                self.sizes[str(self._next)] = math.prod(value.type.static_shape) * size
            self._next += 1
        return self._numbers[value]


@dataclass(frozen=True)
class NvidiaLibraryCalls(CodeGenerator):
    """Base of the code generators: regions become a plan, which the loader hands to the library."""

    guarded = False
    tf32: bool = option(False, "round factors of f32 to 10 bits of fraction, for the matrix units")

    def figures_beside(self, host: str, options: str) -> Figures | None:
        """Return the library's figures on the chip in the options of target nvvm; None beside another target."""
        return library_figures(host, options, self.tf32)

    def plan_step(self, values: Values, step: Step) -> DataclassInstance:
        """Return the library's call for a composite."""
        raise NotImplementedError

    def codegen(self, module: ExternalModule) -> Artifact:
        """Return the plan of all regions."""
        plans = [self._plan_of(function) for function in module.functions]
        params = tuple(dict.fromkeys(name for plan in plans for name in plan.constants.values()))
        return Artifact(self.format, module.names, write(plans), params, {"device": "cuda", "tf32": self.tf32})

    def _plan_of(self, function: ExternalFunction) -> LibraryRegion[DataclassInstance]:
        values = Values(function)
        steps = tuple(self.plan_step(values, step) for step in function.steps)
        ends = len(function.inputs), len(function.outputs)
        return LibraryRegion(function.name, *ends, values.constants, values.sizes, steps)
