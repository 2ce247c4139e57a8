"""The leaf of a contraction's schedule: its instruction, k-steps and epilogue, and what its tiles prefetch."""

from __future__ import annotations

from math import prod
from typing import TypedDict

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.contraction.forms import row_major
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tile_instruction import FMA
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup, multiplies_words
from mirlo.targets.llvm.schedule.contraction.stream import prefetch_bytes, prefetches_panels
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import ContractionRoles, TiledContraction
from mirlo.targets.llvm.schedule.cost import (
    INTRINSIC_OPERATIONS,
    LONG_INTRINSICS,
    MAX_UNROLLED_IN_REST,
    MIN_DEEP,
    MIN_DEPTH_TO_HOLD,
    MIN_K_TO_PREFETCH,
    ROLLED_FROM,
    ROLLED_FROM_IF_DEEP,
    UNROLLED_STEPS,
)
from mirlo.targets.llvm.tile_instructions import GROUPS, WORDS


def instruction_of(roles: ContractionRoles, group: DotGroup | None, machine: Machine) -> str:
    """Return the row of the table of instructions that computes tiles, of groups or of single products."""
    product = roles.contraction.product
    words = WORDS if multiplies_words(product, machine) else ()
    rows = words if group is None else GROUPS[group.instruction]
    factors = roles.rows.factor, roles.columns.factor
    return next((each.name for each in rows if each.takes(*factors, product)), FMA.name)


class TileArguments(TypedDict):
    """The arguments of `register_tile` that are choices."""

    instruction: str
    masked: bool
    steps: int
    epilogue: tuple[int, ...]
    partial_sums: bool


def tile_choices(plan: TiledContraction) -> TileArguments:
    """Return what is chosen for the register tile besides its loops."""
    tile = plan.tile
    most_steps = plan.machine.unrolled_products // (tile.rows * tile.vectors)
    is_single = tile.group is None and not tile.dot and not plan.loops.unrolled
    return {
        "instruction": instruction_of(plan.roles, tile.group, plan.machine),
        "masked": plan.machine.masked,
        "steps": UNROLLED_STEPS if is_single and tile.rows > 1 and most_steps >= UNROLLED_STEPS else 1,
        "epilogue": unrolled_epilogue(plan.roles.contraction, plan.loops.depth),
        "partial_sums": tile.has_partial_sums,
    }


def prefetch_operands(s: Schedule, block: str, plan: TiledContraction, panels: list[str]) -> None:
    """Prefetch columns and operands of the epilogue that come from beyond the caches.

    As a part of other loops, a contraction does not read one panel after the other.
    """
    columns, is_part = s.reads(block)[plan.roles.columns.factor.position], plan.part is not None
    if not is_part and panels and prefetches_panels(plan):
        s.prefetch(block, columns, loop=panels[-1])
    elif not is_part and (ahead := prefetch_bytes(plan)) is not None:
        s.prefetch(block, columns, distance=ahead // element_bytes(plan.roles.columns.access.element_type))
    for buffer in late_operands(s, plan):
        s.prefetch(block, buffer)


def late_operands(s: Schedule, plan: TiledContraction) -> list[str]:
    """Return the buffers that the epilogue reads once, vector by vector, from beyond the L2 cache."""
    result: dict[str, None] = {}
    if D.estimate_dim(plan.loops.depth) < MIN_K_TO_PREFETCH:
        return []
    for read in (read for stage in plan.roles.contraction.stages for read in stage.reads if read is not None):
        form = row_major(read.dims, read.shape)
        is_for_all_rows = plan.tile.row_axis is not None and form.stride(plan.tile.row_axis) == 0
        size = prod(map(D.estimate_dim, read.shape)) * element_bytes(read.element_type)
        if form.stride(plan.roles.lane_axis) == 1 and not is_for_all_rows and size > plan.machine.l2_bytes // 2:
            result[s.buffer_of(read.value)] = None
    return list(result)


def unrolled_epilogue(contraction: Contraction, k: Dim) -> tuple[int, ...]:
    """Return the numbers of accumulators up to which whole and smaller tiles unroll the epilogue; none if all do."""
    operations = count_operations([stage.block for stage in contraction.stages], LONG_INTRINSICS)
    if operations == 0:
        return ()
    depth = D.estimate_dim(k)
    whole = ROLLED_FROM_IF_DEEP if depth >= MIN_DEEP else ROLLED_FROM
    may_hold = depth >= (MIN_DEEP if operations >= INTRINSIC_OPERATIONS else MIN_DEPTH_TO_HOLD)
    return whole // operations, (MAX_UNROLLED_IN_REST if may_hold else whole) // operations
