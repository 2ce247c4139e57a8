"""Copies that permute contiguous runs: heads and tokens, images and batches.

An operand and the output are both contiguous along the last loop, but differ in the loop with the next larger
stride: adjacent runs of one are far apart in the other. Copied run by run, each line of the operand is requested
when it is needed. So some adjacent runs of the operand, by some adjacent runs of the output, form a block that is
unrolled: what the hardware prefetches for one then serves the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.dialects.bindings import ir
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.blocks.space import BlockInstance, Space
from mirlo.passes.schedule.loops import every, for_loop
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.chunks import Chunks, can_mask, chunks, has_intrinsics, plus, work
from mirlo.targets.llvm.schedule.cost import RUN_BLOCK_VECTORS, RUN_LOADS_IN_FLIGHT, RUNS_PER_BLOCK, SHORT_RUN_VECTORS
from mirlo.targets.llvm.schedule.movement import is_close, moved_bytes


@dataclass(frozen=True)
class Runs:
    """The iteration space of a copy by runs.

    Its last loops are `far`, the next stride of an operand's runs, `near`, that of the output's runs, and the run.
    """

    space: Space
    far: int
    """Extent of a block along the last loop but two."""
    near: int
    """Extent of a block along the last loop but one."""
    lanes: int


def find_runs(space: Space, made: set[ir.Value], machine: Machine) -> Runs | None:
    """Arrange the loops of a space for blocks of runs, if it copies runs and blocks pay."""
    last = len(space.extents) - 1
    if last < 2 or has_intrinsics(space.instances):
        return None
    near = last - 1
    far = _outer_run_loop(space, made)
    if far in (None, near) or not all(isinstance(space.extents[axis], int) for axis in (far, near, last)):
        return None
    bytes_each = widest_bytes(space.instances, last)
    lanes = machine.lanes(bytes_each)
    vectors = -(-space.extents[last] // lanes)
    moved = moved_bytes(space, bytes_each)
    if not 2 * machine.l1_bytes <= moved <= machine.private_cache_bytes:
        return None
    if vectors > SHORT_RUN_VECTORS and not is_close(space, bytes_each, machine):
        return None
    together = RUN_BLOCK_VECTORS // (vectors * max(1, work(space.instances)))
    if together < 2:
        return None
    steps = _evenly(space.extents[far], min(RUNS_PER_BLOCK, together))
    arranged = space.order([*(axis for axis in range(last) if axis not in (far, near)), far, near, last])
    return Runs(arranged, steps, _evenly(space.extents[near], together // steps), lanes)


def _evenly(extent: int, most: int) -> int:
    """Return a step of at most `most` that leaves a small rest."""
    return -(-extent // -(-extent // most))


def _outer_run_loop(space: Space, made: set[ir.Value]) -> int | None:
    """Return the loop with the next stride of the operands' runs; None if they have no runs."""
    last = len(space.extents) - 1
    result: int | None = None
    for instance in space.instances:
        for operand in instance.needed_inputs:
            if operand.map is None or operand.value in made:
                continue
            where = instance.flat(operand)
            steps = [where.coefficient(axis) for axis in range(last + 1)]
            if not all(isinstance(step, int) for step in steps) or steps[last] not in (0, 1):
                return None
            moving = [axis for axis in range(last) if steps[axis] > 0]
            if steps[last] == 1 and moving and result in (None, last - 1):
                result = min(moving, key=lambda axis: steps[axis])
    return result


class RunsSweep:
    """Emits all loops of a space, the last three in blocks."""

    def __init__(
        self,
        runs: Runs,
        memory: TensorBuffers,
        made: dict[ir.Value, tuple[BlockInstance, ir.Value]],
        stored: set[ir.Value],
        machine: Machine,
    ):
        self.runs = runs
        self.space = runs.space
        self.stored = stored
        self.last = len(self.space.extents) - 1
        self.frame = LoopNestState(memory, self.last, made=made)
        self.vectors = _vectors(self.space, runs.lanes, can_mask(self.space.instances, machine))

    def emit(self) -> None:
        """Emit the loops at the insertion point."""
        every(self.space.extents[: self.last - 2], self._plane, parallel=True)

    def _plane(self, indices: list[ir.Value]) -> None:
        far, near = self.space.extents[self.last - 2], self.space.extents[self.last - 1]
        whole_far, whole_near = (n // step * step for n, step in ((far, self.runs.far), (near, self.runs.near)))
        for far_range, far_step in ((0, whole_far), self.runs.far), ((whole_far, far), 1):
            for near_range, near_step in ((0, whole_near), self.runs.near), ((whole_near, near), 1):
                self._part(indices, (*far_range, far_step), (*near_range, near_step))

    def _part(self, indices: list[ir.Value], far: tuple[int, int, int], near: tuple[int, int, int]) -> None:
        if far[0] == far[1] or near[0] == near[1]:
            return

        def along(f: ir.Value) -> None:
            for_loop(*near, lambda n: self._block(indices, (f, far[2]), (n, near[2])), parallel=True)

        for_loop(*far, along, parallel=True)

    def _block(self, indices: list[ir.Value], far: tuple[ir.Value, int], near: tuple[ir.Value, int]) -> None:
        for n in range(near[1]):
            for f in range(far[1]):
                self._run([*indices, plus(far[0], f), plus(near[0], n)])

    def _run(self, indices: Sequence[ir.Value]) -> None:
        outer = Iteration(self.frame, [*indices, None])
        for instance in self.space.instances:
            outer.run(instance, skip=self.frame.varying(instance))
        for at in range(0, len(self.vectors), RUN_LOADS_IN_FLIGHT):
            points = [
                Iteration(self.frame, [*indices, start], lanes, active, outer)
                for start, lanes, active in self.vectors[at : at + RUN_LOADS_IN_FLIGHT]
            ]
            for point in points:
                for instance in self.space.instances:
                    point.run(instance)
            for point in points:
                for instance in self.space.instances:
                    point.store_results(instance, self.stored)


def _vectors(space: Space, lanes: int, masked: bool) -> list[tuple[int, int, int]]:
    """Return the (start, lanes, active) of all vectors of a run."""
    cut = chunks(space.extents[-1], lanes, 1, masked)
    assert isinstance(cut, Chunks)
    whole = [(start, cut.lanes, cut.lanes) for start in range(0, cut.main, cut.lanes)]
    return [*whole, *cut.rest]
