"""Numbering of a region's values, for code generators of NVIDIA's libraries."""

from __future__ import annotations

import math
from collections.abc import Callable

from mirlo.passes.byoc.view import ExternalFunction, ExternalValue, Step
from mirlo.runtime.dtypes import ELEMENT_TYPES
from mirlo.targets.nvvm.library_plan import LibraryRegion, LibraryStep


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


def plan_of(function: ExternalFunction, plan_step: Callable[[Values, Step], LibraryStep]) -> LibraryRegion[LibraryStep]:
    """Return the plan of a region; `plan_step` plans each of its steps."""
    values = Values(function)
    steps = tuple(plan_step(values, step) for step in function.steps)
    ends = len(function.inputs), len(function.outputs)
    return LibraryRegion(function.name, *ends, values.constants, values.sizes, steps)
