"""A program as data: steps over numbered registers, blocks, and the compiled parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.kinds import Kind

PART, HOST, IF, WHILE = "part", "host", "if", "while"


@dataclass(frozen=True)
class Step:
    """What is done next, on which registers.

    Of `if`, input 0 is the condition, and one of two blocks is run. Of `while`, the inputs are what is carried at
    first: the first block gives whether to go on, and then what the second takes and the loop ends with; the second
    gives what the first takes in the next round.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    part: int = 0
    function: str = ""
    options: str = "{}"
    kinds: tuple[str, ...] = ()
    """What the results of a host function must be; "" where anything goes."""
    source: str = ""
    """The user's node."""
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Block:
    """Steps, the registers that they find their arguments in, and those of the results."""

    arguments: tuple[int, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def all_steps(self) -> Iterator[Step]:
        """The steps, and those in their blocks."""
        for step in self.steps:
            yield step
            for block in step.blocks:
                yield from block.all_steps()


@dataclass(frozen=True)
class Port:
    """Name and kind of an input or output."""

    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}"


@dataclass(frozen=True)
class CompiledProgram:
    """A program as data."""

    target: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    body: Block
    registers: int
    parts: tuple[Artifact, ...]
    constants: Mapping[int, str] = field(default_factory=dict)
    """Registers that hold parameters from the beginning."""
