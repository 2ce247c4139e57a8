"""Rows on NVIDIA GPUs: 16-byte accesses, reductions by warp shuffles, and across warps through shared memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.analysis import is_product
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.group import BlockGroup, LaneModel, unfit_blocks
from mirlo.passes.schedule.blocks.rows import RowGroup, Walk
from mirlo.passes.schedule.parts import part_rule
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan
from mirlo.targets.gpu.schedule.launch import WARP
from mirlo.targets.gpu.schedule.rows import ROWS, plan_rows
from mirlo.targets.gpu.schedule.rules import function_group
from mirlo.targets.gpu.schedule.stage import StagePlan
from mirlo.targets.gpu.schedule.stages import plan_stages
from mirlo.targets.gpu.schedule.vectors import is_aligned
from mirlo.targets.nvvm.schedule.transposed import plan_transpose
from mirlo.targets.nvvm.schedule.wide import ACCESS, MAX_UNROLLED_OPS, plan_wide_points

if TYPE_CHECKING:
    pass

MAX_ROW_THREADS = 512
"""Most threads per row whose elements they keep."""
MAX_READING_THREADS = 1024
"""Most threads per row that is read in each loop."""


def plan_warp_rows(group: BlockGroup[LaneModel]) -> PrimitivesPlan | Decline:
    """Plan rows as on all GPUs, with as many elements per thread as fill an access."""
    if any(is_product(block) for block in group.blocks):
        return decline("products have schedules of their own")
    return plan_rows(group, width_of, MAX_ROW_THREADS, MAX_READING_THREADS)


def width_of(rows: RowGroup) -> int:
    """Return the consecutive elements that a thread processes at once."""
    start = len(rows.rows)
    walks = [walk for walk in rows.walks if len(walk.extents) > start]
    if not walks:
        return 1
    # Values passed between loops stay in registers.
    handed = set(rows.group.made) - rows.group.kept if rows.in_step else set()
    sizes = [size for walk in walks for size, _ in _contiguous_accesses(walk, handed)]
    if not sizes:
        return 1
    width = ACCESS // max(sizes)
    work = count_operations([block for walk in walks for block in walk.blocks])
    shortest = min(prod(walk.extents[start:]) for walk in walks)
    while width > 1 and (
        work * width > MAX_UNROLLED_OPS
        or shortest < WARP * width
        or any(walk.extents[-1] % width for walk in walks)
        or any(
            not is_aligned(where, len(walk.extents) - 1, width)
            for walk in walks
            for _, where in _contiguous_accesses(walk, handed)
        )
    ):
        width //= 2
    return width


def _contiguous_accesses(walk: Walk, handed: Collection[ir.Value]) -> Iterator[tuple[int, IndexExpr]]:
    """Yield element size and position of contiguous accesses of a row, except those of these values."""
    axis = len(walk.extents) - 1
    for i, instance in enumerate(walk.instances):
        outputs = [] if i in walk.reductions else instance.block.outputs
        for operand in (*instance.needed_inputs, *outputs):
            if operand.map is None or operand.value in handed:
                continue
            where = instance.flat(operand)
            if where.coefficient(axis) == 1:
                yield element_bytes(operand.element_type), where


AROUND = (plan_transpose, plan_wide_points, plan_warp_rows)
"""Plans for blocks around products."""


@part_rule("nvvm", function_group, priority=57)
def warp_rows(group: BlockGroup[LaneModel]) -> StagePlan | Decline:
    """Schedule rows by shuffles and 16-byte accesses; other blocks use the plans of all GPUs."""
    refusal = unfit_blocks(group.blocks)
    if refusal is not None:
        return refusal
    if not any(block.is_reduction for block in group.blocks):
        return decline("no block reduces")
    plan = plan_stages(group, AROUND)
    rows = [stage for stage in plan if isinstance(stage, PrimitivesPlan) and stage.rule == ROWS]
    if not rows:
        return decline("no reductions along memory that threads of a warp share")
    return StagePlan(group, plan, {"width": rows[0].facts["width"]})
