"""Schedule rules that divide a prim function into stages, each a launch by the plan that applies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.rules import Decline, deciding, schedule
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, plan_in_stages, unfit_blocks
from mirlo.passes.schedule.choices import WANTED_PARTS, parts_of
from mirlo.passes.schedule.kernel import Kernel, ScheduleContext
from mirlo.passes.schedule.parts import part_rule
from mirlo.targets.gpu.schedule.contraction import ThreadPerElementPlan, plan_contraction
from mirlo.targets.gpu.schedule.contraction.fma import MIN_BLOCKS
from mirlo.targets.gpu.schedule.costs import split_k_if_faster
from mirlo.targets.gpu.schedule.points import NO_POINT_CHOICES, PointChoices, plan_block, plan_points, stage_choices
from mirlo.targets.gpu.schedule.roles import product_of
from mirlo.targets.gpu.schedule.rows import plan_rows
from mirlo.targets.gpu.schedule.rules import function_group, schedule_parts
from mirlo.targets.gpu.schedule.stage import PlannedBlocks, StagePlan, decline_dynamic_dims

if TYPE_CHECKING:
    from mirlo.dialects.bindings import ir


Planner = Callable[[BlockGroup[LaneModel]], PlannedBlocks | Decline]


def plan_stages(
    group: BlockGroup[LaneModel],
    first: Sequence[Planner] = (),
    first_open: Sequence[Planner] = (),
    points: PointChoices = NO_POINT_CHOICES,
) -> list[PlannedBlocks]:
    """Plan stages of as many blocks as one plan accepts; a target's own plans in `first` are tried before others.

    With dynamic sizes `first_open` are tried: the others need static ones.
    """
    others: tuple[Planner, ...] = (partial(plan_points, chosen=points), plan_rows)
    return plan_in_stages(group, lambda part: _plan(part, first, first_open, others), plan_block)


def _plan(
    part: BlockGroup[LaneModel], first: Sequence[Planner], first_open: Sequence[Planner], others: Sequence[Planner]
) -> PlannedBlocks | None:
    for planner in first if decline_dynamic_dims(part.blocks) is None else map(deciding, first_open):
        plan = planner(part)
        if not isinstance(plan, Decline):
            return plan
    roles = deciding(product_of)(part)
    if not isinstance(roles, Decline):
        product = plan_contraction(roles)
        # Few long sums over contiguous elements are better shared by threads.
        rows = deciding(plan_rows)(part) if isinstance(product, ThreadPerElementPlan) else None
        if rows is not None and not isinstance(rows, Decline):
            return rows
        result: PlannedBlocks = product
        if decline_dynamic_dims(part.blocks) is None:
            result = split_k_if_faster(product, roles, MIN_BLOCKS, plan_contraction)
        return result
    if len(part.blocks) > 1 and any(is_product(block) for block in part.blocks):
        return None  # the product gets tiles of its own
    for planner in others:
        plan = deciding(planner)(part)
        if not isinstance(plan, Decline):
            return plan
    return None


@deciding
def plan_blocks(group: BlockGroup[LaneModel], points: PointChoices = NO_POINT_CHOICES) -> StagePlan | Decline:
    """Plan blocks by the plans of this folder, one launch per stage."""
    refusal = unfit_blocks(group.blocks)
    if refusal is not None:
        return refusal
    plan = plan_stages(group, points=points)
    return StagePlan(group, plan, chosen=stage_choices(plan))


@schedule(target="gpu", priority=50, planner=plan_blocks)
def stages(kernel: Kernel, context: ScheduleContext, points: PointChoices = NO_POINT_CHOICES) -> ir.OpView | Decline:
    """Schedule blocks by the plans of this folder, one launch per stage; or in the parts that a caller names."""
    group, wanted = function_group(kernel, context), parts_of(kernel.view.op, WANTED_PARTS)
    if isinstance(group, Decline):
        return group
    if wanted:
        return schedule_parts(kernel, group, wanted)
    plan = plan_blocks(group, points)
    return plan if isinstance(plan, Decline) else plan.schedule()


@part_rule("gpu", function_group, priority=0)
def threads(group: BlockGroup[LaneModel]) -> StagePlan | Decline:
    """Schedule any blocks, one launch per block and one thread per element."""
    parts = [group.part(i, i + 1) for i, block in enumerate(group.blocks) if 0 not in _outputs(block)]
    return StagePlan(group, list(map(plan_block, parts)))


def _outputs(block: BlockView) -> list[Dim]:
    return [block.domain[axis] for axis in block.spatial]
