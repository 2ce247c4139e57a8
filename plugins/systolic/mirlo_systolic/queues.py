"""Commands in four queues: what is loaded when, and the tokens with which neighbors wait for one another.

Commands come in the order of the loops that they were, as if one were executed after the other. What follows from the
rows that they read and write keeps that meaning when queues overlap: a command waits for the one that wrote what it
reads, and for the last one that reads what it overwrites.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from mirlo_systolic.commands import (
    ACCUMULATOR_ROWS,
    DATA_ROWS,
    PARAMETER_ROWS,
    RESULT_ROWS,
    WEIGHT_ROWS,
    Command,
    Memory,
    Op,
    Queue,
    content,
)

ROWS = {
    Memory.DATA: DATA_ROWS, Memory.WEIGHTS: WEIGHT_ROWS, Memory.PARAMETERS: PARAMETER_ROWS,
    Memory.ACCUMULATORS: ACCUMULATOR_ROWS, Memory.RESULTS: RESULT_ROWS,
}  # fmt: skip
LATE = (Memory.DATA, Memory.WEIGHTS)
"""What is loaded when the array needs it: rows of these are read by the neighbor of the loads."""


class Program:
    """Commands in program order, with their tokens."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def step(self, commands: Iterable[Command]) -> None:
        """Append commands that overlap one another, and let the unit finish them and record the cycle."""
        self.commands += with_tokens(in_time(linked(list(commands))))
        self.commands.append(Command(Queue.LOAD, Op.BARRIER))

    def content(self) -> bytes:
        """Return the commands as bytes."""
        return content(self.commands)


def linked(commands: Sequence[Command]) -> list[Command]:
    """Let products announce the weights of the next one; where none does, a command takes them before."""
    result: list[Command] = []
    last: int | None = None
    """Where the last product is."""
    for command in commands:
        if command.op is not Op.MULTIPLY:
            result.append(command)
            continue
        assert command.weights is not None
        loads = [each for each in result[last or 0 :] if _loads_weights(each)]
        product = None if last is None else result[last]
        if product is None or last is None:
            result.append(Command.take(command.weights))
        elif product.weights == command.weights and not loads:
            command.keeps = True
        elif not loads or command.is_linked and not any(_overlap(load, product) for load in loads):
            # The weights behind are loaded before the product that announces them.
            behind = [each for each in result[last + 1 :] if each not in loads]
            result[last:] = [*loads, product.announcing(command.weights), *behind]
        else:
            result.append(Command.take(command.weights))
        last = len(result)
        result.append(command)
    return result


def _loads_weights(command: Command) -> bool:
    return command.queue is Queue.LOAD and command.writes[0].memory is Memory.WEIGHTS


def in_time(commands: Sequence[Command]) -> list[Command]:
    """Move loads of data and weights to the first command that reads some of them, with what is read soon."""
    result: list[Command] = []
    pending: list[list[Command]] = []
    batch = 0
    for command in commands:
        if command.queue is Queue.LOAD and command.writes[0].memory in LATE:
            if pending and _is_tile(pending[-1][-1], command):
                pending[-1].append(command)
            else:
                pending.append([command])
            continue
        needed = [group for group in pending if any(_overlap(load, command) for load in group)]
        if needed:
            rest = [group for group in pending if group not in needed]
            rows = sum(load.writes[0].count for group in needed for load in group)
            while rest and rows < BATCH_ROWS and rest[0][0].writes[0].memory is Memory.DATA:
                needed.append(rest.pop(0))
                rows += sum(load.writes[0].count for load in needed[-1])
            pending, batch = rest, batch + 1
            for load in (load for group in needed for load in group):
                load.batch = batch
                result.append(load)
        result.append(command)
    return result + [load for group in pending for load in group]


def _is_tile(one: Command, other: Command) -> bool:
    """Return whether two loads are of the same tile: what surrounds an image is filled."""
    return one.op is Op.FILL and other.writes[0].memory is Memory.DATA


def _overlap(load: Command, command: Command) -> bool:
    (written,) = load.writes
    return any(
        read.memory is written.memory
        and read.first < written.first + written.count
        and written.first < read.first + read.count
        for read in command.reads
    )


BATCH_ROWS = 256
"""Rows that are loaded before a product may begin: waiting for loads takes 24 cycles in which none begins."""
WRITER = {
    Memory.DATA: Queue.LOAD, Memory.WEIGHTS: Queue.LOAD, Memory.PARAMETERS: Queue.LOAD,
    Memory.ACCUMULATORS: Queue.ARRAY, Memory.RESULTS: Queue.REQUANTIZE,
}  # fmt: skip
READER = {
    Memory.DATA: Queue.ARRAY, Memory.WEIGHTS: Queue.ARRAY, Memory.PARAMETERS: Queue.REQUANTIZE,
    Memory.ACCUMULATORS: Queue.REQUANTIZE, Memory.RESULTS: Queue.STORE,
}  # fmt: skip
"""Each memory has one queue that writes it, and one that reads it."""


def with_tokens(commands: Sequence[Command]) -> list[Command]:
    """Let commands wait for those of other queues on which they depend."""
    waiting = _Waiting()
    for command in commands:
        waiting.append(command)
    waiting.give_tokens()
    return waiting.commands


class _Waiting:
    """Which command waits for which, while commands are appended in program order.

    Queues that are no neighbors, loads of parameters and requantization, wait by way of the array.
    """

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._queues: dict[Queue, list[Command]] = {queue: [] for queue in Queue}
        self._needs: dict[int, dict[Queue, int]] = {}
        """By command: for each neighbor, the position in its queue of the command that it waits for."""
        self._orders: dict[int, int] = {}
        """By command: its position in program order."""
        self._written = {memory: np.full(rows, -1) for memory, rows in ROWS.items()}
        self._read = {memory: np.full(rows, -1) for memory, rows in ROWS.items()}
        self._batches: dict[int, int] = {}
        """By batch of loads: the position of the last one."""
        self._array_waits: list[tuple[int, int]] = []
        """Positions of requantizations that the array waits for, and of its commands that do."""

    def append(self, command: Command) -> None:
        """Append a command, with what it waits for by what it reads and writes."""
        far: list[tuple[Queue, int]] = []
        for spans, last, queue_of in ((command.reads, self._written, WRITER), (command.writes, self._read, READER)):
            for span in spans:
                queue = queue_of[span.memory]
                position = int(last[span.memory][span.first : span.first + span.count].max())
                if position < 0 or queue is command.queue:
                    continue
                if queue is Queue.LOAD:
                    position = max(position, self._batches.get(self._queues[queue][position].batch, -1))
                if abs(queue - command.queue) == 1:
                    self._wait(command, queue, position)
                else:
                    far.append((queue, position))
        for queue, position in far:
            self._wait_by_array(command, queue, position)
        position = self._issue(command)
        for span in command.reads:
            if READER[span.memory] is command.queue:
                self._read[span.memory][span.first : span.first + span.count] = position
        for span in command.writes:
            self._written[span.memory][span.first : span.first + span.count] = position

    def give_tokens(self) -> None:
        """Let each command that another one waits for give it a token, unless a token before says as much."""
        taken: dict[tuple[Queue, Queue], int] = {}
        for command in self.commands:
            for queue, position in self._needs.get(id(command), {}).items():
                if position > taken.get((queue, command.queue), -1):
                    taken[queue, command.queue] = position
                    self._queues[queue][position].gives.add(command.queue)
                    command.waits.add(queue)

    def _issue(self, command: Command) -> int:
        position = len(self._queues[command.queue])
        self._queues[command.queue].append(command)
        self._orders[id(command)] = len(self.commands)
        self.commands.append(command)
        if command.batch:
            self._batches[command.batch] = position
        behind = self._needs.get(id(command), {}).get(Queue.REQUANTIZE)
        if command.queue is Queue.ARRAY and behind is not None:
            self._array_waits.append((behind, position))
        return position

    def _wait(self, command: Command, queue: Queue, position: int) -> None:
        needs = self._needs.setdefault(id(command), {})
        needs[queue] = max(needs.get(queue, -1), position)

    def _wait_by_array(self, command: Command, queue: Queue, position: int) -> None:
        """Let a command wait for one of a queue that is no neighbor."""
        if queue is Queue.LOAD:
            # The product that it waits for anyway waits for the load.
            through = self._needs.get(id(command), {}).get(Queue.ARRAY, -1)
            giver = self._queues[queue][position]
            if through >= 0 and self._orders[id(giver)] < self._orders[id(self._queues[Queue.ARRAY][through])]:
                self._wait(self._queues[Queue.ARRAY][through], queue, position)
                return
        else:
            found = bisect_left(self._array_waits, (position, -1))
            first = self._array_waits[found][1] if found < len(self._array_waits) else None
            if first is not None:
                self._wait(command, Queue.ARRAY, first)
                return
        relay = Command(Queue.ARRAY, Op.NOP)
        self._wait(relay, queue, position)
        self._wait(command, Queue.ARRAY, self._issue(relay))
