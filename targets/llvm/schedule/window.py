"""Reductions vectorized along an output loop: pooling windows, sums over leading or middle dims.

Each lane reduces on its own, so any combination is possible. Elementwise blocks that follow are computed on the
results while they are in registers. The loops are cut at the edges of padding; inside no element is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline, deciding, decline, schedule
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, in_step, opaque_of_group, placed, written_along
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.blocks.space import Space, computed_values, merge_all
from mirlo.passes.schedule.loops import attribute_constant, every
from mirlo.passes.schedule.vectors import splat
from mirlo.targets.llvm.choices import NO_LOOP_CHOICES, LoopChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.chunks import can_mask, chunks, work
from mirlo.targets.llvm.schedule.cost import (
    LOAD_BOUND_OPERATIONS,
    MAX_LANE_STRIDE,
    MAX_UNROLLED_WINDOW,
    MIN_WINDOW_OUTPUTS,
)
from mirlo.targets.llvm.schedule.group import schedule_group
from mirlo.targets.llvm.schedule.priorities import PRIORITIES
from mirlo.targets.llvm.schedule.subspaces import along, split_at_conditions
from mirlo.targets.llvm.schedule.sweep import LoopVectors, describe_vectors

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import Kernel, ScheduleContext


@dataclass(frozen=True)
class WindowLoops:
    """Output loops, the last one vectorized, then reduction loops."""

    space: Space
    outputs: int
    """Number of output loops."""
    is_scalar: bool = False
    """Whether it is too thin for vectors, and computed element by element."""


@dataclass
class WindowPlan:
    group: BlockGroup[Machine]
    pieces: list[WindowLoops]
    chosen: LoopChoices = NO_LOOP_CHOICES

    def emit(self, memory: TensorBuffers) -> None:
        """Emit all parts at the insertion point."""
        memory.touch([instance for piece in self.pieces for instance in piece.space.instances], self.group.kept)
        for piece, vectors in zip(self.pieces, self.vectors, strict=True):
            _WindowEmitter(self.group, piece, vectors, memory).emit()

    @property
    def vectors(self) -> list[LoopVectors]:
        """Return the vectors of each part's output loop."""
        result: list[LoopVectors] = []
        number = 0
        for piece in self.pieces:
            result.append(_choose_vectors(piece, self.group, self.chosen, None if piece.is_scalar else number))
            number += not piece.is_scalar
        return result

    def choices(self) -> ChoiceValues:
        """Return the vectors of the loops, with which they are made again."""
        parts = zip(self.pieces, self.vectors, strict=True)
        return describe_vectors([vectors for piece, vectors in parts if not piece.is_scalar])

    def describe(self) -> dict[str, int]:
        return {"pieces": len(self.pieces)}


class _WindowEmitter:
    """The loops over the outputs of a part."""

    def __init__(self, group: BlockGroup[Machine], piece: WindowLoops, vectors: LoopVectors, memory: TensorBuffers):
        axis = piece.outputs - 1
        self.outer = piece.space.extents[:axis]
        self.parts = [
            _VectorEmitter(group, part, piece.outputs, vectors, memory)
            for part in along(piece.space, axis, vectors.lanes)
        ]

    def emit(self) -> None:
        every(self.outer, self._row, parallel=True)

    def _row(self, indices: list[ir.Value]) -> None:
        for part in self.parts:
            part.emit(indices)


class _VectorEmitter:
    """The vectors along the last output loop, or some of them, and the reduction loops in each."""

    def __init__(
        self, group: BlockGroup[Machine], space: Space, outputs: int, vectors: LoopVectors, memory: TensorBuffers
    ):
        self.group = group
        self.reduction, *self.epilogue = space.instances
        reduced = {output.value for output in self.reduction.block.outputs}
        self.frame = LoopNestState(memory, outputs - 1, computed_values(self.epilogue), reduced=reduced)
        self.reduce_extents = space.extents[outputs:]
        self.written_out = _is_written_out(space, outputs)
        masked = can_mask(space.instances, group.machine)
        self.chunks = chunks(space.extents[outputs - 1], vectors.lanes, vectors.unroll, masked)

    def emit(self, indices: list[ir.Value]) -> None:
        before = Iteration(self.frame, [*indices, None, *(None for _ in self.reduce_extents)])
        for instance in self.epilogue:
            before.run(instance, skip=self.frame.varying(instance))

        def step(starts: Sequence[int | ir.Value], lanes: int, active: int, carried: list[ir.Value]) -> list[ir.Value]:
            self._vectors(indices, starts, lanes, active, before)
            return carried

        self.chunks.emit(step, [], parallel=not indices)

    def _vectors(
        self, indices: list[ir.Value], starts: Sequence[int | ir.Value], lanes: int, active: int, before: Iteration
    ) -> None:
        """Reduce some vectors at a time, and emit what follows on them."""
        block = self.reduction.block
        begin = [attribute_constant(attribute) for attribute in block.init]
        begin = [splat(value, lanes) for value in begin] if lanes > 1 else begin

        def step(at: Sequence[int | ir.Value], *totals: ir.Value) -> Sequence[ir.Value]:
            shared = Iteration(self.frame, [*indices, None, *at])
            shared.run(self.reduction, skip=self.frame.varying(self.reduction))
            following: list[ir.Value] = []
            for u, start in enumerate(starts):
                held = totals[u * len(begin) : (u + 1) * len(begin)]
                given = dict(zip(block.accumulators, held, strict=True))
                point = Iteration(self.frame, [*indices, start, *at], lanes, active, shared, given)
                point.run(self.reduction)
                contributions = [point.find(value) for value in self.reduction.roots]
                following += [splat(value, lanes) if lanes > 1 else value for value in contributions]
            return following

        totals: Sequence[ir.Value] = begin * len(starts)
        if self.written_out:
            for at in product(*map(range, self.reduce_extents)):
                totals = step(at, *totals)
        else:
            totals = every(self.reduce_extents, step, totals)
        for u, start in enumerate(starts):
            mine = totals[u * len(begin) : (u + 1) * len(begin)]
            self._finish([*indices, start], mine, lanes, active, before)

    def _finish(
        self, indices: list[int | ir.Value], totals: Sequence[ir.Value], lanes: int, active: int, before: Iteration
    ) -> None:
        outputs = self.reduction.block.outputs
        given = {output.value: total for output, total in zip(outputs, totals, strict=True)}
        point = Iteration(self.frame, [*indices, *(None for _ in self.reduce_extents)], lanes, active, before, given)
        for output, total in zip(outputs, totals, strict=True):
            if output.value in self.group.kept:
                point.store(self.reduction, output, total)
        for instance in self.epilogue:
            point.run(instance)
            point.store_results(instance, self.group.kept)


def _is_written_out(space: Space, outputs: int) -> bool:
    """Return whether the reduction loops are unrolled completely."""
    return D.is_certain(lambda: D.product(space.extents[outputs:]) <= MAX_UNROLLED_WINDOW)


def _choose_vectors(
    piece: WindowLoops, group: BlockGroup[Machine], chosen: LoopChoices, loop: int | None
) -> LoopVectors:
    """Choose the vectors of a part's output loop, unless they are chosen for the loop with this number.

    More vectors read longer stretches of memory in each step of a long reduction.
    """
    machine, reduction = group.machine, piece.space.instances[0]
    own = 1 if loop is None else machine.lanes(widest_bytes(piece.space.instances, piece.outputs - 1))
    effort = work([reduction])
    if _is_written_out(piece.space, piece.outputs) or effort > LOAD_BOUND_OPERATIONS:
        unroll = 4 if effort <= LOAD_BOUND_OPERATIONS else 2
    else:
        unroll = max(1, machine.vector_registers // 2 // len(reduction.block.outputs))
    return LoopVectors(chosen.lanes_of(loop) or own, chosen.unroll_of(loop) or unroll)


@deciding
def plan_window(group: BlockGroup[Machine], choices: LoopChoices = NO_LOOP_CHOICES) -> WindowPlan | Decline:
    """Plan a reduction with one output element per lane."""
    refusal = _fits(group) or opaque_of_group(group)
    if refusal is not None:
        return refusal
    first = group.blocks[0]
    outputs = len(first.spatial)
    if not outputs:
        return decline("there is one output element only")
    extents = tuple(first.domain[i] for i in (*first.spatial, *first.reduce))
    position = {axis: i for i, axis in enumerate((*first.spatial, *first.reduce))}
    instances = [placed(first, [position[i] for i in range(first.rank)], extents)]
    instances += [placed(block, range(block.rank), extents) for block in group.blocks[1:]]
    space = Space(extents, tuple(instances))
    refusal = in_step(space.drop_units())
    if refusal is not None:
        return refusal
    space = _ordered(space, outputs)
    arranged = [_arranged(part, outputs) for part in split_at_conditions(space, range(outputs - 2, -1, -1), outputs)]
    largest = max(arranged, key=lambda piece: D.estimate_dim(D.product(piece.space.extents)))
    refusal = _is_profitable(largest, group)
    if refusal is not None:
        return refusal
    pieces = [replace(piece, is_scalar=_is_profitable(piece, group) is not None) for piece in arranged]
    return WindowPlan(group, pieces, choices)


def _fits(group: BlockGroup[Machine]) -> Decline | None:
    first: BlockView = group.blocks[0]
    if not first.is_reduction:
        return decline("the first block does not reduce", block=first.name)
    domain = tuple(first.domain[i] for i in first.spatial)
    for block in group.blocks[1:]:
        if block.is_reduction:
            return decline("a second block reduces", block=block.name)
        if block.domain != domain:
            return decline("blocks have different domains", blocks=f"{first.name}, {block.name}")
    return None


def _ordered(space: Space, outputs: int) -> Space:
    """Order the output loops as the output's memory."""
    instance = space.instances[-1]
    return space.order_by_stride(instance.flat(instance.block.outputs[0]), outputs)


def _arranged(space: Space, outputs: int) -> WindowLoops:
    """Drop loops of extent 1, and merge loops. One output loop remains, to be vectorized."""
    sizes = space.extents[:outputs]
    kept = max(sum(size != 1 for size in sizes), 1)
    space = merge_all(space.drop_units(start=int(all(size == 1 for size in sizes))), kept)
    inner = len(space.extents) - kept
    space = merge_all(space, 0, kept)
    return WindowLoops(space, len(space.extents) - inner)


def _is_profitable(piece: WindowLoops, group: BlockGroup[Machine]) -> Decline | None:
    space, axis = piece.space, piece.outputs - 1
    if D.estimate_dim(space.extents[axis]) < MIN_WINDOW_OUTPUTS:
        return decline("the output's innermost loop is too short for vectors", elements=space.extents[axis])
    refusal = written_along(space, axis, group.kept)
    if refusal is not None:
        return refusal
    reduction = space.instances[0]
    steps = [reduction.flat(o).coefficient(axis) for o in reduction.needed_inputs if o.map is not None]
    if steps and not any(step is not None and 0 < abs(D.estimate_dim(step)) <= MAX_LANE_STRIDE for step in steps):
        return decline("no operand runs along the output's memory", block=reduction.block.name)
    return None


@schedule(target="llvm", priority=PRIORITIES["window"])
def window(kernel: Kernel, context: ScheduleContext, choices: LoopChoices = NO_LOOP_CHOICES) -> ir.OpView | Decline:
    """Schedule pooling and reductions over dims that are not innermost: one output element per lane."""
    return schedule_group(kernel, context, "window", lambda group: plan_window(group, choices))
