"""Rows: softmax, normalizations, reductions along memory. A block of threads shares a row, or several short rows.

The plan is that of all targets (walks over the elements of a row, one after the other); here the threads of a row
take every n-th element each, or every n-th few that lie side by side, and combine what they have in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mirlo.dialects.bindings import ir, memref, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.combine import Reducer
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.evaluate import Frame, Memory, Point
from mirlo.passes.schedule.blocks.group import Group
from mirlo.passes.schedule.blocks.rows import Rows, Walk, find_rows
from mirlo.passes.schedule.blocks.space import Place
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.gpu.schedule.launch import (
    Ids,
    add,
    barrier,
    launch,
    less,
    multiply,
    shared,
    split,
    when,
)
from mirlo.targets.gpu.schedule.neighbours import load_together, store_together

BLOCK = 128
"""Threads of a block; long rows have all of them."""
SHORTEST = 8
"""Fewest threads of a row."""
HELD = 32
"""Most elements that a thread keeps in registers from walk to walk; of longer rows they go through memory."""
MOST_CODE = 1200
"""Operations of a thread on all elements that it keeps."""
LONG = 4096
"""Rows of more elements get a block of twice as many threads, where there are few of them."""


@dataclass(frozen=True)
class Team:
    """The threads of a row in a block of threads: how many rows and threads there are, and which this thread is."""

    rows: int
    threads: int
    row: Any
    thread: Any


Meet = Callable[[Team, Reducer, Sequence[Any]], list[Any]]
"""How all threads of a row learn what they have together, of what each has."""


@dataclass
class RowsPlan:
    """Blocks row by row."""

    name = "rows"

    rows: Rows
    width: int = 1
    """Neighbouring elements that a thread takes at once, which divide the innermost loops."""
    meet: Meet | None = None
    """Shared memory, where nothing else is said."""
    most_threads: int = 2 * BLOCK
    """Of a row, where its elements then fit registers."""

    def emit(self, memory: Memory) -> None:
        """Emit the launch at the insertion point."""
        _Emitter(self, memory).emit()


@dataclass
class Kept:
    """What a thread has in registers of an element of its row."""

    elements: dict[Any, Any] = field(default_factory=dict)
    """By the tensor that it is of."""
    loaded: dict[Any, Any] = field(default_factory=dict)
    """By the tensor and the position."""

    def given(self, walk: Walk) -> dict[Any, Any]:
        """The values that a point of a walk need not compute."""
        found = dict(self.elements)
        for place in walk.space.places:
            for argument, operand in place.argument_operands.items():
                if operand.map is not None and (value := self.loaded.get(_position(place, operand))) is not None:
                    found[argument] = value
        return found

    def keep(self, walk: Walk, point: Point) -> None:
        """Keep what a walk loaded and computed."""
        for i, place in enumerate(walk.space.places):
            for argument, operand in place.argument_operands.items():
                if operand.map is not None and argument in point.values and operand.outside is None:
                    self.loaded[_position(place, operand)] = point.values[argument]
            if i not in walk.reductions:
                for output, root in zip(place.block.outputs, place.roots, strict=True):
                    self.elements[output.value] = point.find(root)


def _position(place: Place, operand: OperandView) -> Any:
    return operand.value, place.flat(operand)


def _code(rows: Rows) -> int:
    """Operations on the elements that a thread may keep."""
    return HELD * count_operations([block for walk in rows.walks for block in walk.blocks if walk.own])


def plan(group: Group) -> RowsPlan | Decline:
    """How to compute these blocks row by row."""
    found = find_rows(group)
    if isinstance(found, Decline):
        return found
    if not any(D.guess(D.product(list(walk.own))) >= SHORTEST for walk in found.walks if walk.reductions):
        return decline("rows are too short to be shared")
    return RowsPlan(found)


class _Emitter:
    def __init__(self, plan: RowsPlan, memory: Memory):
        self.plan = rows = plan.rows
        self.width = plan.width
        self.meet = plan.meet or _in_shared_memory
        self.memory = memory
        self.count = D.product(list(rows.rows))
        lengths = [D.product(_own(walk, len(rows.rows))) for walk in rows.walks]
        longest = max(map(D.guess, lengths))
        known = all(map(D.is_static, lengths))
        self.held = known and rows.in_step and _code(rows) <= MOST_CODE and longest <= HELD * plan.most_threads
        self.block = 2 * BLOCK if longest > LONG and D.guess(self.count) < 256 else BLOCK
        while self.held and longest > HELD * self.block:
            self.block *= 2
        # As many threads as there are elements for, a power of two.
        each = 4 if plan.width == 1 else 2 * plan.width
        self.threads = max(SHORTEST, min(self.block, 1 << (max(longest // each, 1) - 1).bit_length()))
        self.together = self.block // self.threads
        """Rows of a block."""
        self.registers: dict[tuple[int, int], Kept] = {}
        """What is kept of an element, by the number of the step and of the element in it."""

    def emit(self) -> None:
        self.stored = self.plan.prepare(self.memory, self.held)
        launch(D.ceildiv(self.count, self.together), self.block, self._block)

    def _block(self, ids: Ids) -> None:
        self.lane = ids.thread
        line = ids.block
        self.local = index(0)
        if self.together > 1:
            self.local, self.lane = split(ids.thread, [self.together, self.threads])
            line = add(multiply(ids.block, self.together), self.local)
        # All threads must meet at the barriers: those beyond the last row work on that row again, and store nothing.
        self.active = None
        if self.count % self.together != 0:
            self.active = less(line, self.count)
            line = create("arith.minui", line.type, line, index(self.count - 1))
        self.team = Team(self.together, self.threads, self.local, self.lane)
        indices = split(line, self.plan.rows) if self.plan.rows else []
        held: dict[Any, Any] = {}
        written: set[Any] = set()
        for walk in self.plan.walks:
            if any(operand.value in written for block in walk.blocks for operand in block.inputs):
                barrier()
                written.clear()
            held.update(self._walk(walk, indices, held))
            made = {output.value for block in walk.blocks for output in block.outputs}
            written |= made & self.stored

    def _walk(self, walk: Walk, indices: list[Any], held: dict[Any, Any]) -> dict[Any, Any]:
        own = _own(walk, len(self.plan.rows))
        if not own:
            return self._single(walk, indices, held)
        steps: Any = D.product(own) // self.width
        carried = [value for reducer in walk.reductions.values() for value in reducer.identity()]
        if not self.held:
            carried = for_loop(
                self.lane, steps, self.threads,
                lambda at, *sums: self._step(walk, indices, held, at, list(sums)), carried,
            )  # fmt: skip
        for number in range(-(-steps // self.threads) if self.held else 0):
            at = add(self.lane, number * self.threads)
            inside = None
            if (number + 1) * self.threads > steps:
                inside = less(at, steps)
                at = create("arith.minui", at.type, at, index(steps - 1))
            carried = self._step(walk, indices, held, at, carried, number, inside)
        found: dict[Any, Any] = {}
        first = 0
        for position, reducer in walk.reductions.items():
            width = len(reducer.contributions)
            scalars = reducer.finish(self.meet(self.team, reducer, carried[first : first + width]))
            first += width
            found.update(self._reduced(walk, position, indices, held, scalars))
        return found

    def _step(
        self, walk: Walk, indices: list[Any], held: dict[Any, Any], at: Any, carried: list[Any],
        number: int | None = None, inside: Any = None,
    ) -> list[Any]:  # fmt: skip
        """A thread's elements of one step; those with a number are kept for the next walks."""
        own = split(multiply(at, self.width), _own(walk, len(self.plan.rows)))
        last = len(indices) + len(own) - 1
        points = []
        for j in range(self.width):
            kept = Kept() if number is None else self.registers.setdefault((number, j), Kept())
            frame = self._frame(walk, held)
            frame.reduced.update(kept.elements)
            points.append(Point(frame, [*indices, *own], given=kept.given(walk), beyond={last: j} if j else None))
        self._run(walk, points, inside)
        for j, point in enumerate(points if number is not None else []):
            self.registers[number or 0, j].keep(walk, point)
        following, first = list(carried), 0
        for reducer in walk.reductions.values():
            end = first + len(reducer.contributions)
            for point in points:
                values = [point.find(value) for value in reducer.contributions]
                if inside is not None:
                    pairs = zip(values, reducer.identity(), strict=True)
                    values = [create("arith.select", v.type, inside, v, none) for v, none in pairs]
                following[first:end] = reducer.combine(following[first:end], values)
            first = end
        return following

    def _single(self, walk: Walk, indices: list[Any], held: dict[Any, Any]) -> dict[Any, Any]:
        """A walk over one element: every thread of the row computes it, the first one stores it."""
        point = Point(self._frame(walk, held), indices)
        places = walk.space.places
        for place in places:
            point.run(place)
        found: dict[Any, Any] = {}
        for i, place in enumerate(places):
            if i in walk.reductions:
                reducer = walk.reductions[i]
                scalars = reducer.finish([point.find(value) for value in reducer.contributions])
            else:
                scalars = [point.find(value) for value in place.roots]
            found.update(self._reduced(walk, i, indices, held, scalars))
        return found

    def _frame(self, walk: Walk, held: dict[Any, Any]) -> Frame:
        made = {
            output.value: (place, value)
            for i, place in enumerate(walk.space.places) if i not in walk.reductions
            for output, value in zip(place.block.outputs, place.roots, strict=True)
        }  # fmt: skip
        return Frame(self.memory, None, made, held)

    def _run(self, walk: Walk, points: Sequence[Point], inside: Any = None) -> None:
        # All loads come before all stores.
        last = len(walk.space.extents) - 1
        if self.width > 1:
            load_together(points, walk.space.places, last)
        for point in points:
            for place in walk.space.places:
                point.run(place)
        kept = [
            (place, output, value)
            for i, place in enumerate(walk.space.places) if i not in walk.reductions
            for output, value in zip(place.block.outputs, place.roots, strict=True) if output.value in self.stored
        ]  # fmt: skip

        def store() -> None:
            for place, output, value in kept:
                store_together(points, place, output, value, last)

        if kept:
            condition = self.active if inside is None else inside
            if self.active is not None and inside is not None:
                condition = create("arith.andi", inside.type, self.active, inside)
            when(condition, store)

    def _reduced(
        self, walk: Walk, position: int, indices: list[Any], held: dict[Any, Any], scalars: list[Any]
    ) -> dict[Any, Any]:
        """The scalars of a row by value; stored by its first thread where somebody else reads them."""
        place = walk.space.places[position]
        point = Point(self._frame(walk, held), indices)
        found = {}
        for output, scalar in zip(place.block.outputs, scalars, strict=True):
            found[output.value] = scalar
            if output.value in self.stored:
                first = less(self.lane, 1)
                both = first if self.active is None else create("arith.andi", first.type, first, self.active)
                when(both, partial(point.store, place, output, scalar))
        return found


def _in_shared_memory(team: Team, reducer: Reducer, partial: Sequence[Any]) -> list[Any]:
    """What all threads of a row have together, known to each of them."""
    memories = [shared(team.rows * team.threads, value.type) for value in storable(partial)]
    own = add(multiply(team.row, team.threads), team.thread)
    barrier()
    for memory, value in zip(memories, storable(partial), strict=True):
        memref.StoreOp(value, memory, [own])
    barrier()
    half = team.threads // 2
    while half:
        branch = scf.IfOp(less(team.thread, half))
        with ir.InsertionPoint(branch.then_block):
            mine = [restored(memref.LoadOp(m, [own]).result, v) for m, v in zip(memories, partial, strict=True)]
            there = add(own, half)
            other = [restored(memref.LoadOp(m, [there]).result, v) for m, v in zip(memories, partial, strict=True)]
            for memory, value in zip(memories, storable(reducer.combine(mine, other)), strict=True):
                memref.StoreOp(value, memory, [own])
            scf.YieldOp([])
        barrier()
        half //= 2
    first = multiply(team.row, team.threads)
    return [restored(memref.LoadOp(m, [first]).result, v) for m, v in zip(memories, partial, strict=True)]


def _own(walk: Walk, start: int) -> tuple[Dim, ...]:
    """The loops of a walk inside of a row."""
    return tuple(walk.space.extents[start:])


def storable(values: Sequence[Any]) -> list[Any]:
    """Values as shared memory holds them: bools as bytes."""
    i8 = ir.IntegerType.get_signless(8)
    return [create("arith.extui", i8, v) if str(v.type) == "i1" else v for v in values]


def restored(loaded: Any, like: Any) -> Any:
    return create("arith.trunci", like.type, loaded) if str(like.type) == "i1" else loaded
