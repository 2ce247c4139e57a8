"""Outputs of two to four channels whose planes are separate in the operands.

Vectors are read along a plane, then interleaved. Images in channels-last order are an example: three vectors of
channels become three vectors of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.blocks.space import BlockInstance
from mirlo.passes.schedule.loops import every, for_loop
from mirlo.passes.schedule.vectors import lane_mask, shuffle, splat
from mirlo.targets.llvm.choices import LoopChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.chunks import plus, work
from mirlo.targets.llvm.schedule.cost import (
    INTERLEAVED_BLOCK,
    INTERLEAVED_LOAD_DISTANCE,
    INTERLEAVED_VECTORS,
    MAX_INTERLEAVED,
)
from mirlo.targets.llvm.schedule.movement import TransposedAccess, is_close


def is_interleaved(transposed: TransposedAccess, stored: set[ir.Value]) -> bool:
    """Return whether the last loop is short and all outputs are contiguous over the last two loops."""
    space = transposed.space
    last = len(space.extents) - 1
    if not 2 <= space.extents[last] <= MAX_INTERLEAVED:
        return False
    wheres = [instance.flat(o) for instance in space.instances for o in instance.block.outputs if o.value in stored]
    return all((w.coefficient(last), w.coefficient(last - 1)) == (1, space.extents[last]) for w in wheres)


class InterleavedSweep:
    """Emits all loops of a space: whole vectors along the last loop but one, the last loop unrolled."""

    def __init__(
        self,
        transposed: TransposedAccess,
        memory: TensorBuffers,
        made: dict[ir.Value, tuple[BlockInstance, ir.Value]],
        stored: set[ir.Value],
        machine: Machine,
        chosen: LoopChoices,
    ):
        self.space = transposed.space
        self.stored = stored
        self.axis = len(self.space.extents) - 2
        self.channels = self.space.extents[-1]
        self.frame = LoopNestState(memory, self.axis, made=made)
        self.scalar = LoopNestState(memory, None)
        element_bytes = widest_bytes(self.space.instances, self.axis)
        self.lanes = machine.lanes(element_bytes)
        self.together = self._side_by_side(element_bytes, machine, chosen.unroll_of(0))
        """Unroll factors in vectors of pixels, in decreasing order."""

    def _side_by_side(self, element_bytes: int, machine: Machine, chosen: int | None) -> list[int]:
        if chosen is not None or work(self.space.instances) > INTERLEAVED_VECTORS:
            return [chosen or 1]
        return (
            [INTERLEAVED_BLOCK, INTERLEAVED_VECTORS]
            if is_close(self.space, element_bytes, machine)
            else [INTERLEAVED_VECTORS]
        )

    def emit(self) -> None:
        """Emit the loops at the insertion point."""
        every(self.space.extents[: self.axis], self._row, parallel=True)

    def _row(self, indices: list[ir.Value]) -> None:
        extent = self.space.extents[self.axis]
        at = 0
        for vectors in self.together:
            count = self.lanes * vectors
            end = extent // count * count
            if at < end:
                for_loop(at, end, count, partial(self._some, indices, count), parallel=not indices)
            at = end
        self._some(indices, extent - at, at)

    def _some(self, indices: list[ir.Value], count: int, at: ir.Value | int) -> None:
        """Emit `count` pixels from `at` on; large blocks in a strided order of vectors."""
        starts = range(0, count, self.lanes)
        apart = INTERLEAVED_LOAD_DISTANCE if len(starts) == INTERLEAVED_BLOCK else 1
        for done in (start for first in range(apart) for start in starts[first::apart]):
            self._pixels(indices, plus(at, done), min(self.lanes, count - done))

    def _pixels(self, indices: list[ir.Value], at: ir.Value | int, active: int) -> None:
        """Emit one vector of pixels, `active` of which exist."""
        points = [Iteration(self.frame, [*indices, at, c], self.lanes, active) for c in range(self.channels)]
        start = Iteration(self.scalar, [*indices, at, 0])
        for instance in self.space.instances:
            for point in points:
                point.run(instance)
            for output, value in instance.results:
                if output.value in self.stored:
                    planes = [splat(point.find(value), self.lanes) for point in points]
                    slot = self.frame.slot(output.value)
                    first = start.first(instance.flat(output, slot.strides))
                    self._store(interleave(planes), slot.buffer, first, active * self.channels)

    def _store(self, vectors: Sequence[ir.Value], buffer: ir.Value, first: ir.Value, elements: int) -> None:
        for i, vector in enumerate(vectors):
            left = elements - i * self.lanes
            position = plus(first, i * self.lanes)
            if left >= self.lanes:
                ir.Operation.create("vector.store", operands=[vector, buffer, position])
            elif left > 0:
                mask = lane_mask(self.lanes, left)
                ir.Operation.create("vector.maskedstore", operands=[buffer, position, mask, vector])


def interleave(vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Interleave vectors: the first lanes of all vectors, then the second ones, in as many vectors."""
    count, lanes = len(vectors), vectors[0].type.shape[0]
    interleaved = []
    for i in range(count):
        sources = [divmod(i * lanes + lane, count) for lane in range(lanes)]
        # Each vector is merged with the lanes collected so far.
        result = vectors[0]
        for c in range(1, count):
            here = [lanes + at if channel == c else lane for lane, (at, channel) in enumerate(sources)]
            if c == 1:
                here = [at if channel == 0 else pick for (at, channel), pick in zip(sources, here, strict=True)]
            result = shuffle(result, vectors[c], here)
        interleaved.append(result)
    return interleaved
