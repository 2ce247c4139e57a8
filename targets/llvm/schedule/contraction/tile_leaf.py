"""The leaf of a contraction's schedule: its instruction, k-steps and epilogue, and what its tiles prefetch."""

from __future__ import annotations

from math import prod
from typing import TypedDict

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, row_major
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tile_instruction import FMA
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup, multiplies_words
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import ContractionRoles, TiledContraction
from mirlo.targets.llvm.schedule.cost import (
    INTRINSIC_OPERATIONS,
    LEAD_BYTES,
    LONG_INTRINSICS,
    MAX_UNROLLED_IN_REST,
    MIN_DEEP,
    MIN_DEPTH_TO_HOLD,
    MIN_K_TO_PREFETCH,
    PREFETCHED_IN_BLOCKS,
    ROLLED_FROM,
    ROLLED_FROM_IF_DEEP,
    UNROLLED_STEPS,
)
from mirlo.targets.llvm.tile_instructions import GROUPS, WORDS


def prefetches_panels(plan: TiledContraction) -> bool:
    """Return whether tiles prefetch the next panel, a share each.

    Only the first row of tiles reads a panel from memory; prefetched by all tiles of a panel, the next one arrives
    while this one is in use. The number of tiles may be dynamic.
    """
    if not _streams(plan) or plan.roles.lane_axis.extent != plan.tile.columns:
        return False
    tiles = _tiles_of_panel(plan)
    return (not isinstance(tiles, int) or tiles > 1) and _column_bytes(plan) > _resident_bytes(plan)


def prefetch_bytes(plan: TiledContraction) -> int | None:
    """Return the prefetch distance of a tile in bytes of the column operand; None if it does not prefetch."""
    if not _streams(plan) or _tiles_of_panel(plan) != 1 or _column_bytes(plan) <= _resident_bytes(plan):
        return None
    chosen = plan.choices.lead_bytes
    return LEAD_BYTES if chosen is None else chosen


def _streams(plan: TiledContraction) -> bool:
    """Return whether the column operand consists of panels that are read from the first byte to the last."""
    columns, lane_axis, reduce = plan.roles.columns, plan.roles.lane_axis, plan.loops.reduce
    if not reduce or not all(isinstance(axis.extent, int) for axis in (lane_axis, *reduce)):
        return False
    if not all(isinstance(dim, int) for dim in columns.access.shape):
        return False
    is_panel = columns.form.stride(reduce[-1]) == _width(plan) and lane_axis.extent <= plan.tile.columns
    is_in_turn = plan.has_own_rows or not plan.loops.order.rows_outside
    return is_panel and is_in_turn and not plan.tile.dot and not plan.loops.unrolled


def _width(plan: TiledContraction) -> int:
    """Return the elements of a panel for one k-step."""
    extent = plan.roles.lane_axis.extent
    assert isinstance(extent, int)
    return extent * (1 if plan.tile.group is None else plan.tile.group.size)


def _tiles_of_panel(plan: TiledContraction) -> Dim:
    """Return the number of tiles that read the same panel, one after the other."""
    tiles = D.product([axis.extent for axis in plan.loops.rows])
    axis = plan.tile.row_axis
    return tiles if axis is None else tiles * D.ceildiv(_rows_at_once(plan, axis), plan.tile.rows)


def _rows_at_once(plan: TiledContraction, axis: BlockAxis) -> Dim:
    """Return the rows that are computed with a panel before the next panel."""
    return plan.loops.order.row_block or axis.extent


def _column_bytes(plan: TiledContraction) -> int:
    size: int = prod(plan.roles.columns.access.shape) * element_bytes(plan.roles.columns.access.element_type)
    return size


def _resident_bytes(plan: TiledContraction) -> int:
    """Return the bytes of a column operand up to which prefetches cost more than they save.

    Weights that fit into the L2 cache are not there, as all other weights of the model were read since the last call.
    Blocks of rows find them there from the second block on.
    """
    l1_bytes = plan.machine.l1_bytes
    return PREFETCHED_IN_BLOCKS * l1_bytes if plan.loops.order.row_block else l1_bytes


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
