"""Commands of the unit: 32 bytes each, in program order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from mirlo.extend.codegen import MemorySpan

SIZE = 16
"""Rows and columns of the array, and bytes of a scratchpad row."""
DATA_ROWS, WEIGHT_ROWS, PARAMETER_ROWS, ACCUMULATOR_ROWS, RESULT_ROWS = 16384, 4096, 256, 2048, 2048
"""Rows of the scratchpads."""


class Queue(IntEnum):
    """The queues, each of which executes its commands in order; adjacent queues exchange tokens."""

    LOAD, ARRAY, REQUANTIZE, STORE = range(4)


class Op(IntEnum):
    """The operations of commands."""

    NOP, LOAD, FILL, WEIGHTS, MULTIPLY, REQUANTIZE, TABLE, STORE, BARRIER = range(9)


class Memory(IntEnum):
    """Scratchpads: the destinations of loads, and the place of results."""

    DATA, WEIGHTS, PARAMETERS, ACCUMULATORS, RESULTS = range(5)


class Mode(IntEnum):
    """The effect of a product on accumulators."""

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


@dataclass(eq=False)
class Command:
    """A command, with the rows of scratchpads that it reads and writes."""

    queue: Queue
    op: Op
    words: tuple[int, ...] = ()
    reads: tuple[MemorySpan, ...] = ()
    writes: tuple[MemorySpan, ...] = ()
    weights: int | None = None
    """The row of a product's weights."""
    is_linked: bool = False
    """Whether the preceding product may announce these weights although they belong to another load."""
    keeps: bool = False
    """Whether it uses the weights of the preceding product."""
    following: int | None = None
    """The row of the next product's weights, which the array takes during this product."""
    batch: int = 0
    """The group of loads that are waited for together."""
    waits: set[Queue] = field(default_factory=set)
    """The neighbor queues whose token it takes."""
    gives: set[Queue] = field(default_factory=set)
    """The neighbor queues that get a token when its results can be read."""

    @staticmethod
    def table(parameters: int) -> Command:
        """Return a command that makes 16 rows of parameters the table of following requantizations."""
        span = MemorySpan(Memory.PARAMETERS, parameters, SIZE)
        return Command(Queue.REQUANTIZE, Op.TABLE, (0, 0, parameters << 16), (span,))

    @staticmethod
    def take(weights: int) -> Command:
        """Return a command that takes weights for the next product, if no product has announced them."""
        span = MemorySpan(Memory.WEIGHTS, weights, SIZE)
        return Command(Queue.ARRAY, Op.WEIGHTS, (0, weights), (span,))

    def encoded(self) -> list[int]:
        """Return the words of the command."""
        flags = 0
        for giver in self.waits:
            flags |= 1 if giver < self.queue else 2
        for taker in self.gives:
            flags |= 4 if taker < self.queue else 8
        words = list(self.words)
        if self.op is Op.MULTIPLY:
            words.append((0 if self.following is None else self.following | 1 << 16) | self.keeps << 17)
        return [self.op | flags << 8 | self.queue << 12, *words, *(0,) * (7 - len(words))]

    def announcing(self, weights: int) -> Command:
        """Return the product with the weights that the array takes meanwhile for the next product."""
        span = MemorySpan(Memory.WEIGHTS, weights, SIZE)
        return replace(self, following=weights, reads=(*self.reads, span))


def load_rows(rows: Rows, target: int, memory: Memory, line: int = 0) -> Command:
    """Return a copy of rows to a scratchpad; `line` is the distance between the first rows of two outer iterations."""
    span = MemorySpan(memory, target, (rows.outer - 1) * line + rows.inner)
    return Command(Queue.LOAD, Op.LOAD, (*_words(rows, target, line), memory), writes=(span,))


def load_table(address: int, target: int) -> Command:
    """Return a copy of a table of 256 bytes to parameters."""
    return load_rows(Rows(address, SIZE, SIZE), target, Memory.PARAMETERS)


def fill_rows(target: int, inner: int, outer: int, line: int, value: int) -> Command:
    """Return a command that fills rows of data with a value."""
    span = MemorySpan(Memory.DATA, target, (outer - 1) * line + inner)
    words = (*_words(Rows(0, SIZE, inner, outer), target, line), (value & 255) << 8)
    return Command(Queue.LOAD, Op.FILL, words, writes=(span,))


def multiply_rows(
    row: int, target: int, counts: tuple[int, int], strides: tuple[int, int], mode: Mode, weights: int, linked: bool,
) -> Command:  # fmt: skip
    """Return a product of rows of data and weights; counts and strides are those of the inner and outer loop."""
    data = MemorySpan(Memory.DATA, row, (counts[0] - 1) * strides[0] + (counts[1] - 1) * strides[1] + 1)
    reads = data, MemorySpan(Memory.WEIGHTS, weights, SIZE)
    sums = MemorySpan(Memory.ACCUMULATORS, target, counts[0] * counts[1])
    words = (row, target, counts[0] | counts[1] << 16, strides[0] | strides[1] << 16, mode)
    return Command(Queue.ARRAY, Op.MULTIPLY, words, reads, (sums,), weights, linked)


def requantize_rows(
    row: int, second: int | None, count: int, parameters: int, target: int, limits: tuple[int, int, int], table: bool,
) -> Command:  # fmt: skip
    """Return the requantization of rows of accumulators; limits are the zero point, the least and the largest value."""
    zero, low, high = (limit & 255 for limit in limits)
    flags = (second is not None) | table << 1
    last = zero | low << 8 | high << 16 | flags << 24
    sums = [MemorySpan(Memory.ACCUMULATORS, each, count) for each in (row, second) if each is not None]
    return Command(
        Queue.REQUANTIZE, Op.REQUANTIZE, (row, second or 0, count | parameters << 16, target, last),
        (*sums, MemorySpan(Memory.PARAMETERS, parameters, 2 * SIZE)), (MemorySpan(Memory.RESULTS, target, count),),
    )  # fmt: skip


def store_rows(rows: Rows, source: int) -> Command:
    """Return a copy of rows of results to main memory."""
    return Command(Queue.STORE, Op.STORE, _words(rows, source, 0), (MemorySpan(Memory.RESULTS, source, rows.inner),))


def content(commands: list[Command]) -> bytes:
    """Return commands as bytes."""
    return np.array([word for command in commands for word in command.encoded()], np.uint32).tobytes()


def _words(rows: Rows, row: int, line: int) -> tuple[int, ...]:
    strides = rows.inner_stride & 0xFFFFFFFF, rows.outer_stride & 0xFFFFFFFF
    return (rows.address, row, rows.size | rows.inner << 8, rows.outer | line << 16, *strides)
