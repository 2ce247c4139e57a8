"""Execution of the steps of a call in which the host decides. Imports nothing of the compiler."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mirlo.targets.gpu.commands import Step, StepRange


class StepWorker(ABC):
    """Executes the steps of one call on a device."""

    def __init__(self) -> None:
        self._room: dict[int, int] = {}
        """The bytes of memory that grows, by number."""

    def execute(self, step: Step) -> int:
        """Execute a step; return what it reads, as an integer."""
        if "read" in step:
            return int.from_bytes(self.read(step["read"]), "little", signed=True)
        if "write" in step:
            self.write(step["write"], step["value"])
        elif "allocate" in step:
            self.allocate(step["allocate"], step["number"], step["bytes"])
        elif "grow" in step:
            self._grow(step["grow"], max(step["bytes"], 1))
        elif "call" in step:
            self.call(step)
        else:
            self.enqueue(step)
        return 0

    def _grow(self, memory: int, size: int) -> None:
        """Allocate memory again where it has fewer bytes than that: at least twice as many then."""
        room = self._room.get(memory, 0)
        if size > room:
            self._room[memory] = max(size, 2 * room)
            self.allocate(memory, -1, self._room[memory])

    @abstractmethod
    def enqueue(self, step: Step) -> None:
        """Enqueue a launch or a copy."""

    @abstractmethod
    def read(self, where: StepRange) -> bytes:
        """Read a range, after all previous steps."""

    @abstractmethod
    def write(self, where: StepRange, data: bytes) -> None:
        """Write a range, after all previous steps."""

    @abstractmethod
    def allocate(self, memory: int, number: int, size: int) -> None:
        """Allocate memory of the space `late`; `number` is that of the output it is for, or -1."""

    @abstractmethod
    def call(self, step: Step) -> None:
        """Call a packed function; raise `CallEnded` if it fails."""
