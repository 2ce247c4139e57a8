"""Rows: softmax, normalizations, reductions along memory. A block of threads shares a row, or several short rows.

The plan is that of all targets (walks over the elements of a row, one after the other); here the threads of a row
take every n-th element each, and combine what they have in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir, memref, scf
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.combine import Reducer
from mirlo.passes.schedule.blocks.evaluate import Frame, Memory, Point
from mirlo.passes.schedule.blocks.group import Group
from mirlo.passes.schedule.blocks.rows import Rows, Walk, find_rows
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.gpu.schedule.launch import Ids, add, barrier, launch, less, multiply, shared, split

BLOCK = 128
"""Threads of a block; long rows have all of them."""
SHORTEST = 8
"""Fewest threads of a row."""
LONG = 4096
"""Rows of more elements get a block of twice as many threads, where there are few of them."""


@dataclass
class RowsPlan:
    """Blocks row by row."""

    name = "rows"

    rows: Rows

    def emit(self, memory: Memory) -> None:
        """Emit the launch at the insertion point."""
        _Emitter(self.rows, memory).emit()


def plan(group: Group) -> RowsPlan | Decline:
    """How to compute these blocks row by row."""
    found = find_rows(group)
    if isinstance(found, Decline):
        return found
    if not any(math.prod(walk.own) >= SHORTEST for walk in found.walks if walk.reductions):
        return decline("rows are too short to be shared")
    return RowsPlan(found)


class _Emitter:
    def __init__(self, rows: Rows, memory: Memory):
        self.plan = rows
        self.memory = memory
        self.count = math.prod(rows.rows)
        longest = max(math.prod(_own(walk, len(rows.rows))) for walk in rows.walks)
        self.block = 2 * BLOCK if longest > LONG and self.count < 256 else BLOCK
        # As many threads as there are elements for, a power of two.
        self.threads = max(SHORTEST, min(self.block, 1 << max(longest // 4, 1).bit_length()))
        self.together = self.block // self.threads
        """Rows of a block."""

    def emit(self) -> None:
        self.stored = self.plan.prepare(self.memory)
        launch(-(-self.count // self.together), self.block, self._block)

    def _block(self, ids: Ids) -> None:
        self.lane = ids.thread
        line = ids.block
        self.local = index(0)
        if self.together > 1:
            self.local, self.lane = split(ids.thread, [self.together, self.threads])
            line = add(multiply(ids.block, self.together), self.local)
        # All threads must meet at the barriers: those beyond the last row work on that row again, and store nothing.
        self.active = None
        if self.count % self.together:
            self.active = less(line, self.count)
            line = create("arith.minui", line.type, line, index(self.count - 1))
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
        start = len(self.plan.rows)
        own = _own(walk, start)
        reducers = list(walk.reductions.values())
        if not own:
            return self._single(walk, indices, held)
        total = math.prod(own)

        def step(at: Any, *carried: Any) -> list[Any]:
            point = Point(self._frame(walk, held), [*indices, *split(at, own)])
            self._run(walk, point)
            following, first = list(carried), 0
            for reducer in reducers:
                values = [point.find(value) for value in reducer.contributions]
                last = first + len(values)
                following[first:last] = reducer.combine(following[first:last], values)
                first = last
            return following

        begin = [value for reducer in reducers for value in reducer.identity()]
        partial = for_loop(self.lane, total, self.threads, step, begin)
        found: dict[Any, Any] = {}
        first = 0
        for position, reducer in walk.reductions.items():
            width = len(reducer.contributions)
            scalars = reducer.finish(self._combine(reducer, partial[first : first + width]))
            first += width
            found.update(self._reduced(walk, position, indices, held, scalars))
        return found

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

    def _run(self, walk: Walk, point: Point) -> None:
        for place in walk.space.places:
            point.run(place)
        for i, place in enumerate(walk.space.places):
            if i in walk.reductions:
                continue
            for output, value in zip(place.block.outputs, place.roots, strict=True):
                if output.value in self.stored:
                    self._if(self.active, lambda p=place, o=output, v=value: point.store(p, o, point.find(v)))

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
                self._if(both, lambda o=output, s=scalar: point.store(place, o, s))
        return found

    @staticmethod
    def _if(condition: Any, body: Any) -> None:
        if condition is None:
            body()
            return
        branch = scf.IfOp(condition)
        with ir.InsertionPoint(branch.then_block):
            body()
            scf.YieldOp([])

    def _combine(self, reducer: Reducer, partial: Sequence[Any]) -> list[Any]:
        """What all threads of a row have together, known to each of them."""
        memories = [shared(self.block, value.type) for value in _storable(partial)]
        own = add(multiply(self.local, self.threads), self.lane)
        barrier()
        for memory, value in zip(memories, _storable(partial), strict=True):
            memref.StoreOp(value, memory, [own])
        barrier()
        half = self.threads // 2
        while half:
            branch = scf.IfOp(less(self.lane, half))
            with ir.InsertionPoint(branch.then_block):
                mine = [_restored(memref.LoadOp(m, [own]).result, v) for m, v in zip(memories, partial, strict=True)]
                there = add(own, half)
                other = [_restored(memref.LoadOp(m, [there]).result, v) for m, v in zip(memories, partial, strict=True)]
                for memory, value in zip(memories, _storable(reducer.combine(mine, other)), strict=True):
                    memref.StoreOp(value, memory, [own])
                scf.YieldOp([])
            barrier()
            half //= 2
        first = multiply(self.local, self.threads)
        return [_restored(memref.LoadOp(m, [first]).result, v) for m, v in zip(memories, partial, strict=True)]


def _own(walk: Walk, start: int) -> tuple[int, ...]:
    """The loops of a walk inside of a row."""
    return tuple(walk.space.extents[start:])


def _storable(values: Sequence[Any]) -> list[Any]:
    """Values as shared memory holds them: bools as bytes."""
    i8 = ir.IntegerType.get_signless(8)
    return [create("arith.extui", i8, v) if str(v.type) == "i1" else v for v in values]


def _restored(loaded: Any, like: Any) -> Any:
    return create("arith.trunci", like.type, loaded) if str(like.type) == "i1" else loaded
