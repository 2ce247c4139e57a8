"""Contractions as schedules of primitives: the loops of a plan around a register tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rule_choices import ChoiceValues
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tile_instruction import FMA
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.groups import multiplies_words
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.orders import BOTH, PANELS, ROWS
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.stream import next_panel, prefetch_bytes
from mirlo.targets.llvm.schedule.cost import (
    COPY_VECTORS,
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
    group: BlockGroup[Machine], plan: RegisterTilePlan, choices: ChoiceValues, facts: ScheduleFacts
) -> PrimitivesPlan | Decline:
    """Schedule a contraction by primitives."""
    s = schedule_of(group)
    try:
        contraction_by_primitives(s, plan)
    except ScheduleError as error:
        return decline("its loops make no register tile", found=str(error))
    return PrimitivesPlan(group, s, "contraction", choices, facts)


def contraction_by_primitives(s: Schedule, plan: RegisterTilePlan) -> None:
    """Arrange the loops of a contraction around a register tile, and divide them among threads."""
    loops = arrange_contraction(s, plan)
    if plan.order_of_loops.row_block:
        s.parallel(loops.blocks[-1])
    else:
        share(s, loops.outer, loops.inner, plan.order_of_loops.share)


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
    columns: int = 0
    """The columns of a part, of which a loop outside of panels has one after the other; 0 for all of them."""


def arrange_contraction(s: Schedule, plan: RegisterTilePlan, part: BlockOfRows | None = None) -> TiledLoops:
    """Arrange the loops of a contraction around a register tile; of a block of rows, in each of its panels."""
    block, *after = s.blocks()
    order, tile_rows = plan.order_of_loops, plan.tile_rows
    loops = loops_of_contraction(s, block, plan)
    copies = copy_operands(s, block, loops, plan)
    blocks: list[str] = []
    if part is not None and part.columns:
        block_of_columns, lane = s.split(loops.lane, (None, part.columns))
        loops = replace(loops, lane=lane)
        blocks.append(block_of_columns)
    s.reorder(*blocks, *loops.units, *loops.panels, loops.lane, *loops.rows, *loops.over)
    over, depth = take_groups(s, block, loops, plan)
    over = fuse_contiguous(s, block, over)
    row = take_row_loop(s, block, loops, plan)
    lanes = 1 if plan.lane_axis.extent == 1 else plan.lanes
    factors = (None, plan.tile_columns) if plan.dot else (None, plan.tile_vectors, lanes)
    panel, *columns = s.split(loops.lane, factors, "peel" if has_panel_apart(plan, part) else "mask")
    if plan.dot or plan.has_partial_sums:
        over, depth = lanes_along_sum(s, over, plan)
    if order.depth_axis is not None:
        block_of_k, over[-1] = s.split(over[-1], (None, order.depth_block))
        blocks.append(block_of_k)
    is_counted = part is not None and part.is_counted and plan.row_axis is not None
    tiles, row = split_rows(s, row, plan, blocks, is_counted)
    outer, inner = [*loops.panels, panel], [*loops.rows, tiles]
    if part is not None:
        outer, inner = [*loops.panels, *loops.rows], [panel, tiles]
    elif order.rows_outside:
        outer, inner = (loops.rows, [*outer, tiles]) if plan.has_own_rows else (inner, outer)
    s.reorder(*blocks, *outer, *inner, *over, row, *columns, *depth)
    for tap in over[len(over) - (1 if plan.is_short else len(plan.unrolled)) :]:
        s.unroll(tap)
    if plan.packs_panels:
        copies += pack_panel(s, block, loops.column_operand, panel, plan)
    for other in after:
        s.reverse_compute_inline(other)
    parts = [tiles]
    if plan.rows.edge is not None:  # tiles at edges leave products out
        parts = s.partition(tiles, [rows.start // tile_rows for rows, _ in plan.row_tiles[1:]])
    for each in parts:
        place_tile(s, s.blocks(each)[0], len(over), 1 + len(columns) + len(depth), plan, loops)
    for copy in copies:
        s.convert(copy)
    inner = [*inner[:-1], *parts] if inner[-1:] == [tiles] else inner
    return TiledLoops(blocks, outer, inner, panel, tiles, over, loops)


def lanes_along_sum(s: Schedule, over: list[str], plan: RegisterTilePlan) -> tuple[list[str], list[str]]:
    """Split the innermost loop of the reduction into vectors; return the loops around the tile, and its lanes.

    A tile whose lanes are columns has a loop over the lanes of these vectors, with the products of each in its order.
    """
    *others, last = over
    step, lane = s.split(last, (None, plan.lanes))
    return ([*others, step], [lane]) if plan.dot else ([*others, lane, step], [])


def has_panel_apart(plan: RegisterTilePlan, part: BlockOfRows | None) -> bool:
    """Return whether the last panel, which is smaller, has loops of its own.

    Packed panels do not: one copy serves all of them. Transposes of groups need to know their columns.
    """
    is_dynamic = not isinstance(plan.lane_axis.extent, int)
    if is_interleaved(plan):
        return is_dynamic or plan.lane_axis.extent % plan.tile_columns != 0
    return not plan.packs_panels and (is_dynamic or part is not None and has_smaller_panel(plan))


def has_smaller_panel(plan: RegisterTilePlan) -> bool:
    """Return whether the last of several panels may be smaller than others."""
    columns = plan.lane_axis.extent
    is_single = isinstance(columns, int) and columns < plan.tile_columns
    return not is_single and columns % plan.tile_columns != 0


def is_interleaved(plan: RegisterTilePlan) -> bool:
    """Return whether the kernel packs panels of groups of elements along K."""
    return plan.packs_panels and plan.group is not None and not plan.group.is_stored


def split_rows(s: Schedule, row: str, plan: RegisterTilePlan, blocks: list[str], any_number: bool = False) -> list[str]:
    """Split the loop over rows into tiles, in blocks where the order of the loops has them; add those to `blocks`.

    Tiles of `any_number` of rows, and of a number that only the run time knows, are shifted.
    """
    tile_rows, row_block = plan.tile_rows, plan.order_of_loops.row_block
    if row_block:
        block_of_rows, *inner = s.split(row, (None, row_block // tile_rows, tile_rows))
        blocks.append(block_of_rows)
        return inner
    smaller = REST_ROWS_IN_LOOPS if len(plan.contraction.spatial) > 2 else REST_ROWS
    any_number |= plan.dynamic_rows
    rests = [rows for rows in smaller if rows < tile_rows] if any_number else []
    return s.split(row, (None, tile_rows), tail="shift" if any_number else "mask", rests=rests)


def take_groups(
    s: Schedule, block: str, loops: ContractionLoops, plan: RegisterTilePlan
) -> tuple[list[str], list[str]]:
    """Return the loops of the reduction, and that over the elements of a group that one instruction multiplies."""
    if plan.group is None:
        return loops.over, []
    if not plan.group.is_stored:
        *over, inner = loops.over
        return [*over, *s.split(inner, (None, plan.group.size))][:-1], s.loops(block)[-1:]
    *over, element = loops.over
    if s.extent(element) != plan.group.size:
        raise ScheduleError(f"groups of K are not the innermost loop of the columns, of {s.extent(element)} elements")
    over = over or [loop for loop in loops.units if s.kinds(block)[loop] == "reduce"][-1:]
    if not over:
        unit, element = s.split(element, (1, plan.group.size))
        over = [unit]
    return over, [element]


def instruction_of(plan: RegisterTilePlan) -> str:
    """Return the row of the table of instructions that computes the tiles of a plan."""
    product = plan.contraction.product
    words = WORDS if multiplies_words(product, plan.machine) else ()
    rows = words if plan.group is None else GROUPS[plan.group.instruction]
    factors = plan.rows.factor, plan.columns.factor
    return next((each.name for each in rows if each.takes(*factors, product)), FMA.name)


def place_tile(
    s: Schedule, block: str, depth: int, inner: int, plan: RegisterTilePlan, loops: ContractionLoops
) -> None:
    """Make the innermost loops of a block a register tile, with as many loops of the reduction outside of its rows."""
    chain = s.loops(block)
    over, tile = chain[-inner - depth : -inner], chain[-inner:]
    most_steps = plan.machine.unrolled_products // (plan.tile_rows * plan.tile_vectors)
    is_unrolled = plan.tile_rows > 1 and most_steps >= UNROLLED_STEPS and not plan.unrolled and plan.group is None
    is_unrolled &= not plan.dot
    instruction = instruction_of(plan)
    steps = UNROLLED_STEPS if is_unrolled else 1
    s.register_tile(
        block, tile, over, instruction, plan.machine.masked, steps, unrolled_epilogue(plan), plan.has_partial_sums
    )
    columns = s.reads(block)[loops.column_operand]
    if loops.panels and next_panel(plan) is not None:
        s.prefetch(block, columns, loop=loops.panels[-1])
    elif (ahead := prefetch_bytes(plan)) is not None:
        s.prefetch(block, columns, distance=ahead // element_bytes(plan.columns.access.element_type))
    for buffer in late_operands(s, plan):
        s.prefetch(block, buffer)


def take_row_loop(s: Schedule, block: str, loops: ContractionLoops, plan: RegisterTilePlan) -> str:
    """Take the loop over the rows of tiles out of those over rows, or over panels where rows have own columns.

    Loops are fused as far as the plan's are: where an epilogue needs the index of one of them, they are not.
    """
    if plan.row_axis is None:
        loops.rows[:] = fuse_contiguous(s, block, loops.rows)
        return s.add_unit_loop(block)
    row = _loop_of_rows(s, block, loops, plan)
    for group in (loops.rows, loops.panels):
        if row is None:
            group[:] = fuse_contiguous(s, block, group)
            row = _loop_of_rows(s, block, loops, plan)
    if row is None:
        raise ScheduleError(f"no loop over {plan.row_axis.extent} rows moves along the rows of a tile")
    (loops.rows if row in loops.rows else loops.panels).remove(row)
    loops.rows[:] = fuse_contiguous(s, block, loops.rows)
    return row


def _loop_of_rows(s: Schedule, block: str, loops: ContractionLoops, plan: RegisterTilePlan) -> str | None:
    """Return the innermost loop over rows, or else over panels, that moves along the rows of a tile."""
    axis, steps = plan.row_axis, s.steps(block)
    assert axis is not None
    for loop in (*reversed(loops.rows), *reversed(loops.panels)):
        if s.extent(loop) == axis.extent and steps[loop][loops.row_operand] == plan.rows.form.stride(axis):
            return loop
    return None


@dataclass(frozen=True)
class ContractionLoops:
    """The loops of a contraction by role, outermost first."""

    units: list[str]
    """Those of one iteration."""
    panels: list[str]
    """Those that the columns depend on, other than the columns of a panel."""
    lane: str
    """Over the columns of a panel."""
    rows: list[str]
    over: list[str]
    """Those of the reduction, in the order of the rows in memory."""
    row_operand: int
    column_operand: int


def loops_of_contraction(s: Schedule, block: str, plan: RegisterTilePlan) -> ContractionLoops:
    """Sort the loops of a contraction by role; loops over columns stored as panels are split."""
    own = s.loops(block)
    while divisors := s.divisors(block, uneven=True):  # n // 32, n % 32
        for loop, divisor in divisors.items():
            s.split(loop, (None, divisor))
    kinds = s.kinds(block)
    units = [loop for loop in kinds if s.extent(loop) == 1]
    others = [loop for loop in s.memory_order(block) if kinds[loop] == "spatial" and loop not in units]
    # Results of an epilogue may be in another order than those of the block.
    axis = plan.contraction.sources.get(plan.lane_axis.id)
    lane = own[axis] if axis is not None and own[axis] in others else others[-1] if others else s.add_unit_loop(block)
    others = [loop for loop in others if loop != lane]
    steps = s.steps(block)
    sides = (0, len(steps[lane]) - 1)  # one operand may be both factors
    moved = [sum(not is_zero(steps[loop][side]) for loop in others) for side in sides]
    along = [not is_zero(steps[lane][side]) for side in sides]
    w, x = sides if not along[1] or along[0] and moved[1] > moved[0] else sides[::-1]
    over = [loop for loop in kinds if kinds[loop] == "reduce" and loop not in units]
    if not over:
        over = [loop for loop in units if kinds[loop] == "reduce"][-1:]
        units = [loop for loop in units if loop not in over]
    over.sort(key=lambda loop: -abs(D.estimate_dim(0 if (step := steps[loop][x]) is None else step)))
    rows = [loop for loop in others if is_zero(steps[loop][w])]
    return ContractionLoops(units, [loop for loop in others if loop not in rows], lane, rows, over, x, w)


def is_zero(step: Dim | None) -> bool:
    """Return whether an access stays where it is along a loop; a step that only the run time knows moves it."""
    return isinstance(step, int) and step == 0


def late_operands(s: Schedule, plan: RegisterTilePlan) -> list[str]:
    """Return the buffers that the epilogue reads once, vector by vector, from beyond the L2 cache."""
    result: dict[str, None] = {}
    for stage, forms in zip(plan.contraction.stages, plan.reads, strict=True):
        for read, form in zip(stage.reads, forms, strict=True):
            if read is None or form is None or form.stride(plan.lane_axis) != 1:
                continue
            is_for_all_rows = plan.row_axis is not None and form.stride(plan.row_axis) == 0
            size = prod(map(D.estimate_dim, read.shape)) * element_bytes(read.element_type)
            depth = D.estimate_dim(plan.depth)
            if not is_for_all_rows and size > plan.machine.l2_bytes // 2 and depth >= MIN_K_TO_PREFETCH:
                result[s.buffer_of(read.value)] = None
    return list(result)


def copy_operands(s: Schedule, block: str, loops: ContractionLoops, plan: RegisterTilePlan) -> list[str]:
    """Copy operands with elements beyond edges that the loops do not skip; return copies that are converted."""
    converted: list[str] = []
    for operand, side in ((loops.row_operand, plan.rows), (loops.column_operand, plan.columns)):
        buffer = s.reads(block)[operand]
        if side.padded_shape is None and not side.is_converted:
            continue
        copy = s.cache_read(block, buffer) if side.padded_shape is None else s.pad(block, buffer, padded_dims(side))
        arrange_copy(s, copy, plan.lanes * (1 if plan.group is None else plan.group.size))
        converted += [copy] if side.is_converted else []
    return converted


def padded_dims(side: ContractionOperand) -> list[int]:
    """Return the dims along which the copy of an operand has a border."""
    assert side.padded_shape is not None
    pairs = enumerate(zip(side.padded_shape, side.access.shape, strict=True))
    return [dim for dim, (size, old) in pairs if size != old or side.padding[dim]]


def arrange_copy(s: Schedule, copy: str, lanes: int, shared: Sequence[str] = ()) -> None:
    """Arrange the loops of a copy with a border: the border apart, and vectors along memory.

    Threads divide the outermost loops: those that are `shared`, of several parts, or all of a part.
    """
    loops = [loop for loop in s.loops(copy) if s.extent(loop) != 1 and loop not in shared]
    if not loops:
        return
    edge = next((loop for loop in loops[:-1] if s.change_points(loop)), None)
    if edge is not None:
        around = loops[: loops.index(edge)]
        for loop in around if not shared else ():
            s.parallel(loop)
        for part in s.partition(edge, s.change_points(edge)):
            arrange_copy(s, s.blocks(part)[0], lanes, [*shared, *around])
        return
    *outer, last = fuse_contiguous(s, copy, loops)
    units = s.loops(copy)[s.loops(copy).index(last) + 1 :]
    if units:
        s.reorder(*units, last)
    vectors, lane = s.split(last, (None, lanes))
    s.vectorize(lane)
    for loop in (*outer, vectors) if not shared else ():
        s.parallel(loop)


def unrolled_epilogue(plan: RegisterTilePlan) -> tuple[int, ...]:
    """Return the numbers of accumulators up to which whole and smaller tiles unroll the epilogue; none if all do."""
    operations = count_operations([stage.block for stage in plan.contraction.stages], LONG_INTRINSICS)
    if operations == 0:
        return ()
    depth = D.estimate_dim(plan.depth)
    whole = ROLLED_FROM_IF_DEEP if depth >= MIN_DEEP else ROLLED_FROM
    may_hold = depth >= (MIN_DEEP if operations >= INTRINSIC_OPERATIONS else MIN_DEPTH_TO_HOLD)
    return whole // operations, (MAX_UNROLLED_IN_REST if may_hold else whole) // operations


def pack_panel(s: Schedule, block: str, operand: int, panel: str, plan: RegisterTilePlan) -> list[str]:
    """Pack each panel of columns before the tiles that read it: rows of columns, one for each k-step.

    Return the copy if it is converted.
    """
    step = s.steps(block)[s.loops(block)[-1]][operand]
    copy = s.cache_read(block, operand)
    s.compute_at(copy, panel)
    loops = [loop for loop in s.loops(copy) if loop not in s.loops(block)]
    if is_interleaved(plan):
        interleave_panel(s, block, operand, copy, loops, plan)
        return []
    if plan.group is not None:  # stored as the panel is: it is extended, element by element
        *_, last = fuse_contiguous(s, copy, [loop for loop in loops if s.extent(loop) != 1])
        _, vectors, lane = s.split(last, (None, COPY_VECTORS, plan.lanes * plan.group.size))
        s.unroll(vectors)
        s.vectorize(lane)
        return [copy]
    column = next((loop for loop in loops if s.strides(copy, loop)[0][0] == step and s.extent(loop) != 1), None)
    if column is None:
        raise ScheduleError("a copy of columns has no loop over them: windows overlap, and skip elements")
    depth = [loop for loop in loops if loop != column]
    s.pack(s.reads(block)[operand], [loops.index(loop) for loop in (*depth, column)])
    converted = [copy] if plan.columns.needs_cast(plan.contraction.product.accumulate_type) else []
    if step == 1:
        s.reorder(*depth, column)
        vectors, lane = s.split(column, (None, plan.lanes))
        s.vectorize(lane)
        s.unroll(vectors)
        if depth and has_smaller_panel(plan):  # whole panels without masks
            s.unswitch(depth[0])
        return converted
    vectors, lane = s.split(column, (None, plan.lanes))
    is_masked = plan.machine.masked and isinstance(s.extent(depth[-1]), int)
    steps, square = s.split(depth[-1], (None, plan.lanes), tail="mask" if is_masked else "peel")
    s.reorder(vectors, *depth[:-1], steps, square, lane)
    s.vectorize(lane)
    s.transpose(square)
    return converted


def interleave_panel(
    s: Schedule, block: str, operand: int, copy: str, loops: list[str], plan: RegisterTilePlan
) -> None:
    """Arrange the copy of a panel so that the elements of a column in a group of K are contiguous."""
    assert plan.group is not None
    size, steps = plan.group.size, s.steps(block)
    own, element = steps[s.loops(block)[-2]][operand], steps[s.loops(block)[-1]][operand]
    strides = {loop: s.strides(copy, loop)[0][0] for loop in loops if s.extent(loop) != 1}
    column = next((loop for loop, step in strides.items() if step == own), None)
    depth = next((loop for loop, step in strides.items() if step == element and loop != column), None)
    if column is None or depth is None:
        raise ScheduleError("a copy of columns has no loop over them, or none over elements of a group")
    others = [loop for loop in loops if loop not in (column, depth)]
    s.pack(s.reads(block)[operand], [loops.index(loop) for loop in (*others, depth, column)],
           [(loops.index(depth), size)])  # fmt: skip
    vectors, lane = s.split(column, (None, plan.lanes))
    if element == 1:
        squares, group, part = s.split(depth, (None, plan.lanes, size), tail="peel")
        s.reorder(*others, squares, vectors, group, lane, part)
        s.unroll(vectors)
        s.vectorize(lane)
        s.transpose(group)
        return
    groups, part = s.split(depth, (None, size), tail="peel")
    s.reorder(*others, groups, vectors, part, lane)
    s.unroll(vectors)
    s.vectorize(lane)
    s.transpose(part)


def share(s: Schedule, outer: list[str], inner: list[str], chosen: int | None = None) -> None:
    """Divide the outer loops among threads, or all of them where there are few iterations."""
    counts = [prod(D.estimate_dim(s.extent(each)) for each in loops) for loops in (outer, inner)]
    if chosen is None:
        chosen = BOTH if counts[0] < min(PANELS_TO_SHARE, counts[1]) else PANELS
    for loop in {PANELS: outer, ROWS: inner, BOTH: [*outer, *inner]}[chosen]:
        s.parallel(loop)
