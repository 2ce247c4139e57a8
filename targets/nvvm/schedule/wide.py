"""Elementwise blocks with several neighbouring elements a thread: what lies side by side is one access."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, unfit_blocks
from mirlo.targets.gpu.schedule.launch import THREADS
from mirlo.targets.gpu.schedule.points import PointsPlan, plan_points
from mirlo.targets.gpu.schedule.rules import stage_rule
from mirlo.targets.gpu.schedule.stage import StagePlan
from mirlo.targets.gpu.schedule.stages import plan_stages
from mirlo.targets.nvvm.schedule.transposed import TransposePlan, plan_transpose

if TYPE_CHECKING:
    from mirlo.passes.schedule.kernel import ScheduleContext

ACCESS = 16
"""Bytes that a thread reads or writes at once."""
MAX_UNROLLED_OPS = 400
"""Operations of a thread."""
MAX_ACCESSES_IN_FLIGHT = 4
"""Accesses of an operand that a thread has under way."""
BYTES_IN_FLIGHT = 64
"""Bytes that a thread has under way: times the 2048 threads of a unit far more than memory needs to be busy."""
MIN_BLOCKS = 2048
"""Blocks of threads that keep a device busy to the end."""
MIN_ELEMENTS = 1 << 16
"""Elements for which it does not matter that threads are fewer."""


def plan_wide_points(group: BlockGroup[LaneModel]) -> PointsPlan | Decline:
    """Return the plan of all GPUs, with as many elements per thread as fill an access."""
    plan = plan_points(group)
    if isinstance(plan, Decline):
        return plan
    width = _width(plan)
    if width == 1:
        return decline("elements are not contiguous, or there are few")
    return replace(plan, width=width, runs=_runs(plan, width))


def _width(plan: PointsPlan) -> int:
    extents = plan.space.extents
    total, axis = 1, len(extents) - 1
    for extent in extents:
        total *= extent
    if axis < 0 or total < MIN_ELEMENTS:
        return 1
    operands = [(p, o) for p in plan.space.instances for o in (*p.needed_inputs, *p.block.outputs) if o.map is not None]
    side_by_side = [(p, o) for p, o in operands if p.flat(o).coefficient(axis) == 1]
    if not side_by_side:
        return 1
    width = ACCESS // max(element_bytes(operand.element_type) for _, operand in side_by_side)
    work = count_operations([instance.block for instance in plan.space.instances])
    while width > 1 and (not D.is_multiple(extents[axis], width) or work * width > MAX_UNROLLED_OPS):
        width //= 2
    return width


def _runs(plan: PointsPlan, width: int) -> int:
    """Return the accesses of each operand per thread that keep enough bytes in flight."""
    extents = plan.space.extents
    read = [
        element_bytes(operand.element_type) * width
        for instance in plan.space.instances for operand in instance.needed_inputs
        if operand.map is not None and instance.flat(operand).coefficient(len(extents) - 1) == 1
    ]  # fmt: skip
    work = width * count_operations([instance.block for instance in plan.space.instances])
    accesses = prod(extents) // width
    count = MAX_ACCESSES_IN_FLIGHT
    while count > 1 and (
        count * sum(read) > BYTES_IN_FLIGHT or count * work > MAX_UNROLLED_OPS
        or accesses % (count * THREADS) or accesses < count * THREADS * MIN_BLOCKS
    ):  # fmt: skip
        count //= 2
    return count


@stage_rule("nvvm", priority=55)
def wide_points(group: BlockGroup[LaneModel], context: ScheduleContext) -> StagePlan | Decline:
    """Elementwise blocks in accesses of 16 bytes, or in transposed tiles; others by the plans of all GPUs."""
    refusal = unfit_blocks(group.blocks)
    if refusal is not None:
        return refusal
    plan = plan_stages(group, (plan_transpose, plan_wide_points))
    if not any(isinstance(s, TransposePlan) or (isinstance(s, PointsPlan) and s.width > 1) for s in plan):
        return decline("no elementwise blocks with many elements side by side")
    return StagePlan(plan)
