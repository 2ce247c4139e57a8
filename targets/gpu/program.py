"""The host part of a compiled model: memory ranges, commands for the device, and the functions that give them.

A *site* is a place of the host function that gives a command: a launch, a copy, or a request that the host waits for.
A *command* is the number of a site and the words that it takes: grids, offsets, sizes and scalars. If all words are
constants, the commands are part of the artifact; otherwise compiled host functions write them in each call.
`targets/gpu/commands.py` reads them without the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.commands import MapSite

if TYPE_CHECKING:
    from mirlo.targets.gpu.commands import RangeHome, Site

ARENA, TENSOR, PARAM, CONSTANT, LATE = "arena", "tensor", "param", "constant", "late"
"""Memory spaces: scratch memory of a call; inputs, then outputs; weights; small constants; data-dependent sizes."""
WHOLE_REMAINDER = -1
"""The size of a range that extends to the end of its space."""
Value = int | ir.Value
"""A constant, or an index that host functions compute."""


@dataclass(frozen=True)
class Range:
    """A byte range of a space."""

    space: str
    index: int
    offset: Value
    size: Value

    @property
    def place(self) -> RangeHome:
        """Return the space and the number in it, as sites name them."""
        return (self.space, self.index)

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

    def as_json(self) -> MapSite:
        return MapSite(
            map=self.range.place, dims=list(self.dims), strides=list(self.strides), box=list(self.box),
            format=self.format,
        )  # fmt: skip


@dataclass(frozen=True)
class SplitParameter:
    """A kernel parameter that is passed in parts, after all others."""

    position: int
    part_bytes: int


@dataclass(frozen=True)
class Command:
    """A command whose words are known, or None where they are not."""

    site: int
    words: tuple[int | None, ...]


@dataclass
class HostProgram:
    """What the host does in an inference."""

    module: ir.Module
    """The host functions, in upstream dialects."""
    sites: list[Site] = field(default_factory=list)
    commands: Sequence[Command] = ()
    """The commands of all sites, in the order of the code."""
    is_static: bool = False
    """Whether an inference is `commands`, in order; otherwise the host function gives them."""
    has_sizes: bool = False
    """Whether there is a function of the sizes of a call."""
    constants: list[bytes] = field(default_factory=list)
    arena: int = 0
    """Bytes; 0 if the sizes of a call determine it."""

    @property
    def is_compiled(self) -> bool:
        """Return whether there are functions to compile."""
        return self.has_sizes or not self.is_static

    def as_json(self, code: Sequence[int] | None) -> dict[str, object]:
        """Return the metadata of an artifact; `code` is where the compiled functions are."""
        result: dict[str, object] = {"sites": as_lists(self.sites), "arena": self.arena}
        if self.is_static:
            result["commands"] = [[command.site, *command.words] for command in self.commands]
        if code is not None:
            result["code"] = list(code)
        return result


def as_lists(value: object) -> object:
    """Return a value as JSON has it: tuples become lists."""
    if isinstance(value, (list, tuple)):
        return [as_lists(member) for member in value]
    return {name: as_lists(member) for name, member in value.items()} if isinstance(value, dict) else value
