"""The host's part of a compiled model as data: which kernel runs when, on which memory, and what the host decides.

Most programs are a list of launches and copies that a loader records once and replays. Where sizes or decisions are
known at run time only, instructions of the host are between them: arithmetic on numbers, branches, loops, elements read
back from the device. `targets/gpu/host.py` runs them, without knowing the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

ARENA, TENSOR, PARAM, CONSTANT, LATE = "arena", "tensor", "param", "constant", "late"
"""Spaces: the scratch memory of a call; inputs, then outputs; weights; small constants; memory whose size data told."""
REST = -1
"""The size of a range that goes on as far as its space does."""
Value = int | str
"""A number: known when compiling, or the name of one that is computed, `%3`."""


@dataclass(frozen=True)
class Range:
    """Bytes of a space."""

    space: str
    index: int
    offset: Value
    size: Value

    def as_json(self) -> list[Any]:
        return [self.space, self.index, self.offset, self.size]

    def part(self, offset: int, size: int) -> Range:
        """A part of a range whose place is known when compiling."""
        assert isinstance(self.offset, int)
        return Range(self.space, self.index, self.offset + offset, size)


@dataclass(frozen=True)
class TensorMap:
    """A tensor as an engine that copies boxes of it sees it; a kernel is given a description, not an address."""

    range: Range
    dims: tuple[int, ...]
    """The innermost first; so are the others."""
    strides: tuple[int, ...]
    """Bytes between neighbours along each dim but the innermost."""
    box: tuple[int, ...]
    format: str
    """Of its numbers."""

    def as_json(self) -> dict[str, Any]:
        return {
            "map": self.range.as_json(), "dims": list(self.dims), "strides": list(self.strides), "box": list(self.box),
            "format": self.format,
        }  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """A kernel on ranges of memory and numbers; `row` is the row of a profile that its time counts for."""

    kernel: str
    grid: tuple[Value, Value, Value]
    block: tuple[int, int, int]
    arguments: tuple[Range | TensorMap | Value, ...]
    writes: tuple[bool, ...]
    """For each argument whether the kernel writes it."""
    row: int

    def as_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel, "grid": list(self.grid), "block": list(self.block),
            "arguments": [a if isinstance(a, (int, str)) else a.as_json() for a in self.arguments],
            "writes": [i for i, written in enumerate(self.writes) if written], "row": self.row,
        }  # fmt: skip


@dataclass(frozen=True)
class Copy:
    """Bytes from one range to another."""

    source: Range
    target: Range
    row: int

    def as_json(self) -> dict[str, Any]:
        return {"copy": [self.source.as_json(), self.target.as_json()], "row": self.row}


@dataclass(frozen=True)
class Host:
    """What the host does between launches: a row of `targets/gpu/host.py`, which says what its fields are."""

    kind: str
    fields: dict[str, Any]
    bodies: dict[str, list[Step]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        bodies = {name: [step.as_json() for step in body] for name, body in self.bodies.items()}
        return {"do": self.kind, **self.fields, **bodies}


Step = Launch | Copy | Host
_NEEDS_DEVICE = frozenset({"load", "store", "call", "allocate"})
"""What cannot be done before the launches that come before it are."""


@dataclass
class Program:
    """All steps of an inference, in order."""

    steps: list[Step] = field(default_factory=list)
    sizes: list[Step] = field(default_factory=list)
    """What computes the sizes of a call from those of its inputs, and checks them."""
    constants: list[bytes] = field(default_factory=list)
    arena: int = 0
    """Bytes; 0 where the sizes of a call tell."""

    def every(self) -> Iterator[Step]:
        """All steps, those of bodies included."""
        return _every(self.steps)

    @property
    def is_straight(self) -> bool:
        """Whether everything is known before a call starts, its sizes given."""
        return not any(isinstance(step, Host) and step.kind in _NEEDS_DEVICE for step in self.every())

    def as_json(self) -> dict[str, Any]:
        """For the metadata of an artifact."""
        found: dict[str, Any] = {"steps": [step.as_json() for step in self.steps], "arena": self.arena}
        if self.sizes:
            found["sizes"] = [step.as_json() for step in self.sizes]
        if any(isinstance(step, Host) for step in self.steps):
            found["straight"] = self.is_straight
        return found

    def replace(self, change: Any) -> None:
        """Put `change(step)` in the place of each launch and copy."""
        _replace(self.steps, change)


def _every(steps: list[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        for body in step.bodies.values() if isinstance(step, Host) else ():
            yield from _every(body)


def _replace(steps: list[Step], change: Any) -> None:
    for i, step in enumerate(steps):
        if isinstance(step, Host):
            for body in step.bodies.values():
                _replace(body, change)
        else:
            steps[i] = change(step)
