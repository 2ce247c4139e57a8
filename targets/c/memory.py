"""The workspace of a region: slots for intermediate tensors, reused when live ranges end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mirlo.passes.byoc.view import ExternalFunction, ExternalNode, ExternalValue
from mirlo.targets.c.types import product
from mirlo.targets.c.writer import INDENT, dims, element_type

ALIGNMENT = 64


@dataclass
class WorkspaceRange:
    """A range of the workspace."""

    bytes: str
    """Its size as a C expression."""
    estimate: str = "0"
    """Its size as a C expression of doubles, which does not wrap."""


@dataclass
class Workspace:
    """The slots of a region and the values stored in each."""

    slots: list[WorkspaceRange] = field(default_factory=list)
    places: dict[ExternalValue, int] = field(default_factory=dict)

    @staticmethod
    def plan(
        function: ExternalFunction,
        steps: Sequence[Sequence[ExternalNode]],
        roots: Mapping[ExternalValue, ExternalValue],
    ) -> Workspace:
        """Assign each value a slot from the step that computes it to the last step that reads it.

        `roots` maps a view to the value whose memory it shares.
        """
        made = Workspace()
        stored = set(function.outputs) - set(roots)
        last: dict[ExternalValue, int] = {}
        for number, step in enumerate(steps):
            for value in _reads(step):
                last[roots.get(value, value)] = number
        for value in function.outputs:
            last[roots.get(value, value)] = len(steps)
        free: list[int] = []
        for number, step in enumerate(steps):
            for value in step[-1].outputs:
                if value not in stored:
                    made.places[value] = made._take(_bytes(value), _estimate(value), free)
            ended = [v for v, slot in made.places.items() if last.get(v, number) <= number and slot not in free]
            free += list(
                dict.fromkeys(made.places[value] for value in ended if made._holder(made.places[value]) is value)
            )
        return made

    def _holder(self, slot: int) -> ExternalValue:
        """Return the last value assigned to a slot."""
        return [value for value, place in self.places.items() if place == slot][-1]

    def _take(self, size: str, estimate: str, free: list[int]) -> int:
        fits = [slot for slot in free if self.slots[slot].bytes == size]
        if not fits and size.isdigit():
            known = [slot for slot in free if self.slots[slot].bytes.isdigit()]
            fits = sorted(known, key=lambda slot: abs(int(self.slots[slot].bytes) - int(size)))[:1]
            for slot in fits:
                self.slots[slot].bytes = str(max(int(self.slots[slot].bytes), int(size)))
        if fits:
            free.remove(fits[0])
            return fits[0]
        self.slots.append(WorkspaceRange(size, estimate))
        return len(self.slots) - 1

    def size_lines(self) -> list[str]:
        """Return the body of the function that computes the workspace size in bytes."""
        total = " + ".join(_aligned(slot.bytes) for slot in self.slots) or "0"
        if all(slot.bytes.isdigit() for slot in self.slots):
            total = str(sum(int(_aligned(slot.bytes)) for slot in self.slots))
            return [f"{INDENT}return {total};"]
        # No allocation has SIZE_MAX bytes: sizes whose product wraps give a failure, not a small workspace.
        estimate = " + ".join(f"{s.bytes}.0" if s.bytes.isdigit() else s.estimate for s in self.slots)
        limit = "(double)(SIZE_MAX / 2)"
        return [
            f"{INDENT}const double bytes = {estimate};",
            f"{INDENT}if (!(bytes < {limit})) return SIZE_MAX;",
            f"{INDENT}return {total};",
        ]

    def pointer_lines(self, names: Mapping[ExternalValue, str]) -> list[str]:
        """Return declarations of a pointer for each slot and each value in one."""
        lines, offset = [], "(char *)workspace"
        for number, slot in enumerate(self.slots):
            lines.append(f"{INDENT}char *const slot{number} = {offset};")
            offset = f"slot{number} + {_aligned(slot.bytes)}"
        for value, slot_number in self.places.items():
            kind = element_type(value)
            lines.append(f"{INDENT}{kind} *{names[value]} = ({kind} *)slot{slot_number};")
        return lines


def _reads(step: Sequence[ExternalNode]) -> list[ExternalValue]:
    """Return the values that a step reads from memory."""
    inner = {node.output for node in step[:-1]}
    return [value for node in step for value in node.inputs if value not in inner]


def _bytes(value: ExternalValue) -> str:
    return product([*dims(value), str(value.type.dtype.bytes)])


def _estimate(value: ExternalValue) -> str:
    return " * ".join([*(f"(double)({dim})" for dim in dims(value)), f"{value.type.dtype.bytes}.0"])


def _aligned(size: str) -> str:
    if size.isdigit():
        return str(-(-int(size) // ALIGNMENT) * ALIGNMENT)
    return f"({size} + {ALIGNMENT - 1}) / {ALIGNMENT} * {ALIGNMENT}"
