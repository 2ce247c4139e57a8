"""One thread per point: elementwise blocks together, and blocks that no better plan accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, opaque_of_group, placed
from mirlo.passes.schedule.blocks.space import BlockInstance, Space, merge_all
from mirlo.passes.schedule.nest import emit_point
from mirlo.targets.gpu.schedule.launch import launch_points, launch_runs
from mirlo.targets.gpu.schedule.vector_access import load_vectors, store_vectors


@dataclass
class PointsPlan:
    """Elementwise blocks over one domain: a thread computes one element of each."""

    name = "points"

    group: BlockGroup[LaneModel]
    space: Space
    width: int = 1
    """Consecutive elements per thread; divides the last loop's extent."""
    runs: int = 1
    """How many such runs a thread computes, a block of threads apart, with all loads in flight together."""

    @property
    def made(self) -> dict[ir.Value, tuple[BlockInstance, ir.Value]]:
        """Return the tensors computed here, with the block and the body's value."""
        return {
            output.value: (instance, value)
            for instance in self.space.instances
            for output, value in zip(instance.block.outputs, instance.roots, strict=True)
        }

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        made = self.made
        self.touch(memory)
        *outer, last = self.space.extents or (1,)

        def thread(runs: list[list[Value]]) -> None:
            rank, groups = len(self.space.extents), []
            for indices in runs:
                at = [*indices[:-1], indices[-1] * self.width][:rank]
                ahead = [{rank - 1: j} if j else None for j in range(self.width)]
                groups.append([Iteration(LoopNestState(memory, None, made), at, beyond=far) for far in ahead])
            # All loads precede all stores and all branches, so they are in flight together.
            for group in groups if self.width > 1 else ():
                load_vectors(group, self.space.instances, rank - 1)
            for point in chain(*groups):
                for instance in self.space.instances:
                    point.run(instance)
            for group in groups:
                self.store(group)

        extents = [*outer, last // self.width]
        if self.runs > 1:
            launch_runs(extents, self.runs, thread)
        else:
            launch_points(extents, lambda indices: thread([indices]))

    def store(self, points: Sequence[Iteration]) -> None:
        """Store the outputs of consecutive points."""
        for instance in self.space.instances:
            for output, value in zip(instance.block.outputs, instance.roots, strict=True):
                if output.value in self.group.kept:
                    store_vectors(points, instance, output, value, len(self.space.extents) - 1)

    def touch(self, memory: TensorBuffers) -> None:
        """Make the views of all buffers outside of the launch."""
        made = self.made
        for instance in self.space.instances:
            read = [operand.value for operand in instance.needed_inputs if operand.value not in made]
            written = [output.value for output in instance.block.outputs if output.value in self.group.kept]
            for value in (*read, *written):
                memory.slot(value)


def plan_points(group: BlockGroup[LaneModel]) -> PointsPlan | Decline:
    """Plan these blocks as one loop nest."""
    first = group.blocks[0]
    for block in group.blocks:
        if block.is_reduction:
            return decline("a block reduces", block=block.name)
        if block.domain != first.domain:
            return decline("blocks have different domains", blocks=f"{first.name}, {block.name}")
    refusal = opaque_of_group(group)
    if refusal is not None:
        return refusal
    space = Space(first.domain, tuple(placed(b, range(b.rank), first.domain) for b in group.blocks)).drop_units()
    refusal = _in_step(space, group)
    if refusal is not None:
        return refusal
    return PointsPlan(group, merge_all(along_memory(space.split_divided()), 0))


def _in_step(space: Space, group: BlockGroup[LaneModel]) -> Decline | None:
    """Decline if a value computed here is read at another point than it is made."""
    written: dict[ir.Value, tuple[IndexExpr, ...]] = {}
    for instance in space.instances:
        for operand in instance.block.inputs:
            if operand.value in written and instance.dims(operand) != written[operand.value]:
                return decline("a block reads a value of the group at another index", block=instance.block.name)
        for output in instance.block.outputs:
            written[output.value] = instance.dims(output)
    return None


def along_memory(space: Space) -> Space:
    """Order the loops by the strides of the output, so that adjacent threads write adjacent elements."""
    instance = space.instances[-1]
    where = instance.flat(instance.block.outputs[0])
    steps = [_size(where.coefficient(axis) or 0) for axis in range(len(space.extents))]
    return space.order(sorted(range(len(space.extents)), key=lambda axis: -D.estimate_dim(steps[axis])))


def _size(step: Dim) -> Dim:
    return abs(step) if isinstance(step, int) else step


@dataclass(frozen=True)
class BlockPlan:
    """One block of any kind: a thread computes one element of each output."""

    name = "block"

    block: BlockView

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        inputs = [memory.buffers.buffer(operand.value) for operand in self.block.inputs]
        outputs = [memory.buffers.buffer(output.value) for output in self.block.outputs]
        extents = [self.block.domain[axis] for axis in self.block.spatial]
        launch_points(extents, lambda indices: emit_point(self.block, indices, inputs, outputs))
