"""Row operations in vectors: softmax, normalizations, reductions along the innermost axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.blocks.rows import RowGroup, Walk, find_rows
from mirlo.passes.schedule.buffers import ScheduleFacts, TensorBuffers
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import fuse_contiguous, merge_rows
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_LOOP_CHOICES, LoopChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.part_rules import part_rule
from mirlo.targets.llvm.schedule.vector_loops import (
    LoopVectors,
    can_mask,
    choose_lane_vectors,
    cut_lanes,
    cut_vectors,
    cut_whole_vectors,
    describe_vectors,
    loop_space,
    split_vectors,
    traps,
)


@dataclass(frozen=True)
class RowsPlan:
    """Row operations, whose loops are arranged when they are needed."""

    found: RowGroup
    chosen: LoopChoices
    name = "rows"

    @property
    def group(self) -> BlockGroup[Machine]:
        """Return the blocks."""
        return self.found.group

    @cached_property
    def _arranged(self) -> RowLoops:
        s = schedule_of(self.group)
        return arrange_rows(s, s.blocks(), self.found, self.chosen, is_shared=True)

    @cached_property
    def plan(self) -> PrimitivesPlan:
        """Return the blocks with their loops arranged."""
        facts: ScheduleFacts = {"rows": list(self._arranged.rows.values()), "walks": len(self.found.walks)}
        return PrimitivesPlan(self.group, self._arranged.s, self.name, describe_vectors(self._arranged.vectors), facts)

    def choices(self) -> ChoiceValues:
        """Return the choices with which the loops are made again."""
        return self.plan.choices()

    @property
    def block_count(self) -> int:
        """Return how many blocks it computes."""
        return len(self.group.blocks)

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the loops at the insertion point."""
        self.plan.emit(memory)

    def schedule(self) -> ir.OpView:
        """Replace a prim function, of which these are all blocks, by the loops."""
        return self.plan.schedule()


@part_rule(priority=40, space=loop_space)
def plan_rows(group: BlockGroup[Machine], choices: LoopChoices = NO_LOOP_CHOICES) -> RowsPlan | Decline:
    """Schedule softmax, normalizations and reductions along the innermost axis row by row, in vectors."""
    row_group = find_rows(group)
    return row_group if isinstance(row_group, Decline) else RowsPlan(row_group, choices)


def arrange_rows(
    s: Schedule, blocks: Sequence[str], rows: RowGroup, chosen: LoopChoices, is_shared: bool = False
) -> RowLoops:
    """Arrange the loops of row operations: a row in each iteration of a loop, its elements in vectors.

    With `is_shared` threads divide them; else they are a part of loops that threads divide.
    """
    result = RowLoops(s, rows, chosen, is_shared)
    result.arrange(blocks)
    return result


@dataclass
class RowLoops:
    """The loops of row operations as they are arranged, and their choices."""

    s: Schedule
    found: RowGroup
    chosen: LoopChoices
    is_shared: bool
    vectors: list[LoopVectors] = field(default_factory=list)
    rows: dict[str, Dim] = field(default_factory=dict)
    """The loops over rows, and their iterations, without those of one."""
    steps: list[int] = field(default_factory=list)
    """The elements that each loop over a row computes at a time."""
    limited: list[str] = field(default_factory=list)
    """The loops over elements of a row that may end early."""

    def arrange(self, blocks: Sequence[str]) -> None:
        """Compute a row in each iteration of one loop, or of several where rows are not next to each other."""
        s = self.s
        rows, walks = merge_rows(s, blocks, self.found)
        rows = fuse_contiguous(s, blocks[0], rows)
        self.rows = {row: s.extent(row) for row in rows if s.extent(row) != 1}
        for walk in walks:
            if walk.loops:
                self._walk(walk.walk, walk.blocks, walk.loops)
        for row in rows if self.is_shared else ():
            s.parallel(row)
        for value, result in self.found.shared().items():
            names = s.buffer_of(value), s.buffer_of(result)
            if s.can_share_memory(*names):
                s.share_memory(*names)

    def _walk(self, walk: Walk, blocks: list[str], loops: list[str]) -> None:
        """Compute the elements of a row in vectors, and reduce them in registers."""
        s, machine = self.s, self.found.group.machine
        *outer, last = fuse_contiguous(s, blocks[0], loops)
        instances, axis = walk.instances, len(walk.extents) - 1
        vectors = choose_lane_vectors(
            instances, axis, walk.extents[axis], machine, self.chosen, len(self.vectors), bool(walk.reductions)
        )
        is_ordered = machine.invariant and bool(walk.reductions) and not traps(instances)
        if is_ordered:
            vectors = LoopVectors(vectors.lanes, 1)
        self.vectors.append(vectors)
        joined = vectors.unroll if vectors.are_joined else 1
        lanes, unroll = vectors.lanes * joined, vectors.unroll // joined
        masked = can_mask(instances, machine)
        parts = [last] if walk.reductions else cut_lanes(s, last, lanes)
        if is_ordered:
            cuts = cut_whole_vectors(s, last, lanes)
        else:
            cuts = [cut for part in parts for cut in cut_vectors(s, part, lanes, unroll, masked)]
        vectorized = [split_vectors(s, *cut) for cut in cuts]
        self.steps.append(cuts[0][1] * cuts[0][2])
        self.limited += vectorized if len(parts) == 1 else []
        for position in walk.reductions:
            s.accumulate(blocks[position], outer[0] if outer else vectorized[0])
        for loop in () if self.rows or walk.reductions or not self.is_shared else (outer or vectorized[:1]):
            s.parallel(loop)
