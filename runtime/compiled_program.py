"""A program as data: steps over numbered registers, blocks, and compiled modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.kinds import Kind
from mirlo.runtime.records import dataclass

PART, HOST, IF, WHILE = "part", "host", "if", "while"


@dataclass(frozen=True)
class ProgramStep:
    """One step of a program and its registers.

    Input 0 of `if` is the condition that selects one of two blocks. The inputs of `while` are the initial
    loop-carried values: the first block returns the condition, then the arguments of the second block, which are
    also the results of the loop; the second block returns the arguments of the first for the next iteration.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    part: int = 0
    function: str = ""
    options: str = "{}"
    kinds: tuple[str, ...] = ()
    """Required kinds of the results of a host function; "" for any."""
    source: str = ""
    """The name of the user's node."""
    blocks: tuple[CompiledBlock, ...] = ()


@dataclass(frozen=True)
class CompiledBlock:
    """Steps, the registers of their arguments, and those of the results."""

    arguments: tuple[int, ...]
    steps: tuple[ProgramStep, ...]
    results: tuple[int, ...]

    def all_steps(self) -> Iterator[ProgramStep]:
        """Yield the steps, including those of nested blocks."""
        for step in self.steps:
            yield step
            for block in step.blocks:
                yield from block.all_steps()


@dataclass(frozen=True)
class Port:
    """The name and kind of an input or output."""

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
    body: CompiledBlock
    registers: int
    parts: tuple[Artifact, ...]
    constants: Mapping[int, str] = field(default_factory=dict)
    """Registers that initially hold parameters."""
