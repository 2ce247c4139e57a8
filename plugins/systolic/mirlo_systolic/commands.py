"""Commands of the unit: 32 bytes each, in program order, with the tokens that let its four queues overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

SIZE = 16
"""Rows and columns of the array, bytes of a row of a scratchpad."""
DATA_ROWS, WEIGHT_ROWS, PARAMETER_ROWS, ACCUMULATOR_ROWS, RESULT_ROWS = 16384, 4096, 256, 2048, 2048
"""Rows of the scratchpads."""


class Queue(IntEnum):
    """The queues, each of which executes its commands in order. Neighbors exchange tokens."""

    LOAD, ARRAY, REQUANTIZE, STORE = range(4)


class Op(IntEnum):
    """What commands do."""

    NOP, LOAD, FILL, WEIGHTS, MULTIPLY, REQUANTIZE, TABLE, STORE, BARRIER = range(9)


class Memory(IntEnum):
    """Where loads put rows."""

    DATA, WEIGHTS, PARAMETERS = range(3)


class Mode(IntEnum):
    """What a product does with accumulators."""

    STORE, ADD, MAXIMUM = range(3)


@dataclass(frozen=True)
class Rows:
    """Rows in main memory, in two loops: `outer` times `inner` rows of `size` bytes."""

    address: int
    size: int
    inner: int
    outer: int = 1
    inner_stride: int = SIZE
    outer_stride: int = 0


@dataclass
class Program:
    """Commands, as they are emitted."""

    words: list[int] = field(default_factory=list)
    given: dict[tuple[Queue, Queue], int] = field(default_factory=dict)
    """How many tokens a queue has given to a neighbor."""
    _taken: dict[tuple[Queue, Queue], int] = field(default_factory=dict)
    _waits: dict[Queue, set[Queue]] = field(default_factory=dict)
    count: int = 0

    def wait(self, queue: Queue, giver: Queue, level: int) -> None:
        """Let the next command of a queue wait until a neighbor has given this many tokens since the program began."""
        while self._taken.get((giver, queue), 0) < level:
            waits = self._waits.setdefault(queue, set())
            if giver in waits:
                self.emit(queue, Op.NOP)
            self._waits.setdefault(queue, set()).add(giver)
            self._taken[giver, queue] = self._taken.get((giver, queue), 0) + 1

    def emit(self, queue: Queue, op: Op, *words: int, to: Iterable[Queue] = ()) -> None:
        """Append a command that gives a token to each neighbor in `to` when its results can be read."""
        flags = 0
        for giver in self._waits.pop(queue, ()):
            flags |= 1 if giver < queue else 2
        for taker in to:
            flags |= 4 if taker < queue else 8
            self.given[queue, taker] = self.given.get((queue, taker), 0) + 1
        self.words += [op | flags << 8 | queue << 12, *words, *(0,) * (7 - len(words))]
        self.count += 1

    def load(
        self, rows: Rows, target: int, memory: Memory = Memory.DATA, line: int = 0, to: Iterable[Queue] = ()
    ) -> None:
        """Copy rows to a scratchpad; `line` is the distance between the first rows of two outer iterations."""
        self.emit(Queue.LOAD, Op.LOAD, *_rows(rows, target, line), memory, to=to)

    def fill(self, target: int, inner: int, outer: int, line: int, value: int) -> None:
        """Fill rows of data with a value."""
        self.emit(Queue.LOAD, Op.FILL, *_rows(Rows(0, SIZE, inner, outer), target, line), (value & 255) << 8)

    def weights(self, row: int) -> None:
        """Let the array take weights for the product behind, which no product has announced."""
        self.emit(Queue.ARRAY, Op.WEIGHTS, 0, row)

    def multiply(
        self, row: int, target: int, counts: tuple[int, int], strides: tuple[int, int], mode: Mode,
        following: int | None, to: Iterable[Queue] = (), keep: bool = False,
    ) -> None:  # fmt: skip
        """Multiply rows of data by the weights that wait, or that the product before had if it is to keep them.

        `following` is the row of the weights of the product behind.
        """
        words = (row, target, counts[0] | counts[1] << 16, strides[0] | strides[1] << 16, mode)
        self.emit(
            Queue.ARRAY, Op.MULTIPLY, *words, (0 if following is None else following | 1 << 16) | keep << 17, to=to
        )

    def requantize(
        self, row: int, second: int | None, count: int, parameters: int, target: int, limits: tuple[int, int, int],
        table: bool = False, to: Iterable[Queue] = (),
    ) -> None:  # fmt: skip
        """Requantize rows of accumulators; limits are the zero point, the least and the largest value."""
        zero, low, high = (limit & 255 for limit in limits)
        flags = (second is not None) | table << 1
        last = zero | low << 8 | high << 16 | flags << 24
        self.emit(Queue.REQUANTIZE, Op.REQUANTIZE, row, second or 0, count | parameters << 16, target, last, to=to)

    def table(self, parameters: int) -> None:
        """Take 16 rows of parameters as the table of following requantizations."""
        self.emit(Queue.REQUANTIZE, Op.TABLE, 0, 0, parameters << 16)

    def store(self, rows: Rows, source: int, to: Iterable[Queue] = ()) -> None:
        """Copy rows of results to main memory."""
        self.emit(Queue.STORE, Op.STORE, *_rows(rows, source, 0), to=to)

    def barrier(self) -> None:
        """Let the unit finish all commands, and record the cycle."""
        self.emit(Queue.LOAD, Op.BARRIER)

    def content(self) -> bytes:
        """Return the commands as bytes."""
        return np.array(self.words, np.uint32).tobytes()


def _rows(rows: Rows, row: int, line: int) -> tuple[int, ...]:
    strides = rows.inner_stride & 0xFFFFFFFF, rows.outer_stride & 0xFFFFFFFF
    return (rows.address, row, rows.size | rows.inner << 8, rows.outer | line << 16, *strides)
