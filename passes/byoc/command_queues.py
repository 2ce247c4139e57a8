"""Dependencies between commands that several queues of an accelerator execute at once.

Commands are listed in program order: the order that the loops of a schedule have. Each is executed by one queue, and a
queue executes its commands in order. A command depends on the last ones of other queues that wrote what it reads
(read after write), that read what it overwrites (write after read), and that wrote what it overwrites (write after
write). `synchronize` turns these dependencies into signals of the kinds that the accelerator has; `check_signals`
executes a list with signals, planned or written by hand, and reports each dependency that no signal enforces.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum

import numpy as np

from mirlo.runtime.records import dataclass


class QueueError(ValueError):
    """Commands whose dependencies the declared hand-overs cannot enforce."""


@dataclass(frozen=True)
class MemorySpan:
    """Consecutive units of a memory: rows, tiles or bytes."""

    memory: Hashable
    first: int
    count: int

    def __str__(self) -> str:
        name = self.memory.name if isinstance(self.memory, Enum) else self.memory
        return f"{name}[{self.first}:{self.first + self.count}]"


@dataclass(frozen=True)
class QueuedCommand:
    """A command in program order, with the queue that executes it and what it reads and writes."""

    queue: Hashable
    reads: tuple[MemorySpan, ...] = ()
    writes: tuple[MemorySpan, ...] = ()
    name: str = ""
    """What errors call it."""
    batch: Hashable = None
    """Commands of one queue and batch are waited for together: a wait for one is a wait for the last of them."""


@dataclass(frozen=True)
class QueueToken:
    """A token that one queue gives to another one, any number of which may be in flight."""

    giver: Hashable
    taker: Hashable


@dataclass(frozen=True)
class Semaphore:
    """A counter of the full parts of a memory, which one queue fills and another one empties in turn.

    The writer acquires a part (waits until the counter is below the number of parts) and posts it; the reader waits
    until the counter is above zero, and releases the part.
    """

    memory: Hashable
    writer: Hashable
    reader: Hashable
    parts: int


@dataclass(frozen=True)
class Banks(Semaphore):
    """Banks of registers that hardware hands over: it holds the writer and the reader by itself.

    Post and release are flags of the last write and of the last read of a bank; acquire and wait need no code.
    """


HandOver = QueueToken | Semaphore


class Action(Enum):
    """What a queue does with a hand-over."""

    TAKE = "take"
    GIVE = "give"
    ACQUIRE = "acquire"
    POST = "post"
    WAIT = "wait"
    RELEASE = "release"


@dataclass(frozen=True)
class Signal:
    """An action on a hand-over, before or after a command."""

    action: Action
    hand_over: HandOver


@dataclass
class QueueStep:
    """A command with its signals."""

    command: QueuedCommand
    index: int | None
    """The position of the command in the list that was planned; None for a relay."""
    before: list[Signal] = field(default_factory=list)
    after: list[Signal] = field(default_factory=list)

    def takes(self) -> Iterator[Hashable]:
        """Yield the queues of which this step takes a token."""
        return (s.hand_over.giver for s in self.before if isinstance(s.hand_over, QueueToken))

    def gives(self) -> Iterator[Hashable]:
        """Yield the queues to which this step gives a token."""
        return (s.hand_over.taker for s in self.after if isinstance(s.hand_over, QueueToken))


@dataclass(frozen=True)
class QueueModel:
    """The memories of an accelerator, and how its queues hand over what they wrote and read."""

    memories: Mapping[Hashable, int]
    """The units of each memory."""
    hand_overs: Sequence[HandOver]
    relay: Hashable = None
    """A queue that can execute a command without effect, for queues that exchange no tokens with one another."""

    def parts_of(self, memory: Hashable) -> Semaphore | None:
        """Return the hand-over of the parts of a memory; without one, its users exchange tokens."""
        return next((h for h in self.hand_overs if isinstance(h, Semaphore) and h.memory == memory), None)

    def has_token(self, giver: Hashable, taker: Hashable) -> bool:
        return QueueToken(giver, taker) in self.hand_overs


def synchronize(commands: Iterable[QueuedCommand], model: QueueModel) -> list[QueueStep]:
    """Return commands in program order with the signals that enforce their dependencies, and the relays they need."""
    tokens, parts = _Tokens(model), _Parts(model)
    for index, command in enumerate(commands):
        step = tokens.append(command, index)
        parts.append(step)
    tokens.place()
    parts.finish()
    return tokens.steps


class _Accesses:
    """The last command of each queue that wrote, and that read, each unit of the memories.

    Positions are those of commands in their queues; -1 is none.
    """

    def __init__(self, memories: Mapping[Hashable, int]) -> None:
        self._memories = memories
        self._last: dict[tuple[Hashable, bool], dict[Hashable, np.ndarray]] = {}

    def dependencies(self, command: QueuedCommand) -> Iterator[tuple[Hashable, int, MemorySpan, str]]:
        """Yield queue and position of each command that this one depends on, the span, and the kind of dependency."""
        for spans, is_write, kind in (
            (command.reads, True, "read after write"),
            (command.writes, False, "write after read"),
            (command.writes, True, "write after write"),
        ):
            for span in spans:
                for queue, position in self._positions(span, is_write, command.queue):
                    yield queue, position, span, kind

    def record(self, command: QueuedCommand, position: int) -> None:
        for spans, is_write in ((command.reads, False), (command.writes, True)):
            for span in spans:
                by_queue = self._last.setdefault((span.memory, is_write), {})
                if command.queue not in by_queue:
                    by_queue[command.queue] = np.full(self._size(span, command), -1)
                by_queue[command.queue][span.first : span.first + span.count] = position

    def _size(self, span: MemorySpan, command: QueuedCommand) -> int:
        size = self._memories.get(span.memory)
        if size is None or not 0 <= span.first <= span.first + span.count <= size:
            known = f"has {size} units" if size is not None else "is not one of the model's memories"
            raise QueueError(f"command '{command.name}' of queue {command.queue} uses {span}, but the memory {known}")
        return size

    def _positions(self, span: MemorySpan, is_write: bool, queue: Hashable) -> Iterator[tuple[Hashable, int]]:
        for other, last in self._last.get((span.memory, is_write), {}).items():
            if other != queue:
                position = int(last[span.first : span.first + span.count].max(initial=-1))
                if position >= 0:
                    yield other, position


class _Tokens:
    """Waits for commands of other queues, by tokens, while commands are appended in program order."""

    def __init__(self, model: QueueModel) -> None:
        self.steps: list[QueueStep] = []
        self._model = model
        self._accesses = _Accesses(model.memories)
        self._queues: dict[Hashable, list[QueueStep]] = {}
        self._needs: dict[int, dict[Hashable, int]] = {}
        """By step: for each queue, the position there of the command that it waits for."""
        self._orders: dict[int, int] = {}
        """By step: its position in program order."""
        self._batches: dict[tuple[Hashable, Hashable], int] = {}
        """By queue and batch: the position of the last command."""
        self._relay_waits: dict[Hashable, list[tuple[int, int]]] = {}
        """By queue: positions there that the relay's queue has waited for, and where it has, both ascending."""

    def append(self, command: QueuedCommand, index: int | None) -> QueueStep:
        step = QueueStep(command, index)
        far: list[tuple[Hashable, int]] = []
        for queue, position, span, _ in self._accesses.dependencies(command):
            if self._model.parts_of(span.memory) is not None:
                continue
            batch = self._queues[queue][position].command.batch
            latest = max(position, self._batches.get((queue, batch), -1)) if batch is not None else position
            if self._model.has_token(queue, command.queue):
                self._wait(step, queue, latest)
            elif self._model.relay is not None:
                far.append((queue, latest))
            else:
                raise QueueError(
                    f"command '{command.name}' of queue {command.queue} uses {span} after queue {queue}, and the model "
                    "has no token from that queue to it: declare one, a semaphore of that memory, or a relay"
                )
        for queue, position in far:
            self._wait_by_relay(step, queue, position)
        self._accesses.record(command, self._issue(step))
        return step

    def place(self) -> None:
        """Add the tokens of all waits, but for those that an earlier token between the same queues implies."""
        taken: dict[tuple[Hashable, Hashable], int] = {}
        for step in self.steps:
            taker = step.command.queue
            for giver, position in self._needs.get(id(step), {}).items():
                if position > taken.get((giver, taker), -1):
                    taken[giver, taker] = position
                    token = QueueToken(giver, taker)
                    self._queues[giver][position].after.append(Signal(Action.GIVE, token))
                    step.before.append(Signal(Action.TAKE, token))

    def _issue(self, step: QueueStep) -> int:
        queue = self._queues.setdefault(step.command.queue, [])
        position = len(queue)
        queue.append(step)
        self._orders[id(step)] = len(self.steps)
        self.steps.append(step)
        if step.command.batch is not None:
            self._batches[step.command.queue, step.command.batch] = position
        if step.command.queue == self._model.relay:
            for giver, needed in self._needs.get(id(step), {}).items():
                waits = self._relay_waits.setdefault(giver, [])
                waits.append((max(needed, waits[-1][0]) if waits else needed, position))
        return position

    def _wait(self, step: QueueStep, queue: Hashable, position: int) -> None:
        needs = self._needs.setdefault(id(step), {})
        needs[queue] = max(needs.get(queue, -1), position)

    def _wait_by_relay(self, step: QueueStep, queue: Hashable, position: int) -> None:
        """Wait for a command of a queue that gives this one no tokens, by way of the relay's queue."""
        relay = self._model.relay
        for one, other in ((queue, relay), (relay, step.command.queue)):
            if one != other and not self._model.has_token(one, other):
                raise QueueError(f"the model's relay {relay} needs a token from queue {one} to queue {other}")
        giver, between = self._queues[queue][position], self._queues.setdefault(relay, [])
        through = self._needs.get(id(step), {}).get(relay, -1)
        if through >= 0 and self._orders[id(giver)] < self._orders[id(between[through])]:
            self._wait(between[through], queue, position)
            return
        waits = self._relay_waits.get(queue, [])
        at = bisect_left(waits, (position, -1))
        if at < len(waits):
            self._wait(step, relay, waits[at][1])
            return
        step_between = QueueStep(QueuedCommand(relay, name="relay"), None)
        self._wait(step_between, queue, position)
        self._wait(step, relay, self._issue(step_between))


@dataclass
class _Phase:
    """One use of a part of a memory: it is filled, then emptied."""

    first_write: QueueStep
    last_write: QueueStep
    first_read: QueueStep | None = None
    last_read: QueueStep | None = None


class _Parts:
    """The semaphores of memories whose parts are filled and emptied in turn."""

    def __init__(self, model: QueueModel) -> None:
        self._model = model
        self._phases: dict[Semaphore, list[_Phase]] = {}

    def append(self, step: QueueStep) -> None:
        """Count what a command reads and writes to the phase of its part."""
        command = step.command
        for spans, is_write in ((command.reads, False), (command.writes, True)):
            for span in spans:
                semaphore = self._model.parts_of(span.memory)
                if semaphore is None:
                    continue
                if command.queue not in (semaphore.writer, semaphore.reader):
                    raise QueueError(
                        f"command '{command.name}' of queue {command.queue} uses {span}, a memory that queue "
                        f"{semaphore.writer} hands to queue {semaphore.reader}"
                    )
                if is_write and command.queue == semaphore.writer:
                    self._write(semaphore, step, span)
                elif not is_write and command.queue == semaphore.reader:
                    self._read(semaphore, step, span)

    def finish(self) -> None:
        """Add the signals of all phases."""
        for semaphore, phases in self._phases.items():
            for phase in phases:
                if phase.first_read is None or phase.last_read is None:
                    name = phase.last_write.command.name
                    raise QueueError(
                        f"what command '{name}' writes to {semaphore.memory} is never read: its part is never free"
                    )
                phase.first_write.before.append(Signal(Action.ACQUIRE, semaphore))
                phase.last_write.after.append(Signal(Action.POST, semaphore))
                phase.first_read.before.append(Signal(Action.WAIT, semaphore))
                phase.last_read.after.append(Signal(Action.RELEASE, semaphore))

    def _part(self, semaphore: Semaphore, step: QueueStep, span: MemorySpan) -> int:
        units = self._model.memories[span.memory] // semaphore.parts
        part = span.first // units
        if (span.first + span.count - 1) // units != part:
            raise QueueError(
                f"command '{step.command.name}' uses {span}, more than one of {semaphore.parts} parts of {units} units"
            )
        return part

    def _write(self, semaphore: Semaphore, step: QueueStep, span: MemorySpan) -> None:
        phases, part = self._phases.setdefault(semaphore, []), self._part(semaphore, step, span)
        turn = len(phases) - 1
        if phases and turn % semaphore.parts == part and phases[-1].first_read is None:
            phases[-1].last_write = step
            return
        expected = len(phases) % semaphore.parts
        if part != expected:
            raise QueueError(
                f"command '{step.command.name}' writes part {part} of {semaphore.memory}, but part {expected} is next: "
                "parts are filled in turn, and each is filled before it is read"
            )
        phases.append(_Phase(step, step))

    def _read(self, semaphore: Semaphore, step: QueueStep, span: MemorySpan) -> None:
        phases, part = self._phases.get(semaphore, []), self._part(semaphore, step, span)
        filled = [phase for turn, phase in enumerate(phases) if turn % semaphore.parts == part]
        if not filled:
            raise QueueError(f"command '{step.command.name}' reads {span} before anything is written there")
        phase = filled[-1]
        phase.first_read = phase.first_read or step
        phase.last_read = step


@dataclass(frozen=True)
class Hazard:
    """A dependency that no signal enforces."""

    kind: str
    """"read after write", "write after read" or "write after write"."""
    first: QueuedCommand
    second: QueuedCommand
    span: MemorySpan

    def __str__(self) -> str:
        return (
            f"'{self.second.name}' of queue {self.second.queue} does not wait for '{self.first.name}' of queue "
            f"{self.first.queue}: {self.kind}, {self.span}"
        )


def check_signals(steps: Sequence[QueueStep], model: QueueModel) -> list[Hazard]:
    """Execute steps as their queues do and return the dependencies that no signal enforces.

    The list is in program order, which says what each command must see. Queues that wait for one another without end
    are a `QueueError`.
    """
    clocks = _clocks(steps)
    hazards: list[Hazard] = []
    positions: dict[Hashable, int] = {}
    queues: dict[Hashable, list[QueuedCommand]] = {}
    accesses = _Accesses(model.memories)
    for step, clock in zip(steps, clocks, strict=True):
        command = step.command
        for queue, position, span, kind in accesses.dependencies(command):
            if clock.get(queue, -1) < position:
                hazards.append(Hazard(kind, queues[queue][position], command, span))
        positions[command.queue] = positions.get(command.queue, -1) + 1
        queues.setdefault(command.queue, []).append(command)
        accesses.record(command, positions[command.queue])
    return hazards


def _clocks(steps: Sequence[QueueStep]) -> list[dict[Hashable, int]]:
    """Return for each step, by queue, the last position that is complete before the step begins."""
    waiting: dict[Hashable, list[int]] = {}
    for index, step in enumerate(steps):
        waiting.setdefault(step.command.queue, []).append(index)
    turns: dict[tuple[Action, HandOver], list[dict[Hashable, int]]] = {}
    """By action: the clock at each time that it was done."""
    clocks: list[dict[Hashable, int]] = [{} for _ in steps]
    next_of = dict.fromkeys(waiting, 0)
    latest: dict[Hashable, dict[Hashable, int]] = {queue: {} for queue in waiting}
    moved = True
    while moved:
        moved = False
        for queue, indices in waiting.items():
            while next_of[queue] < len(indices):
                index = indices[next_of[queue]]
                enablers = [_enabler(signal, turns) for signal in steps[index].before]
                if any(enabler is None for enabler in enablers):
                    break
                clock = dict(latest[queue])
                for enabler in enablers:
                    for other, position in (enabler or {}).items():
                        clock[other] = max(clock.get(other, -1), position)
                clocks[index] = dict(clock)
                clock[queue] = next_of[queue]
                for signal in (*steps[index].before, *steps[index].after):
                    turns.setdefault((signal.action, signal.hand_over), []).append(clock)
                latest[queue] = clock
                next_of[queue] += 1
                moved = True
    stuck = {queue: indices[next_of[queue]] for queue, indices in waiting.items() if next_of[queue] < len(indices)}
    if stuck:
        held = ", ".join(f"queue {queue} before '{steps[index].command.name}'" for queue, index in stuck.items())
        raise QueueError(f"the queues wait for one another without end: {held}")
    return clocks


_ENABLERS = {Action.TAKE: Action.GIVE, Action.WAIT: Action.POST}
"""The action whose nth execution enables the nth execution of another one."""


def _enabler(
    signal: Signal, turns: Mapping[tuple[Action, HandOver], Sequence[dict[Hashable, int]]]
) -> dict[Hashable, int] | None:
    """Return the clock of the action that an action before a command waits for; None if it has not happened yet."""
    done = len(turns.get((signal.action, signal.hand_over), ()))
    if signal.action is Action.ACQUIRE:
        assert isinstance(signal.hand_over, Semaphore)
        needed = done - signal.hand_over.parts
        releases = turns.get((Action.RELEASE, signal.hand_over), ())
        return {} if needed < 0 else releases[needed] if needed < len(releases) else None
    enabling = turns.get((_ENABLERS[signal.action], signal.hand_over), ())
    return enabling[done] if done < len(enabling) else None
