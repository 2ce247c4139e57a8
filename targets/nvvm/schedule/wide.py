"""Elementwise blocks with several neighbouring elements a thread, which are read and written in one access."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, unfit_blocks
from mirlo.passes.schedule.parts import part_rule
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.targets.gpu.schedule.launch import THREADS
from mirlo.targets.gpu.schedule.points import (
    NO_POINT_CHOICES,
    ONE_POINT,
    POINTS,
    PointChoices,
    is_wide,
    plan_points,
    stage_choices,
)
from mirlo.targets.gpu.schedule.rules import function_group
from mirlo.targets.gpu.schedule.stage import StagePlan
from mirlo.targets.gpu.schedule.stages import plan_stages
from mirlo.targets.nvvm.schedule.transposed import (
    NO_TRANSPOSED_CHOICES,
    TRANSPOSED,
    TransposedChoices,
    is_transposed,
    plan_transpose,
)

if TYPE_CHECKING:
    pass

ACCESS = 16
"""Bytes that a thread reads or writes at once."""
MAX_UNROLLED_OPS = 400
"""Operations of a thread."""
MAX_ACCESSES_IN_FLIGHT = 4
"""Accesses of an operand that a thread has in flight."""
BYTES_IN_FLIGHT = 64
"""Bytes that a thread has in flight: times the 2048 threads of a unit far more than memory needs to be busy."""
MIN_BLOCKS = 2048
"""Blocks of threads that keep a device busy to the end."""
MIN_ELEMENTS = 1 << 16
"""Elements for which it does not matter that threads are fewer."""


def plan_wide_points(group: BlockGroup[LaneModel], chosen: PointChoices = NO_POINT_CHOICES) -> PrimitivesPlan | Decline:
    """Return the plan of all GPUs, with as many elements per thread as fill an access."""
    return plan_points(group, chosen, _choose)


def _choose(s: Schedule, block: str, last: str) -> PointChoices:
    """Choose the elements of a thread: an access along a loop, and enough of them to keep bytes in flight."""
    extents = [D.static_dim(s.extent(loop)) for loop in s.loops(block)]
    if prod(extents) < MIN_ELEMENTS:
        return ONE_POINT
    instances = s.instances(block)
    contiguous = [
        (element_bytes(operand.element_type), operand in instance.needed_inputs)
        for instance in instances for operand in (*instance.needed_inputs, *instance.block.outputs)
        if operand.map is not None and instance.flat(operand).coefficient(last) == 1
    ]  # fmt: skip
    if not contiguous:
        return ONE_POINT
    width, work = ACCESS // max(size for size, _ in contiguous), count_operations([each.block for each in instances])
    while width > 1 and (extents[-1] % width or work * width > MAX_UNROLLED_OPS):
        width //= 2
    if width == 1:
        return ONE_POINT
    read = [size * width for size, is_read in contiguous if is_read]
    return PointChoices(width, _runs(prod(extents) // width, read, work * width))


def _runs(accesses: int, read: Sequence[int], work: int) -> int:
    """Return the accesses of each operand per thread that keep enough bytes in flight."""
    count = MAX_ACCESSES_IN_FLIGHT
    while count > 1 and (
        count * sum(read) > BYTES_IN_FLIGHT or count * work > MAX_UNROLLED_OPS
        or accesses % (count * THREADS) or accesses < count * THREADS * MIN_BLOCKS
    ):  # fmt: skip
        count //= 2
    return count


@part_rule("nvvm", function_group, priority=55)
def wide_points(
    group: BlockGroup[LaneModel],
    points: PointChoices = NO_POINT_CHOICES,
    tiles: TransposedChoices = NO_TRANSPOSED_CHOICES,
) -> StagePlan | Decline:
    """Schedule elementwise blocks in accesses of 16 bytes, or in transposed tiles; others by the plans of all GPUs."""
    refusal = unfit_blocks(group.blocks)
    if refusal is not None:
        return refusal
    planners = (partial(plan_transpose, chosen=tiles), partial(plan_wide_points, chosen=points))
    plan = plan_stages(group, planners, points=points)
    is_chosen = points != NO_POINT_CHOICES
    if not is_chosen and not any(is_transposed(stage) or is_wide(stage) for stage in plan):
        return decline("no elementwise blocks with many elements side by side")
    return StagePlan(group, plan, chosen={**stage_choices(plan, POINTS), **stage_choices(plan, TRANSPOSED)})
