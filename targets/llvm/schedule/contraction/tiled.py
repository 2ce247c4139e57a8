"""Contractions as schedules of primitives: the loops of a plan around a register tile."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.contraction.analysis import Contraction
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.contraction.forms import row_major
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tile_instruction import FMA
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.copies import copy_operands, has_smaller_panel, pack_panel
from mirlo.targets.llvm.schedule.contraction.groups import DotGroup, multiplies_words
from mirlo.targets.llvm.schedule.contraction.loop_roles import (
    ContractionLoops,
    loops_of_contraction,
    take_groups,
    take_row_loop,
)
from mirlo.targets.llvm.schedule.contraction.orders import BOTH, PANELS, ROWS, LoopOrder
from mirlo.targets.llvm.schedule.contraction.stream import next_panel, prefetch_bytes
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import (
    ContractionRoles,
    RegisterTile,
    TiledContraction,
    row_tiles,
)
from mirlo.targets.llvm.schedule.cost import (
    INTRINSIC_OPERATIONS,
    LONG_INTRINSICS,
    MAX_UNROLLED_IN_REST,
    MIN_DEEP,
    MIN_DEPTH_TO_HOLD,
    MIN_K_TO_PREFETCH,
    PANELS_TO_SHARE,
    REST_ROWS,
    REST_ROWS_IN_LOOPS,
    ROLLED_FROM,
    ROLLED_FROM_IF_DEEP,
    UNROLLED_STEPS,
)
from mirlo.targets.llvm.tile_instructions import GROUPS, WORDS


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
    roles: ContractionLoops


@dataclass(frozen=True)
class BlockOfRows:
    """What a contraction computes that is a part of other loops: a block of rows, inside of the loops over heads."""

    is_counted: bool = True
    """Whether these loops know the number of rows, and where they begin; else it is all rows of a head."""
    is_one: bool = False
    """Whether it is one row, which tiles have no loop over."""
    columns: int = 0
    """The columns of a part, of which a loop outside of panels has one after the other; 0 for all of them."""
    depth: int = 0
    """The products of a part, of which the outermost loop has one after the other; 0 for all of them."""

    def choices(self, whole: TiledContraction) -> TiledContraction:
        """Return the choices for this part of a contraction: the loops around it decide the order of its own."""
        roles, tile, loops = whole.roles, whole.tile, replace(whole.loops, order=LoopOrder())
        if self.columns:
            roles = replace(roles, lane_axis=replace(roles.lane_axis, extent=self.columns))
        if self.depth:
            (axis,) = loops.reduce
            order = LoopOrder(depth_axis=axis, depth_block=self.depth)
            loops = replace(loops, reduce=(replace(axis, extent=self.depth),), order=order)
        if self.is_one:
            tile = replace(tile, row_axis=None, rows=1)
        return replace(whole, roles=roles, tile=tile, loops=loops)


def arrange_contraction(s: Schedule, plan: TiledContraction, part: BlockOfRows | None = None) -> TiledLoops:
    """Arrange the loops of a contraction around a register tile; of a block of rows, in each of its panels."""
    block, *after = s.blocks()
    plan = plan if part is None else part.choices(plan)
    order, tile_rows = plan.loops.order, plan.tile.rows
    loops = loops_of_contraction(s, block, plan.roles)
    copies = copy_operands(s, block, loops, plan)
    blocks: list[str] = []
    if part is not None and part.columns:
        block_of_columns, lane = s.split(loops.lane, (None, part.columns))
        loops = replace(loops, lane=lane)
        blocks.append(block_of_columns)
    s.reorder(*blocks, *loops.units, *loops.panels, loops.lane, *loops.rows, *loops.over)
    over, depth = take_groups(s, block, loops, plan.tile.group)
    over = fuse_contiguous(s, block, over)
    row = take_row_loop(s, block, loops, plan)
    lanes = 1 if plan.roles.lane_axis.extent == 1 else plan.tile.lanes
    factors = (None, plan.tile.columns) if plan.tile.dot else (None, plan.tile.vectors, lanes)
    panel, *columns = s.split(loops.lane, factors, "peel" if has_panel_apart(plan, part) else "mask")
    if plan.tile.dot or plan.tile.has_partial_sums:
        over, depth = lanes_along_sum(s, over, plan.tile)
    if order.depth_axis is not None:
        block_of_k, over[-1] = s.split(over[-1], (None, order.depth_block))
        blocks.append(block_of_k)
    is_counted = part is not None and part.is_counted and plan.tile.row_axis is not None
    tiles, row = split_rows(s, row, plan, blocks, is_counted)
    outer, inner = [*loops.panels, panel], [*loops.rows, tiles]
    if part is not None:
        outer, inner = [*loops.panels, *loops.rows], [panel, tiles]
    elif order.rows_outside:
        outer, inner = (loops.rows, [*outer, tiles]) if plan.has_own_rows else (inner, outer)
    s.reorder(*blocks, *outer, *inner, *over, row, *columns, *depth)
    for tap in over[len(over) - (1 if plan.tile.is_short else len(plan.loops.unrolled)) :]:
        s.unroll(tap)
    if plan.packing.packs_panels:
        copies += pack_panel(s, block, loops.column_operand, panel, plan)
    for other in after:
        s.reverse_compute_inline(other)
    parts = [tiles]
    if plan.roles.rows.edge is not None:  # tiles at edges leave products out
        sizes = row_tiles(plan.roles.rows, plan.tile)
        parts = s.partition(tiles, [rows.start // tile_rows for rows, _ in sizes[1:]])
    for each in parts:
        placed = s.blocks(each)[0]
        place_tile(s, placed, len(over), 1 + len(columns) + len(depth), plan)
        prefetch_operands(s, placed, plan, loops, is_part=part is not None)
    for copy in copies:
        s.convert(copy)
    inner = [*inner[:-1], *parts] if inner[-1:] == [tiles] else inner
    return TiledLoops(blocks, outer, inner, panel, tiles, over, loops)


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


def instruction_of(roles: ContractionRoles, group: DotGroup | None, machine: Machine) -> str:
    """Return the row of the table of instructions that computes tiles, of groups or of single products."""
    product = roles.contraction.product
    words = WORDS if multiplies_words(product, machine) else ()
    rows = words if group is None else GROUPS[group.instruction]
    factors = roles.rows.factor, roles.columns.factor
    return next((each.name for each in rows if each.takes(*factors, product)), FMA.name)


def place_tile(s: Schedule, block: str, depth: int, inner: int, plan: TiledContraction) -> None:
    """Make the innermost loops of a block a register tile, with as many loops of the reduction outside of its rows."""
    chain, tile = s.loops(block), plan.tile
    over, inside = chain[-inner - depth : -inner], chain[-inner:]
    most_steps = plan.machine.unrolled_products // (tile.rows * tile.vectors)
    is_single = tile.group is None and not tile.dot and not plan.loops.unrolled
    steps = UNROLLED_STEPS if is_single and tile.rows > 1 and most_steps >= UNROLLED_STEPS else 1
    instruction = instruction_of(plan.roles, tile.group, plan.machine)
    epilogue = unrolled_epilogue(plan.roles.contraction, plan.loops.depth)
    s.register_tile(block, inside, over, instruction, plan.machine.masked, steps, epilogue, tile.has_partial_sums)


def prefetch_operands(s: Schedule, block: str, plan: TiledContraction, loops: ContractionLoops, is_part: bool) -> None:
    """Prefetch columns and operands of the epilogue that come from beyond the caches.

    As a part of other loops, a contraction does not read one panel after the other.
    """
    columns = s.reads(block)[loops.column_operand]
    if not is_part and loops.panels and next_panel(plan) is not None:
        s.prefetch(block, columns, loop=loops.panels[-1])
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


def share(s: Schedule, outer: list[str], inner: list[str], chosen: int | None = None) -> None:
    """Divide the outer loops among threads, or all of them where there are few iterations."""
    counts = [prod(D.estimate_dim(s.extent(each)) for each in loops) for loops in (outer, inner)]
    if chosen is None:
        chosen = BOTH if counts[0] < min(PANELS_TO_SHARE, counts[1]) else PANELS
    for loop in {PANELS: outer, ROWS: inner, BOTH: [*outer, *inner]}[chosen]:
        s.parallel(loop)
