"""Schedules of primitives with a thread for each point: elementwise blocks together, blocks that no other plan accepts.

A thread may compute several elements that follow one another, in one access, and several such groups, whose loads are
in flight together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Annotated

from mirlo.passes.rule_choices import Choice, ChoiceValues, choice_values
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, opaque_of_group, same_domain
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import fuse_contiguous, order_loops
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.launch import THREADS, WARP

MAX_UNROLLED = 16
"""Most elements of a reduction that a thread computes without inner loops."""
POINTS = "points"
"""The name of the stages that these plans are."""


@dataclass(frozen=True)
class PointChoices:
    """Choices for elementwise blocks; None where the schedule chooses."""

    width: Annotated[
        int | None, Choice((1, 2, 4, 8, 16), "elements that follow one another which a thread computes")
    ] = None
    runs: Annotated[int | None, Choice((1, 2, 4, 8), "runs of them that a thread computes, loaded together")] = None


NO_POINT_CHOICES = PointChoices()
ONE_POINT = PointChoices(1, 1)
"""A thread for each element."""
PointWidth = Callable[[Schedule, str, str], PointChoices]
"""Chooses what a thread computes, given the schedule, a block, and the loop along memory."""


def one_point(s: Schedule, block: str, last: str) -> PointChoices:
    """Schedule one element per thread."""
    return ONE_POINT


def plan_points(
    group: BlockGroup[LaneModel], chosen: PointChoices = NO_POINT_CHOICES, choose: PointWidth = one_point
) -> PrimitivesPlan | Decline:
    """Plan elementwise blocks as one nest, in which adjacent threads write adjacent elements."""
    merged = merge_points(group)
    if isinstance(merged, Decline):
        return merged
    s, block = merged
    *outer, last = fuse_contiguous(s, block, s.loops(block)) or [s.add_unit_loop(block)]
    own = choose(s, block, last)
    choices = PointChoices(chosen.width or own.width, chosen.runs or own.runs)
    width, runs = choices.width or 1, choices.runs or 1
    lanes = []
    if width > 1:
        last, lane = s.split(last, (None, width))
        lanes = [lane]
    bind_points(s, [*outer, last], lanes, runs)
    return PrimitivesPlan(group, s, POINTS, choice_values(choices))


def merge_points(group: BlockGroup[LaneModel]) -> tuple[Schedule, str] | Decline:
    """Compute elementwise blocks in the iterations of the first one, in the order of memory; return that block."""
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
    return s, block


def bind_points(s: Schedule, loops: list[str], lanes: list[str], runs: int = 1) -> None:
    """Bind nested loops to threads, each of which computes lanes, in several groups; the innermost loop is fastest."""
    points = s.fuse(*loops) if len(loops) > 1 else loops[0]
    total = s.extent(points)
    threads = min(THREADS, max(WARP, -(-total // WARP) * WARP)) if isinstance(total, int) else THREADS
    if runs > 1:
        blocks, run, thread = s.split(points, (None, runs, threads))
        s.reorder(blocks, thread, run)
        s.unroll(run)
    else:
        blocks, thread = s.split(points, (None, threads))
    for lane in lanes:
        s.vectorize(lane)
    s.bind(blocks, "blockIdx.x")
    s.bind(thread, "threadIdx.x")


def plan_block(group: BlockGroup[LaneModel]) -> PrimitivesPlan:
    """Plan one block of any kind: a thread computes one element of each output."""
    s = schedule_of(group)
    (block,) = s.blocks()
    kinds = s.kinds(block)
    spatial = [loop for loop, kind in kinds.items() if kind == "spatial"]
    reduced = [loop for loop, kind in kinds.items() if kind == "reduce"]
    order_loops(s, block, [*spatial, *reduced])
    if reduced:
        count = prod(s.extent(loop) for loop in reduced)
        for loop in reduced[1:] if isinstance(count, int) and count <= MAX_UNROLLED else ():
            s.unroll(loop)
        s.accumulate(block, reduced[0], in_order=True)
    bind_points(s, spatial or [s.add_unit_loop(block)], [])
    return PrimitivesPlan(group, s, "block", {})


def stage_choices(stages: Sequence[object], kind: str = POINTS) -> ChoiceValues:
    """Return the choices that all stages of a kind have in common."""
    chosen = [stage.chosen for stage in stages if isinstance(stage, PrimitivesPlan) and stage.rule == kind]
    first = chosen[0] if chosen else {}
    return {name: value for name, value in first.items() if all(each[name] == value for each in chosen)}


def is_wide(plan: object) -> bool:
    """Return whether a thread computes several elements at once in a stage."""
    return isinstance(plan, PrimitivesPlan) and plan.rule == POINTS and plan.chosen.get("width", 1) != 1
