"""Commands of an accelerator: one for each tile of a loop that an instruction replaces.

A command has its tiles as numbers: where they begin in which memory, by how many bytes they move along each loop of the
instruction, and what of them is beyond an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

import numpy as np

from mirlo.dialects.tir.view import PrimView
from mirlo.passes.schedule.primitives.tree import ScheduleBuffer, ScheduleError
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class TileOperand:
    """The elements that a command reads or writes: evenly spaced in a buffer along each of its loops."""

    buffer: str
    scope: str
    """The memory that the buffer is in; empty for main memory."""
    address: int
    """Bytes from the beginning of the memory, or of the parameter, to the first element."""
    strides: tuple[int, ...]
    """Bytes between two iterations of each loop of the command."""
    indices: tuple[int, ...]
    """The first element, in the dims of the buffer. It may be beyond an edge if there is a value for that."""
    steps: tuple[tuple[int, ...], ...]
    """For each loop, by how much each index moves in an iteration."""
    shape: tuple[int, ...]
    """The dims of the buffer."""
    outside: int | float | None = None
    """What elements beyond the edges of the buffer are; None if there are none."""

    def inside(self, extents: Sequence[int]) -> tuple[range, ...]:
        """Return, for each loop of a command with these extents, the iterations within the edges."""
        result = [range(extent) for extent in extents]
        for dim, (first, size) in enumerate(zip(self.indices, self.shape, strict=True)):
            moving = [loop for loop, steps in enumerate(self.steps) if steps[dim]]
            if not moving:
                if not 0 <= first < size:
                    return tuple(range(0) for _ in extents)
                continue
            step = self.steps[moving[0]][dim]
            if len(moving) > 1 or step < 0:
                raise ScheduleError(
                    f"commands: dim {dim} of '{self.buffer}' moves along several loops, so that what is beyond its "
                    "edge is no range of them; pad it in a block of its own"
                )
            low, high = max(0, -(first // step)), max(0, -((first - size) // step))
            old = result[moving[0]]
            result[moving[0]] = range(max(old.start, low), max(low, min(old.stop, high)))
        return tuple(result)


@dataclass(frozen=True)
class TileCommand:
    """An instruction on tiles."""

    name: str
    """The instruction."""
    block: str
    extents: tuple[int, ...]
    """Iterations of each loop of the instruction; fewer than the schedule has where a tile is at an edge."""
    reads: tuple[TileOperand, ...]
    """In the order of the operands of the description."""
    writes: tuple[TileOperand, ...]
    is_first: bool = True
    """Whether a reduction begins with this command."""
    is_last: bool = True
    """Whether a reduction ends with this command."""
    numbers: Mapping[str, int | float] = field(default_factory=dict)
    """The numbers (`T.attrs`) of the description, as the block has them."""


class CommandMemory(Protocol):
    """The memories that a simulated command reads and writes, as numbers that may be residues."""

    def read(self, tile: TileOperand, extents: Sequence[int]) -> np.ndarray:
        """Return the elements of a tile: a dim for each loop, of size 1 where the tile does not move."""

    def write(self, tile: TileOperand, extents: Sequence[int], values: np.ndarray) -> None:
        """Write the elements of a tile; integers are wrapped to its type."""

    def array(self, name: str) -> np.ndarray:
        """Return the elements of a parameter, for a simulator of bytes: integers in float buffers, too."""

    def set_array(self, name: str, elements: np.ndarray) -> None:
        """Replace the elements of a parameter."""


class CommandSchedule(Protocol):
    """A schedule whose loops are instructions."""

    @property
    def view(self) -> PrimView:
        """Return the function that is scheduled, in tensor form."""

    @property
    def buffers_of_tree(self) -> Sequence[ScheduleBuffer]:
        """Return the parameters, intermediate values and copies."""

    def commands(self, capacity: Mapping[str, int] | None = None) -> TileCommands:
        """Return the commands of all iterations."""


@dataclass(frozen=True)
class CommandProgram:
    """A schedule of commands for a simulator, whose results are compared with the function that is scheduled.

    `execute` runs all commands on a simulator; without it, each intrinsic's own does (`command_intrin(simulate=)`).
    """

    name: str
    schedule: CommandSchedule
    execute: Callable[[Sequence[TileCommand], CommandMemory], None] | None = None
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Parameters that are not random, by name: integers, also in float buffers, for which floats are exact."""
    capacity: Mapping[str, int] = field(default_factory=dict)
    """The bytes that memories have."""


@dataclass(frozen=True)
class TileCommands:
    """The commands of a schedule, in order, and how many bytes of each memory its buffers take."""

    commands: tuple[TileCommand, ...]
    bytes: Mapping[str, int]

    def __iter__(self) -> Iterator[TileCommand]:
        return iter(self.commands)

    def __len__(self) -> int:
        return len(self.commands)
