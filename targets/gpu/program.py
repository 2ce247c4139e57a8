"""The host part of a compiled model as data: launches, copies, their memory, and host instructions.

Most programs are a list of launches and copies that a loader records once and replays. If sizes or decisions are known
only at run time, host instructions come between them: arithmetic, branches, loops, elements read back from the device.
`targets/gpu/host.py` interprets them without the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

ARENA, TENSOR, PARAM, CONSTANT, LATE = "arena", "tensor", "param", "constant", "late"
"""Memory spaces: scratch memory of a call; inputs, then outputs; weights; small constants; data-dependent sizes."""
WHOLE_REMAINDER = -1
"""The size of a range that extends to the end of its space."""
Value = int | str
"""A constant, or the name of a computed number, `%3`."""


@dataclass(frozen=True)
class Range:
    """A byte range of a space."""

    space: str
    index: int
    offset: Value
    size: Value

    def as_json(self) -> list[int | str]:
        return [self.space, self.index, self.offset, self.size]

    def part(self, offset: int, size: int) -> Range:
        """Return a part of a range at a static offset."""
        assert isinstance(self.offset, int)
        return Range(self.space, self.index, self.offset + offset, size)


@dataclass(frozen=True)
class TensorMap:
    """A tensor as the copy engine sees it; a kernel receives a descriptor, not an address."""

    range: Range
    dims: tuple[int, ...]
    """Innermost first, like all fields."""
    strides: tuple[int, ...]
    """Bytes between elements along each dim except the innermost."""
    box: tuple[int, ...]
    format: str
    """Element format."""

    def as_json(self) -> dict[str, Any]:
        return {
            "map": self.range.as_json(), "dims": list(self.dims), "strides": list(self.strides), "box": list(self.box),
            "format": self.format,
        }  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """A kernel on memory ranges and scalars; `row` is the profile row its time counts for."""

    kernel: str
    grid: tuple[Value, Value, Value]
    block: tuple[int, int, int]
    arguments: tuple[Range | TensorMap | Value, ...]
    writes: tuple[bool, ...]
    """For each argument, whether the kernel writes it."""
    row: int

    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel, "grid": list(self.grid), "block": list(self.block),
            "arguments": [a if isinstance(a, (int, str)) else a.as_json() for a in self.arguments],
            "writes": [i for i, written in enumerate(self.writes) if written], "row": self.row,
        }  # fmt: skip


@dataclass(frozen=True)
class Copy:
    """A copy from one range to another."""

    source: Range
    target: Range
    row: int

    def as_json(self) -> dict[str, Any]:
        return {"copy": [self.source.as_json(), self.target.as_json()], "row": self.row}


@dataclass(frozen=True)
class HostInstruction:
    """A host instruction between launches: a row of the table in `targets/gpu/host.py`, with its fields."""

    kind: str
    fields: dict[str, Any]
    bodies: dict[str, list[Step]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        bodies = {name: [step.as_json() for step in body] for name, body in self.bodies.items()}
        return {"do": self.kind, **self.fields, **bodies}


Step = Launch | Copy | HostInstruction
_NEEDS_DEVICE = frozenset({"load", "store", "call", "allocate", "grow"})
"""Instructions that depend on earlier launches."""


@dataclass
class LaunchProgram:
    """All steps of an inference, in order."""

    steps: list[Step] = field(default_factory=list)
    sizes: list[Step] = field(default_factory=list)
    """Instructions that compute the sizes of a call from those of its inputs, and check them."""
    constants: list[bytes] = field(default_factory=list)
    arena: int = 0
    """Bytes; 0 if the sizes of a call determine it."""

    def every(self) -> Iterator[Step]:
        """Yield all steps, including those of bodies."""
        return _every(self.steps)

    @property
    def is_straight(self) -> bool:
        """Return whether everything is known before a call starts, given its sizes."""
        return not any(isinstance(step, HostInstruction) and step.kind in _NEEDS_DEVICE for step in self.every())

    def as_json(self) -> dict[str, Any]:
        """Return the program as JSON for the metadata of an artifact."""
        found: dict[str, Any] = {"steps": [step.as_json() for step in self.steps], "arena": self.arena}
        if self.sizes:
            found["sizes"] = [step.as_json() for step in self.sizes]
        if any(isinstance(step, HostInstruction) for step in self.steps):
            found["straight"] = self.is_straight
        return found

    def replace(self, change: Any) -> None:
        """Replace each launch and copy with `change(step)`."""
        _replace(self.steps, change)


def _every(steps: list[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        for body in step.bodies.values() if isinstance(step, HostInstruction) else ():
            yield from _every(body)


def _replace(steps: list[Step], change: Any) -> None:
    for i, step in enumerate(steps):
        if isinstance(step, HostInstruction):
            for body in step.bodies.values():
                _replace(body, change)
        else:
            steps[i] = change(step)
