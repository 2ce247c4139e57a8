"""A vectorized loop nest over the elements of some blocks: elementwise blocks, and reductions over all of its loops.

Values that a later block reads at the same element stay in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import Variable
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.rule_choices import ChoiceValue, choice_values
from mirlo.passes.schedule.blocks.combine import Reducer, in_pairs
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.blocks.space import BlockInstance, Space, computed_values
from mirlo.passes.schedule.loops import every
from mirlo.passes.schedule.vectors import lane_mask, splat
from mirlo.targets.llvm.choices import NO_LOOP_CHOICES, LoopChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.chunks import can_mask, chunks, has_intrinsics, work
from mirlo.targets.llvm.schedule.subspaces import along


@dataclass(frozen=True)
class LoopVectors:
    """The vectors of a loop, as choices: elements of each, and vectors per iteration."""

    lanes: int
    unroll: int
    are_joined: bool = False
    """Whether the vectors of an iteration are computed as one long vector."""


def choose_vectors(
    space: Space,
    machine: Machine,
    chosen: LoopChoices,
    loop: int,
    reduces: bool,
) -> LoopVectors:
    """Choose the vectors of the last loop of a space, unless they are chosen for the loop with this number."""
    last = len(space.extents) - 1
    return choose_lane_vectors(space.instances, last, space.extents[last], machine, chosen, loop, reduces)


def choose_lane_vectors(
    instances: Sequence[BlockInstance],
    axis: Variable,
    length: Dim,
    machine: Machine,
    chosen: LoopChoices,
    loop: int | None = 0,
    reduces: bool = False,
    lanes: int | None = None,
) -> LoopVectors:
    """Choose the vectors of a loop of this length, unless they are chosen for the loop with this number.

    `lanes` overrides the number of lanes.
    """
    unroll = chosen.unroll_of(loop)
    if lanes is None:
        own = chosen.lanes_of(loop) or machine.lanes(widest_bytes(instances, axis))
        if not reduces and has_intrinsics(instances):
            # Long dependency chains need several independent ones in flight, interleaved operation by operation. LLVM
            # does not interleave consecutive vectors, but it splits a vector of several registers that way.
            fitting = max(1, length // own) if isinstance(length, int) else machine.vector_registers
            return LoopVectors(own, min(unroll or machine.vector_registers // 8, fitting), True)
    heavy = work(instances)
    return LoopVectors(
        own if lanes is None else lanes, unroll or (4 if reduces or heavy <= 12 else 2 if heavy <= 40 else 1)
    )


def describe_vectors(found: Sequence[LoopVectors]) -> dict[str, ChoiceValue]:
    """Return the vectors of several loops as choices."""
    if not found:
        return {}
    return choice_values(LoopChoices(tuple(each.lanes for each in found), tuple(each.unroll for each in found)))


class Sweep:
    """Emits the loops from `start` on, the last one vectorized; the caller emits the loops before it.

    `reductions` are the reducers by position of the block, `stored` the tensor values that are stored, `held` those
    that are in registers already. `loop` is the number by which vectors are chosen for this loop.
    """

    def __init__(
        self,
        space: Space,
        start: int,
        memory: TensorBuffers,
        stored: set[ir.Value],
        machine: Machine,
        reductions: Mapping[int, Reducer],
        held: dict[ir.Value, ir.Value],
        loop: int,
        chosen: LoopChoices = NO_LOOP_CHOICES,
    ):
        self.space = space
        self.start = start
        self.memory = memory
        self.stored = stored
        self.held = held
        self.by_position = reductions
        self.reducers = list(self.by_position.values())
        self.last = len(space.extents) - 1
        self.has_loops = self.last >= start
        self.lanes, self.unroll = 1, 1
        if self.has_loops:
            vectors = choose_vectors(space, machine, chosen, loop, bool(self.reducers))
            joined = vectors.unroll if vectors.are_joined else 1
            self.lanes, self.unroll = vectors.lanes * joined, vectors.unroll // joined
        self.masked = self.has_loops and can_mask(space.instances, machine)

    @property
    def step(self) -> int:
        """Return the elements of the last loop that are computed at a time."""
        together = chunks(self.space.extents[self.last], self.lanes, self.unroll, self.masked)
        return together.lanes * together.unroll

    def emit(
        self, indices: Sequence[ir.Value], parallel: bool = False, limit: ir.Value | None = None
    ) -> dict[ir.Value, ir.Value]:
        """Emit the iteration `indices` of the outer loops; return the resulting scalars, by tensor value.

        `limit`, a multiple of `step` or the extent, ends the last loop early.
        """
        if not self.has_loops:
            return self._single(indices)
        parallel = parallel and not self.reducers
        parts = [self.space] if self.reducers else along(self.space, self.last, self.lanes)
        walks = [_Vectors(self, part) for part in parts]
        begin: list[ir.Value] = []
        if self.reducers:
            begin = walks[0].begin()
        if limit is not None and len(walks) == 1:
            walks[0].limit = limit

        def row(at: list[ir.Value], *carried: ir.Value) -> Sequence[ir.Value]:
            held: Sequence[ir.Value] = carried
            for walk in walks:
                held = walk.emit(at, list(held), parallel and not at)
            return held

        totals = every(self.space.extents[len(indices) : self.last], row, begin, parallel, indices)
        return self._reduced(indices, walks[0].finish(totals)) if self.reducers else {}

    def elementwise(self, space: Space) -> list[BlockInstance]:
        """Return the blocks that do not reduce."""
        return [instance for i, instance in enumerate(space.instances) if i not in self.by_position]

    def frame(self, space: Space, axis: int | None) -> LoopNestState:
        return LoopNestState(self.memory, axis, computed_values(self.elementwise(space)), self.held)

    def run(self, space: Space, point: Iteration) -> None:
        """Emit all blocks at one point, and their stores."""
        for instance in space.instances:
            point.run(instance)
        for instance in self.elementwise(space):
            point.store_results(instance, self.stored)

    def _single(self, indices: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
        """Emit one scalar of each block, without loops."""
        point = Iteration(self.frame(self.space, None), indices)
        self.run(self.space, point)
        produced = {
            output: point.find(value) for output, (_, value) in computed_values(self.elementwise(self.space)).items()
        }
        totals = [r.finish([point.find(value) for value in r.contributions]) for r in self.reducers]
        return {**produced, **self._reduced(indices, totals)}

    def _reduced(self, indices: Sequence[ir.Value], totals: Sequence[list[ir.Value]]) -> dict[ir.Value, ir.Value]:
        point = Iteration(self.frame(self.space, None), indices)
        results = {}
        for position, scalars in zip(self.by_position, totals, strict=True):
            instance = self.space.instances[position]
            for output, scalar in zip(instance.block.outputs, scalars, strict=True):
                results[output.value] = scalar
                if output.value in self.stored:
                    point.store(instance, output, scalar)
        return results


class _Vectors:
    """The innermost loop of a sweep, or a part of it.

    For each reducer it carries `unroll` partial results in vectors, and one scalar if the tail has fewer lanes.
    """

    def __init__(self, sweep: Sweep, space: Space):
        self.sweep = sweep
        self.space = space
        self.frame = sweep.frame(space, sweep.last)
        self.limit: ir.Value | None = None
        self.chunks = chunks(space.extents[sweep.last], sweep.lanes, sweep.unroll, sweep.masked)

    def begin(self) -> list[ir.Value]:
        carried = []
        for reducer in self.sweep.reducers:
            scalars = reducer.identity()
            carried += [splat(value, self.chunks.lanes) for value in scalars] * self.chunks.unroll
            carried += scalars if self.chunks.has_narrow_tail else []
        return carried

    def emit(self, indices: list[ir.Value], carried: list[ir.Value], parallel: bool) -> list[ir.Value]:
        outer = Iteration(self.frame, [*indices, None])
        for instance in self.space.instances:
            outer.run(instance, skip=self.frame.varying(instance))

        def step(starts: Sequence[int | ir.Value], lanes: int, active: int, held: list[ir.Value]) -> list[ir.Value]:
            for slot, start in enumerate(starts):
                point = Iteration(self.frame, [*indices, start], lanes, active, outer)
                self.sweep.run(self.space, point)
                held = self._accumulate(point, held, slot)
            return held

        if self.limit is not None:
            return self.chunks.emit_before(self.limit, step, carried)
        return self.chunks.emit(step, carried, parallel)

    def _accumulate(self, point: Iteration, carried: list[ir.Value], slot: int) -> list[ir.Value]:
        """Return the carried values after a vector; `slot` is its position among the unrolled ones."""
        following = list(carried)
        slot = slot if point.lanes == self.chunks.lanes else self.chunks.unroll
        for reducer, first in self._spans():
            values = [point.find(value) for value in reducer.contributions]
            if point.lanes > 1:
                values = _only_active(reducer, [splat(value, point.lanes) for value in values], point)
            if point.lanes > 1 and point.lanes != self.chunks.lanes:
                values = reducer.horizontal(values)
            at = first + slot * len(values)
            following[at : at + len(values)] = reducer.combine(following[at : at + len(values)], values)
        return following

    def _spans(self) -> list[tuple[Reducer, int]]:
        """Return the reducers, and the offset of each in the carried values."""
        spans, at = [], 0
        for reducer in self.sweep.reducers:
            spans.append((reducer, at))
            at += len(reducer.contributions) * (self.chunks.unroll + int(self.chunks.has_narrow_tail))
        return spans

    def finish(self, carried: list[ir.Value]) -> list[list[ir.Value]]:
        """Return the outputs of each reducer."""
        results = []
        for reducer, first in self._spans():
            width = len(reducer.contributions)
            parts = [carried[at : at + width] for at in range(first, first + width * self.chunks.unroll, width)]
            total = in_pairs(reducer.combine, parts)
            total = reducer.horizontal(total) if self.chunks.lanes > 1 else total
            if self.chunks.has_narrow_tail:
                at = first + width * self.chunks.unroll
                total = reducer.combine(total, carried[at : at + width])
            results.append(reducer.finish(total))
        return results


def _only_active(reducer: Reducer, values: list[ir.Value], point: Iteration) -> list[ir.Value]:
    """Replace inactive lanes by the identity of the reduction."""
    if point.active == point.lanes:
        return values
    on = lane_mask(point.lanes, point.active)
    others = [splat(scalar, point.lanes) for scalar in reducer.identity()]
    return [create("arith.select", v.type, on, v, other) for v, other in zip(values, others, strict=True)]
