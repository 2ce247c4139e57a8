"""Rows: softmax, normalizations, reductions along the contiguous axis. A thread block computes one row or several.

The plan is that of all targets, one loop over the elements of a row after another. The threads of a row process its
elements in turn, singly or in vectors, and combine their results in shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel
from mirlo.passes.schedule.blocks.rows import RowGroup, Walk, find_rows
from mirlo.passes.schedule.blocks.space import BlockInstance, computed_values
from mirlo.passes.schedule.loops import for_loop, when
from mirlo.targets.gpu.schedule.launch import Ids, barrier, launch, split
from mirlo.targets.gpu.schedule.teams import Team, TeamReduction, reduce_in_shared_memory
from mirlo.targets.gpu.schedule.vector_access import load_vectors, store_vectors
from mirlo.targets.gpu.schedule.vectors import all_of

BLOCK = 128
"""Threads per block; long rows use all of them."""
SHORTEST = 8
"""Fewest threads per row."""
HELD = 32
"""Most elements that a thread keeps in registers between loops; longer rows use memory."""
MAX_UNROLLED_OPS = 1200
"""Most operations of a thread on the elements that it keeps."""
LONG = 4096
"""If there are few rows with more elements, blocks have twice as many threads."""


@dataclass
class ThreadRowsPlan:
    """Blocks row by row."""

    name = "rows"

    rows: RowGroup
    width: int = 1
    """Consecutive elements that a thread processes at once; divides the innermost extents."""
    meet: TeamReduction = reduce_in_shared_memory
    """The reduction across threads."""
    max_threads: int = 2 * BLOCK
    """Most threads per row, if its elements then fit registers."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        _Emitter(self, memory).emit()


@dataclass
class RowRegisters:
    """The values of a row element that a thread keeps in registers."""

    elements: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Elements by tensor."""
    loaded: dict[tuple[ir.Value, IndexExpr], ir.Value] = field(default_factory=dict)
    """Loaded values by tensor and position."""

    def given(self, walk: Walk) -> dict[ir.Value, ir.Value]:
        """Return the values that a loop need not compute again."""
        result = dict(self.elements)
        for instance in walk.space.instances:
            for argument, operand in instance.argument_operands.items():
                if operand.map is not None and (value := self.loaded.get(_position(instance, operand))) is not None:
                    result[argument] = value
        return result

    def keep(self, walk: Walk, point: Iteration) -> None:
        """Keep what a loop loaded and computed."""
        for i, instance in enumerate(walk.space.instances):
            for argument, operand in instance.argument_operands.items():
                if operand.map is not None and argument in point.values and operand.outside is None:
                    self.loaded[_position(instance, operand)] = point.values[argument]
            if i not in walk.reductions:
                for output, root in instance.results:
                    self.elements[output.value] = point.find(root)


def _position(instance: BlockInstance, operand: OperandView) -> tuple[ir.Value, IndexExpr]:
    return operand.value, instance.flat(operand)


def _code(rows: RowGroup) -> int:
    """Return the operations on the elements that a thread may keep."""
    return HELD * count_operations([block for walk in rows.walks for block in walk.blocks if walk.own])


def plan(group: BlockGroup[LaneModel]) -> ThreadRowsPlan | Decline:
    """Plan these blocks row by row."""
    row_group = find_rows(group)
    result = row_group if isinstance(row_group, Decline) else row_group.merged()
    if isinstance(result, Decline):
        return result
    if not any(D.estimate_dim(D.product(list(walk.own))) >= SHORTEST for walk in result.walks if walk.reductions):
        return decline("rows are too short to be shared")
    return ThreadRowsPlan(result)


class _Emitter:
    def __init__(self, plan: ThreadRowsPlan, memory: TensorBuffers):
        self.plan = rows = plan.rows
        self.width = plan.width
        self.meet = plan.meet
        self.memory = memory
        self.count = D.product(list(rows.rows))
        lengths = [D.product(_row_loops(walk, len(rows.rows))) for walk in rows.walks]
        longest = max(map(D.estimate_dim, lengths))
        known = all(map(D.is_static, lengths))
        self.held = known and rows.in_step and _code(rows) <= MAX_UNROLLED_OPS and longest <= HELD * plan.max_threads
        self.block = 2 * BLOCK if longest > LONG and D.estimate_dim(self.count) < 256 else BLOCK
        while self.held and longest > HELD * self.block:
            self.block *= 2
        # Use as many threads as there are elements for, a power of two.
        each = 4 if plan.width == 1 else 2 * plan.width
        self.threads = max(SHORTEST, min(self.block, 1 << (max(longest // each, 1) - 1).bit_length()))
        self.together = self.block // self.threads
        """Rows per block."""
        self.registers: dict[tuple[int, int], RowRegisters] = {}
        """The kept values of an element, by iteration and element index."""

    def emit(self) -> None:
        self.stored = self.plan.prepare(self.memory, self.held)
        launch(D.ceildiv(self.count, self.together), self.block, self._block)

    def _block(self, ids: Ids) -> None:
        self.lane = ids.thread
        line = ids.block
        self.local: Value = index(0)
        if self.together > 1:
            self.local, self.lane = split(ids.thread, [self.together, self.threads])
            line = ids.block * self.together + self.local
        # All threads must reach the barriers: those beyond the last row recompute it and store nothing.
        self.active = None
        if not D.is_multiple(self.count, self.together):
            self.active = line.below(self.count)
            line = create("arith.minui", line.type, line, index(self.count - 1))
        self.team = Team(self.together, self.threads, self.local, self.lane)
        indices = split(line, self.plan.rows) if self.plan.rows else []
        held: dict[ir.Value, ir.Value] = {}
        written: set[ir.Value] = set()
        for walk in self.plan.walks:
            if any(operand.value in written for block in walk.blocks for operand in block.inputs):
                barrier()
                written.clear()
            held.update(self._walk(walk, indices, held))
            produced = {output.value for block in walk.blocks for output in block.outputs}
            written |= produced & self.stored

    def _walk(
        self, walk: Walk, indices: Sequence[ir.Value], held: dict[ir.Value, ir.Value]
    ) -> dict[ir.Value, ir.Value]:
        own = _row_loops(walk, len(self.plan.rows))
        if not own:
            return self._single(walk, indices, held)
        steps = D.product(own) // self.width
        carried = [value for reducer in walk.reductions.values() for value in reducer.identity()]
        if not self.held:
            carried = for_loop(
                self.lane, steps, self.threads,
                lambda at, *sums: self._step(walk, indices, held, at, list(sums)), carried,
            )  # fmt: skip
        own_steps = D.static_dim(steps) if self.held else 0
        for number in range(-(-own_steps // self.threads)):
            at = self.lane + number * self.threads
            inside = None
            if (number + 1) * self.threads > own_steps:
                inside = at.below(own_steps)
                at = create("arith.minui", at.type, at, index(own_steps - 1))
            carried = self._step(walk, indices, held, at, carried, number, inside)
        result: dict[ir.Value, ir.Value] = {}
        first = 0
        for position, reducer in walk.reductions.items():
            width = len(reducer.contributions)
            scalars = reducer.finish(self.meet(self.team, reducer.combine, carried[first : first + width]))
            first += width
            result.update(self._reduced(walk, position, indices, held, scalars))
        return result

    def _step(
        self, walk: Walk, indices: Sequence[ir.Value], held: dict[ir.Value, ir.Value], at: Value,
        carried: list[ir.Value], number: int | None = None, inside: Value | None = None,
    ) -> list[ir.Value]:  # fmt: skip
        """Process a thread's elements of one iteration; numbered ones are kept for the next loops."""
        own = split(at * self.width, _row_loops(walk, len(self.plan.rows)))
        last = len(indices) + len(own) - 1
        points = []
        for j in range(self.width):
            kept = RowRegisters() if number is None else self.registers.setdefault((number, j), RowRegisters())
            frame = self._frame(walk, held)
            frame.reduced.update(kept.elements)
            points.append(Iteration(frame, [*indices, *own], given=kept.given(walk), beyond={last: j} if j else None))
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

    def _single(
        self, walk: Walk, indices: Sequence[ir.Value], held: dict[ir.Value, ir.Value]
    ) -> dict[ir.Value, ir.Value]:
        """Emit a loop over one element: every thread of the row computes it, the first one stores it."""
        point = Iteration(self._frame(walk, held), indices)
        instances = walk.space.instances
        for instance in instances:
            point.run(instance)
        result: dict[ir.Value, ir.Value] = {}
        for i, instance in enumerate(instances):
            if i in walk.reductions:
                reducer = walk.reductions[i]
                scalars = reducer.finish([point.find(value) for value in reducer.contributions])
            else:
                scalars = [point.find(value) for value in instance.roots]
            result.update(self._reduced(walk, i, indices, held, scalars))
        return result

    def _frame(self, walk: Walk, held: dict[ir.Value, ir.Value]) -> LoopNestState:
        own = (instance for i, instance in enumerate(walk.space.instances) if i not in walk.reductions)
        return LoopNestState(self.memory, None, computed_values(own), held)

    def _run(self, walk: Walk, points: Sequence[Iteration], inside: Value | None = None) -> None:
        # All loads precede all stores.
        last = len(walk.space.extents) - 1
        if self.width > 1:
            load_vectors(points, walk.space.instances, last)
        for point in points:
            for instance in walk.space.instances:
                point.run(instance)
        kept = [
            (instance, output, value)
            for i, instance in enumerate(walk.space.instances) if i not in walk.reductions
            for output, value in instance.results if output.value in self.stored
        ]  # fmt: skip

        def store() -> None:
            for instance, output, value in kept:
                store_vectors(points, instance, output, value, last)

        if kept:
            when(all_of(self.active, inside), store)

    def _reduced(
        self,
        walk: Walk,
        position: int,
        indices: Sequence[ir.Value],
        held: dict[ir.Value, ir.Value],
        scalars: list[ir.Value],
    ) -> dict[ir.Value, ir.Value]:
        """Return the scalars of a row by value; its first thread stores those that others read."""
        instance = walk.space.instances[position]
        point = Iteration(self._frame(walk, held), indices)
        result = {}
        for output, scalar in zip(instance.block.outputs, scalars, strict=True):
            result[output.value] = scalar
            if output.value in self.stored:
                when(all_of(self.lane.below(1), self.active), partial(point.store, instance, output, scalar))
        return result


def _row_loops(walk: Walk, start: int) -> tuple[Dim, ...]:
    """Return the loops within a row."""
    return tuple(walk.space.extents[start:])
