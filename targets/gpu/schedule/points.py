"""One thread per point: elementwise blocks together, and blocks that no better plan accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.evaluate import Iteration, LoopNestState, TensorBuffers
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, elementwise_space
from mirlo.passes.schedule.blocks.space import BlockInstance, Space, computed_values, merge_all
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
        return computed_values(self.space.instances)

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        made = self.made
        memory.touch(self.space.instances, self.group.kept)
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
            for output, value in instance.results:
                if output.value in self.group.kept:
                    store_vectors(points, instance, output, value, len(self.space.extents) - 1)


def plan_points(group: BlockGroup[LaneModel]) -> PointsPlan | Decline:
    """Plan these blocks as one loop nest."""
    space = elementwise_space(group)
    if isinstance(space, Decline):
        return space
    # Adjacent threads write adjacent elements.
    last = space.instances[-1]
    return PointsPlan(group, merge_all(space.order_by_stride(last.flat(last.block.outputs[0])), 0))


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
