"""Contractions as schedules of primitives: the loops of a plan around a register tile."""

from __future__ import annotations

from math import prod

from mirlo.dialects.core import dims as D
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.copies import copy_operands, has_smaller_panel, pack_panel
from mirlo.targets.llvm.schedule.contraction.loop_roles import (
    loops_of_contraction,
    take_groups,
)
from mirlo.targets.llvm.schedule.contraction.orders import BOTH, PANELS, ROWS
from mirlo.targets.llvm.schedule.contraction.tile_leaf import place_tile, prefetch_operands
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import (
    BlockOfRows,
    RegisterTile,
    TiledContraction,
    row_tiles,
)
from mirlo.targets.llvm.schedule.cost import (
    PANELS_TO_SHARE,
    REST_ROWS,
    REST_ROWS_IN_LOOPS,
)


@deciding
def plan_of_primitives(
    group: BlockGroup[Machine], plan: TiledContraction, choices: ChoiceValues, facts: ScheduleFacts
) -> PrimitivesPlan | Decline:
    """Schedule a contraction by primitives."""
    s = schedule_of(group)
    try:
        contraction_by_primitives(s, plan)
    except ScheduleError as error:
        return decline("its loops make no register tile", found=str(error))
    return PrimitivesPlan(group, s, "contraction", choices, facts)


def contraction_by_primitives(s: Schedule, plan: TiledContraction) -> None:
    """Arrange the loops of a contraction around a register tile, and divide them among threads."""
    loops = arrange_contraction(s, plan)
    if plan.loops.order.row_block:
        s.parallel(loops.blocks[-1])
    else:
        share(s, loops.outer, loops.inner, plan.loops.order.share)


@dataclass(frozen=True)
class TiledLoops:
    """The loops around the register tiles of a contraction, outermost first."""

    blocks: list[str]
    """Those over blocks of K and of rows."""
    outer: list[str]
    inner: list[str]
    panel: str
    tiles: str
    """Over tiles of rows."""
    over: list[str]
    """Those of the reduction in a tile."""


def arrange_contraction(s: Schedule, plan: TiledContraction, part: BlockOfRows | None = None) -> TiledLoops:
    """Arrange the loops of a contraction around a register tile; of a block of rows, in each of its panels."""
    block, *after = s.blocks()
    plan = plan if part is None else part.choices(plan)
    order, tile_rows = plan.loops.order, plan.tile.rows
    loops = loops_of_contraction(s, block, plan.roles)
    copies = copy_operands(s, block, plan)
    columns, lane_axis, tile_row = plan.loops.columns, plan.roles.lane_axis, plan.tile.row_axis
    spatial = (*columns, lane_axis, *plan.loops.rows, *([] if tile_row is None else [tile_row]))
    s.reorder(*loops.units, *loops.of(spatial), *loops.over)
    panels, rows = loops.fuse(s, columns), loops.fuse(s, plan.loops.rows)
    (lane,) = loops.fuse(s, [lane_axis]) or [s.add_unit_loop(block)]
    (row,) = [s.add_unit_loop(block)] if tile_row is None else loops.fuse(s, [tile_row])
    blocks: list[str] = []
    if part is not None and part.columns:
        block_of_columns, lane = s.split(lane, (None, part.columns))
        blocks.append(block_of_columns)
    over, depth = take_groups(s, block, loops, plan.tile.group)
    over = fuse_contiguous(s, block, over)
    lanes = 1 if lane_axis.extent == 1 else plan.tile.lanes
    factors = (None, plan.tile.columns) if plan.tile.dot else (None, plan.tile.vectors, lanes)
    panel, *vectors = s.split(lane, factors, "peel" if has_panel_apart(plan, part) else "mask")
    if plan.tile.dot or plan.tile.has_partial_sums:
        over, depth = lanes_along_sum(s, over, plan.tile)
    if order.depth_axis is not None:
        block_of_k, over[-1] = s.split(over[-1], (None, order.depth_block))
        blocks.append(block_of_k)
    is_counted = part is not None and part.is_counted and plan.tile.row_axis is not None
    tiles, row = split_rows(s, row, plan, blocks, is_counted)
    outer, inner = [*panels, panel], [*rows, tiles]
    if part is not None:
        outer, inner = [*panels, *rows], [panel, tiles]
    elif order.rows_outside:
        outer, inner = (rows, [*outer, tiles]) if plan.has_own_rows else (inner, outer)
    s.reorder(*blocks, *outer, *inner, *over, row, *vectors, *depth)
    for tap in over[len(over) - (1 if plan.tile.is_short else len(plan.loops.unrolled)) :]:
        s.unroll(tap)
    if plan.packing.packs_panels:
        copies += pack_panel(s, block, panel, plan)
    for other in after:
        s.reverse_compute_inline(other)
    parts = [tiles]
    if plan.roles.rows.edge is not None:  # tiles at edges leave products out
        sizes = row_tiles(plan.roles.rows, plan.tile)
        parts = s.partition(tiles, [rows.start // tile_rows for rows, _ in sizes[1:]])
    for each in parts:
        placed = s.blocks(each)[0]
        place_tile(s, placed, len(over), 1 + len(vectors) + len(depth), plan)
        prefetch_operands(s, placed, plan, panels, is_part=part is not None)
    for copy in copies:
        s.convert(copy)
    inner = [*inner[:-1], *parts] if inner[-1:] == [tiles] else inner
    return TiledLoops(blocks, outer, inner, panel, tiles, over)


def lanes_along_sum(s: Schedule, over: list[str], tile: RegisterTile) -> tuple[list[str], list[str]]:
    """Split the innermost loop of the reduction into vectors; return the loops around the tile, and its lanes.

    A tile whose lanes are columns has a loop over the lanes of these vectors, with the products of each in its order.
    """
    *others, last = over
    step, lane = s.split(last, (None, tile.lanes))
    return ([*others, step], [lane]) if tile.dot else ([*others, lane, step], [])


def has_panel_apart(plan: TiledContraction, part: BlockOfRows | None) -> bool:
    """Return whether the last panel, which is smaller, has loops of its own.

    Packed panels do not: one copy serves all of them. Transposes of groups need to know their columns.
    """
    is_dynamic = not isinstance(plan.roles.lane_axis.extent, int)
    if plan.is_interleaved:
        return is_dynamic or plan.roles.lane_axis.extent % plan.tile.columns != 0
    is_apart = is_dynamic or part is not None and has_smaller_panel(plan.roles.lane_axis, plan.tile)
    return is_apart and not plan.packing.packs_panels


def split_rows(s: Schedule, row: str, plan: TiledContraction, blocks: list[str], any_number: bool = False) -> list[str]:
    """Split the loop over rows into tiles, in blocks where the order of the loops has them; add those to `blocks`.

    Tiles of `any_number` of rows, and of a number that only the run time knows, are shifted.
    """
    tile_rows, row_block = plan.tile.rows, plan.loops.order.row_block
    if row_block:
        block_of_rows, *inner = s.split(row, (None, row_block // tile_rows, tile_rows))
        blocks.append(block_of_rows)
        return inner
    smaller = REST_ROWS_IN_LOOPS if len(plan.roles.contraction.spatial) > 2 else REST_ROWS
    any_number |= plan.tile.has_dynamic_rows
    rests = [rows for rows in smaller if rows < tile_rows] if any_number else []
    return s.split(row, (None, tile_rows), tail="shift" if any_number else "mask", rests=rests)


def share(s: Schedule, outer: list[str], inner: list[str], chosen: int | None = None) -> None:
    """Divide the outer loops among threads, or all of them where there are few iterations."""
    counts = [prod(D.estimate_dim(s.extent(each)) for each in loops) for loops in (outer, inner)]
    if chosen is None:
        chosen = BOTH if counts[0] < min(PANELS_TO_SHARE, counts[1]) else PANELS
    for loop in {PANELS: outer, ROWS: inner, BOTH: [*outer, *inner]}[chosen]:
        s.parallel(loop)
