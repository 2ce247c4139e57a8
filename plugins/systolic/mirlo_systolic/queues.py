"""Commands in four queues: prefetching, and the tokens that synchronize adjacent queues.

Commands come in loop order, as if executed one after another. The rows that they read and write determine the
dependencies between queues: a command waits for the command that wrote what it reads, and for the last one that reads
what it overwrites.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirlo.extend.codegen import QueuedCommand, QueueModel, QueueToken, synchronize
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
"""Memories that are loaded shortly before use; the queue next to the loads reads them."""


class Program:
    """Commands in program order, with their tokens."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def step(self, commands: Iterable[Command]) -> None:
        """Append commands that may overlap; the unit finishes them and records the cycle."""
        self.commands += with_tokens(in_time(linked(list(commands))))
        self.commands.append(Command(Queue.LOAD, Op.BARRIER))

    def content(self) -> bytes:
        """Return the commands as bytes."""
        return content(self.commands)


def linked(commands: Sequence[Command]) -> list[Command]:
    """Make products announce the weights of the next product; elsewhere, add a command that takes them."""
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
            # The following weights are loaded before the product that announces them.
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
    """Move loads of data and weights to the first command that reads them, with other loads that are read soon."""
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
    """Return whether two loads fill the same tile, including its padding."""
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
"""Rows loaded before a product may begin; waiting for loads costs 24 cycles."""
NEIGHBORS = [(one, other) for one in Queue for other in Queue if abs(one - other) == 1]
MODEL = QueueModel(ROWS, [QueueToken(one, other) for one, other in NEIGHBORS], relay=Queue.ARRAY)
"""Neighbors exchange tokens; parameter loads and requantization synchronize through the array."""


def with_tokens(commands: Sequence[Command]) -> list[Command]:
    """Return commands with tokens that make them wait for the commands of other queues that they depend on."""
    queued = (QueuedCommand(each.queue, each.reads, each.writes, each.op.name, each.batch or None) for each in commands)
    result: list[Command] = []
    for step in synchronize(queued, MODEL):
        command = Command(Queue.ARRAY, Op.NOP) if step.index is None else commands[step.index]
        command.waits.update(Queue(queue) for queue in step.takes())
        command.gives.update(Queue(queue) for queue in step.gives())
        result.append(command)
    return result
