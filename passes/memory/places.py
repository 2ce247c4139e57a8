"""Where each tensor of a function lives: in a parameter, in an output, or for some steps in the arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.dialects.tir.buffers import WORKSPACE, buffer_bytes, buffer_type
from mirlo.passes.memory import packed
from mirlo.passes.memory.inplace import inplace_of
from mirlo.passes.memory.layout import Interval
from mirlo.passes.registry import PassError

VIEWS = frozenset({"relax.reshape", "relax.expand_dims", "relax.squeeze"})
"""Operators that only look at a buffer in another shape."""
CALLS = frozenset({"relax.call_tir", packed.CALL})
"""Operators that write their results to buffers that they are given."""


def storage_memref(tensor_type: Any) -> Any:
    """The buffer type of a relax tensor."""
    element = dtype_of_mlir(tensor_type.element_type)
    if element is None:
        raise PassError(f"no buffer can hold {tensor_type}")
    return buffer_type(tensor_type.shape, ir.Type.parse(element.storage))


@dataclass
class Place:
    """Where a tensor lives: with its root, the tensor that it is a view of; in the arena if there is an interval."""

    root: Any
    interval: Interval | None = None
    buffer: Any = None
    """Made when the function is built."""


@dataclass
class Places:
    """The places of all tensors of a function whose operations run one after the other."""

    arguments: Sequence[Any]
    steps: Sequence[Any]
    returned: Sequence[Any]
    callee: Callable[[Any], Any]
    """The function that a `relax.call_tir` calls."""
    of: dict[Any, Place] = field(default_factory=dict)
    workspaces: dict[int, Interval] = field(default_factory=dict)
    """Scratch memory of the calls, by step."""
    outputs: dict[Any, int] = field(default_factory=dict)
    """Roots that are computed right into an output, and which."""
    in_place: int = 0
    """How many calls overwrite an input."""

    def __post_init__(self) -> None:
        for argument in self.arguments:
            self.of[argument] = Place(argument)
        for op in self.steps:
            for value in op.results:
                self.of[value] = Place(self.root(op.operands[0]) if op.name in VIEWS else value)
        self._choose_outputs()
        last = self._last_uses()
        for step, op in enumerate(self.steps):
            if op.name in CALLS:
                self._place_call(op, step, last)

    def root(self, value: Any) -> Any:
        return self.of[value].root

    def intervals(self) -> list[Interval]:
        """All that needs a part of the arena."""
        found = [place.interval for place in self.of.values() if place.interval is not None]
        return list({id(interval): interval for interval in (*found, *self.workspaces.values())}.values())

    def _choose_outputs(self) -> None:
        """What is computed here and returned is computed into the output; into the first one, if returned twice."""
        computed = {value for op in self.steps if op.name in CALLS for value in op.results}
        for i, value in enumerate(self.returned):
            if self.root(value) in computed:
                self.outputs.setdefault(self.root(value), i)

    def _last_uses(self) -> dict[Any, int]:
        last: dict[Any, int] = {}
        for step, op in enumerate(self.steps):
            for value in op.operands:
                last[self.root(value)] = step
        return last

    def _place_call(self, op: Any, step: int, last: dict[Any, int]) -> None:
        for value in op.results:
            if value in self.outputs:
                continue
            end = last.get(value, step)
            interval = self._overwritten(op, step, last)
            if interval is None:
                interval = Interval(buffer_bytes(storage_memref(value.type)), step, end)
            else:
                interval.last = end
                self.in_place += 1
            self.of[value].interval = interval
        if op.name != "relax.call_tir":
            return
        attributes = self.callee(op).operation.attributes
        if WORKSPACE in attributes:
            self.workspaces[step] = Interval(ir.IntegerAttr(attributes[WORKSPACE]).value, step, step)

    def _overwritten(self, op: Any, step: int, last: dict[Any, int]) -> Interval | None:
        """The interval of an input that ends with this call, and which the call may overwrite."""
        if op.name != "relax.call_tir" or len(op.results) != 1:
            return None
        allowed = set(inplace_of(self.callee(op)))
        for position in sorted(allowed):
            root = self.root(op.operands[position])
            interval = self.of[root].interval
            if interval is None or last[root] != step:
                continue
            if all(i in allowed for i, other in enumerate(op.operands) if self.root(other) == root):
                return interval
        return None
