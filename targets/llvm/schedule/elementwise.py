"""Elementwise blocks: one loop nest over all elements, vectorized along the output's unit stride.

If a condition on an index selects the operand that is read (concatenation, padding), the loops are cut so that it is
constant within each part. An operand whose unit stride is along another loop is transposed in registers.
"""

from __future__ import annotations

from dataclasses import field

from mirlo.passes.rule_choices import ChoiceValues, choice_values
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.group import BlockGroup, opaque_of_group, same_domain
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import fuse_contiguous, order_loops
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.choices import NO_ELEMENTWISE_CHOICES, ElementwiseChoices
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.cost import MAX_SUBSPACES, TRANSPOSE_ALIGNMENT
from mirlo.targets.llvm.schedule.part_rules import part_rule
from mirlo.targets.llvm.schedule.transposes import arrange_interleaved, arrange_tiles, choose_tile, find_across
from mirlo.targets.llvm.schedule.vector_loops import (
    LoopVectors,
    can_mask,
    choose_lane_vectors,
    cut_lanes,
    cut_vectors,
    describe_vectors,
    loop_space,
    split_vectors,
)


@part_rule(priority=50, space=loop_space)
@deciding
def plan_elementwise(
    group: BlockGroup[Machine], choices: ElementwiseChoices = NO_ELEMENTWISE_CHOICES
) -> PrimitivesPlan | Decline:
    """Schedule elementwise computations, copies and gathers in vectors along the output's unit stride."""
    refusal = same_domain(group.blocks) or opaque_of_group(group)
    if refusal is not None:
        return refusal
    s = schedule_of(group)
    block, *others = s.blocks()
    for other in others:
        try:
            s.compute_with(other, block)
        except ScheduleError:
            return decline("a value of the group is read at another index", block=other)
    while divisors := s.divisors(block):
        for loop, divisor in divisors.items():
            s.split(loop, (None, divisor))
    order_loops(s, block, s.memory_order(block))
    parts = _cut_conditions(s, block)
    refusals = [_unwritten(s, part) for part in parts]
    if refusals[0] is not None and all(refusals):
        return refusals[0]
    plan = _Loops(s, group, choices)
    for part in parts:
        plan.arrange(part)
    return PrimitivesPlan(group, s, "elementwise", plan.choices(), {"pieces": len(parts)})


def _cut_conditions(s: Schedule, block: str) -> list[str]:
    """Cut all loops but the last one where a condition changes; return the blocks of the parts, fused anew."""
    parts, left = [block], MAX_SUBSPACES
    done: list[str] = []
    while parts:
        part = parts.pop(0)
        loops = [loop for loop in s.loops(part) if s.extent(loop) != 1]
        for loop in loops[-2::-1]:
            points = s.change_points(loop)
            if points and len(done) + len(parts) + len(points) + 1 <= left:
                others = [other for other in s.loops(part) if other != loop]
                s.reorder(loop, *others)
                parts = [each for cut in s.partition(loop, points) for each in s.blocks(cut)] + parts
                break
        else:
            done.append(part)
    for part in done:
        order_loops(s, part, s.memory_order(part))
        fuse_contiguous(s, part, s.loops(part))
    return done


def _unwritten(s: Schedule, part: str) -> Decline | None:
    """Decline a part whose writes are not contiguous."""
    loops = [loop for loop in s.loops(part) if s.extent(loop) != 1]
    if not loops:
        return None
    steps = [step for step in s.strides(part, loops[-1])[1] if step != 1]
    return decline("an output is not written along memory", block=part, step=steps[0]) if steps else None


@dataclass
class _Loops:
    """The loops of the parts as they are arranged, and their choices."""

    s: Schedule
    group: BlockGroup[Machine]
    chosen: ElementwiseChoices
    vectors: list[LoopVectors] = field(default_factory=list)
    tiles: list[tuple[int, int]] = field(default_factory=list)
    has_interleaved: bool = False

    def arrange(self, part: str) -> None:
        """Arrange the loops of a part."""
        s, machine = self.s, self.group.machine
        across = find_across(s, part, self.group)
        if across is None:
            self._in_vectors(part)
            return
        *others, last = s.loops(part)
        if _unwritten(s, part) is not None:
            self._in_vectors(part)
            return
        others.remove(across)
        is_cut = bool(s.change_points(last))
        if is_cut:
            s.reorder(last, *others, across)
        # Each tile reads only the operand of a concatenation that it needs, instead of transposing all of them.
        for each in cut_lanes(s, last, TRANSPOSE_ALIGNMENT):
            (block,) = s.blocks(each)
            order_loops(s, block, [*s.loops(block)[1:], each] if is_cut else [*others, across, last])
            if find_across(s, block, self.group) != s.loops(block)[-2]:
                self._in_vectors(block)
            elif arrange_interleaved(s, block, machine, self.chosen):
                self.has_interleaved = True
            else:
                tile = choose_tile(s, block, self.group, self.chosen, len(self.tiles))
                self.tiles.append((tile.rows, tile.columns))
                arrange_tiles(s, block, tile)

    def _in_vectors(self, part: str) -> None:
        s, machine = self.s, self.group.machine
        instances = s.instances(part)
        loops = s.loops(part)
        if not loops:
            return
        is_thin = _unwritten(s, part) is not None
        masked = can_mask(instances, machine)
        if not is_thin:
            from mirlo.targets.llvm.schedule.runs import arrange_runs, find_runs  # few kernels move ranges

            runs = find_runs(s, part, self.group)
            if runs is not None:
                arrange_runs(s, part, runs, masked)
                return
        *outer, last = loops
        number = None if is_thin else len(self.vectors)
        vectors = choose_lane_vectors(
            instances, last, s.extent(last), machine, self.chosen, number, lanes=1 if is_thin else None
        )
        if not is_thin:
            self.vectors.append(vectors)
        lanes, unroll = vectors.lanes, vectors.unroll
        if vectors.are_joined:
            lanes, unroll = lanes * unroll, 1
        for each in cut_lanes(s, last, lanes):
            cut = cut_vectors(s, each, lanes, unroll, masked)
            for loop, width, count in cut:
                vectorized = split_vectors(s, loop, width, count)
                if not outer and loop == cut[0][0]:
                    s.parallel(vectorized)
        for loop in outer:
            s.parallel(loop)

    def choices(self) -> ChoiceValues:
        """Return the vectors of the loops and the tiles of transposes, with which they are made again."""
        result = describe_vectors(self.vectors)
        if self.has_interleaved:  # by default, interleaved vectors have two unroll factors
            result = {**choice_values(ElementwiseChoices(unroll=self.chosen.unroll)), **result}
        shapes = ElementwiseChoices(
            transposed_rows=tuple(rows for rows, _ in self.tiles),
            transposed_columns=tuple(columns for _, columns in self.tiles),
        )
        return {**result, **choice_values(shapes)}
