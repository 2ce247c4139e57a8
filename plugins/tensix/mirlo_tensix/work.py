"""Work of a core: commands in program order, translated to the words of three threads with their waits."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mirlo.extend.codegen import (
    Banks,
    MemorySpan,
    QueuedCommand,
    QueueModel,
    QueueStep,
    RolledLoop,
    Semaphore,
    check_signals,
    roll_commands,
    synchronize,
)
from mirlo_tensix import instructions as tensix
from mirlo_tensix.instructions import FORMATS, SUMS_READY, Format, Instruction, Instructions, Loop, Mark, Variable

HALF = 4
"""Tiles of fp32 in a half of Dst."""
JOINT_RATE, PACK_RATE = 80, 64
"""Bytes a cycle that both unpackers read together, and that the packers write."""
FILL_CYCLES = 140
"""Cycles of a piece of work beside those of its words: until the first tiles are there, and the last one is packed."""
LOOPS = 6
"""How many loops of commands may be nested; two more are those of the vector unit."""
UNPACK, MATH, PACK = range(3)
"""The threads, which are the queues of commands."""
MODEL = QueueModel(
    {"a": 2, "b": 2, "sums": 2},
    [Banks("a", UNPACK, MATH, 2), Banks("b", UNPACK, MATH, 2), Semaphore("sums", MATH, PACK, 2)],
)
BEFORE: dict[Hashable, list[int]] = {
    MATH: [tensix.wait_for_semaphore(tensix.BLOCK_MATH, SUMS_READY, tensix.WHILE_FULL)],
    PACK: [tensix.wait_for_semaphore(tensix.BLOCK_MISC, SUMS_READY, tensix.WHILE_ZERO)],
}
"""How the threads wait for a half of Dst that is packed, and for one that is full."""
AFTER: dict[Hashable, list[int]] = {
    MATH: [tensix.stall(tensix.BLOCK_SYNC, tensix.MATH_BUSY | tensix.VECTOR_BUSY), tensix.post(SUMS_READY)],
    PACK: [tensix.stall(tensix.BLOCK_SYNC, tensix.PACKERS_BUSY), tensix.get(SUMS_READY)],
}
"""How they hand it over."""


@dataclass(frozen=True)
class Command:
    """A command with what its words need."""

    queued: QueuedCommand
    kind: str
    """"load", "multiply", "move", "body", "zero" or "pack"."""
    place: int = 0
    """The tile of its tensor in L1."""
    tile: int = 0
    """The tile of Dst."""
    operand: int = 0
    body: int = 0
    """The number of the body that the vector unit computes."""
    arrives: int | None = None
    """What the load waits for, where operands arrive meanwhile."""
    pixel: int = 0
    """How many pixels after this tile a result is packed."""
    rows: tuple[int, ...] = ()
    """The rows of Dst that become zero."""


def load(operand: int, place: int, memory: str, bank: int) -> Command:
    name = f"unpack tile {place} of operand {operand}"
    return Command(QueuedCommand(UNPACK, (), (MemorySpan(memory, bank % 2, 1),), name), "load", place, operand=operand)


def zero(tile: int, rows: Iterable[int]) -> Command:
    """Return the command that sets rows of Dst to zero, all of them of the half of a tile."""
    span = MemorySpan("sums", tile // HALF, 1)
    return Command(QueuedCommand(MATH, (), (span,), "clear what is no pixel"), "zero", tile=tile, rows=tuple(rows))


def pack(place: int, tile: int, pixel: int = 0) -> Command:
    span = MemorySpan("sums", tile // HALF, 1)
    return Command(QueuedCommand(PACK, (span,), (), f"pack tile {place}"), "pack", place, tile, pixel=pixel)


@dataclass(frozen=True)
class Threads:
    """The words of the three threads."""

    words: tuple[Instructions, Instructions, Instructions]
    kind: Format
    is_plane: bool = False
    """Whether SrcB is unpacked in halves."""

    @functools.cached_property
    def busy(self) -> dict[str, int]:
        """Return the cycles in which each unit works, as the documentation has them."""
        counts = sum((tensix.executed(words) for words in self.words), Counter[int]())
        tile = self.kind.tile_bytes
        unpacked = counts[tensix.UNPACK_A] * tile + counts[tensix.UNPACK_B] * tile // (2 if self.is_plane else 1)
        return {
            "matrix": counts[tensix.MULTIPLY],
            "vector": sum(counts[code] for code in tensix.VECTOR),
            "unpackers": -(-unpacked // JOINT_RATE),
            "packers": -(-counts[tensix.PACK] * tile // PACK_RATE),
        }

    @property
    def durations(self) -> dict[str, int]:
        """Return the cycles of instructions that the simulator does not report: two, and a tile's bytes by the rate."""
        return {"UNPACR": 2 + self.kind.tile_bytes // 64, "PACR": self.kind.tile_bytes // PACK_RATE}

    @property
    def floor(self) -> int:
        """Return the cycles that moving bytes takes at least, which the simulator does not charge."""
        return max(self.busy["unpackers"], self.busy["packers"])

    @property
    def estimated(self) -> int:
        """Return the estimated cycles: one for each word, or those of the bytes."""
        return max(self.floor, *(tensix.executed(words).total() for words in self.words)) + FILL_CYCLES


@dataclass(frozen=True)
class Work:
    """Work on tensors in L1: operands, and the result, which comes last."""

    format: str = field(default="bf16", kw_only=True)

    @property
    def kind(self) -> Format:
        return FORMATS[self.format]

    @property
    def is_plane(self) -> bool:
        """Return whether SrcB is unpacked from planes."""
        return False

    @property
    @abstractmethod
    def tensor_bytes(self) -> tuple[int, ...]:
        """Return the bytes of the operands and of the result."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """Return the limit of cycles."""

    @abstractmethod
    def commands(self) -> Iterator[Command]:
        """Yield the commands in program order."""

    @abstractmethod
    def setups(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Return the configuration of the threads."""

    @abstractmethod
    def words(self, command: Command, places: Sequence[int], waits: set[str], gives: set[str]) -> Instructions:
        """Return the words of a command with its waits for memories, and the hand-over of memories after it."""

    def threads(self, places: Sequence[int]) -> Threads:
        return threads(self, tuple(places))


@functools.lru_cache(maxsize=64)
def synchronized(work: Work) -> tuple[tuple[Command, ...], tuple[QueueStep, ...]]:
    """Return the commands of a piece of work, and their signals; what these do not enforce is an error."""
    commands = tuple(work.commands())
    steps = synchronize([each.queued for each in commands], MODEL)
    hazards = check_signals(steps, MODEL)
    if hazards:
        raise ValueError(f"commands of {work}: {hazards[0]}")
    return commands, tuple(steps)


def rolled(words: Instructions) -> Instructions:
    """Return the words of a thread with their loops, in which the numbers of `Variable` advance."""

    def instruction(found: Any) -> Instruction:
        if isinstance(found, RolledLoop):
            return Loop(found.count, tuple(map(instruction, found.body)))
        return replace(found.item, steps=found.steps) if isinstance(found.item, Variable) else found.item

    return [instruction(each) for each in roll_commands(words, _split, most_depth=LOOPS)]


def _split(word: Instruction) -> tuple[Hashable, int | None]:
    """Return what instructions of different iterations have in common, and the number that advances."""
    if isinstance(word, Variable):
        return (word.kind, word.target), word.value
    return (Mark if isinstance(word, Mark) else word), None


@functools.lru_cache(maxsize=64)
def threads(work: Work, places: tuple[int, ...]) -> Threads:
    """Return the words of a piece of work whose tensors are at places in L1."""
    every: dict[Hashable, Instructions] = dict(enumerate(map(list, work.setups())))
    for command, step in zip(*synchronized(work), strict=True):
        queue, words = command.queued.queue, every[command.queued.queue]
        waits, gives = (
            {str(signal.hand_over.memory) for signal in signals if isinstance(signal.hand_over, Semaphore)}
            for signals in (step.before, step.after)
        )
        words.append(Mark(command.queued.name))
        words += BEFORE[queue] if "sums" in waits else []
        words += work.words(command, places, waits, gives)
        words += AFTER[queue] if "sums" in gives else []
    every = {queue: rolled(words) for queue, words in every.items()}
    every[PACK] = [tensix.op("SEMINIT", semaphores=1 << tensix.DONE, most=1), *every[PACK], tensix.post(tensix.DONE)]
    return Threads((every[0], every[1], every[2]), work.kind, work.is_plane)
