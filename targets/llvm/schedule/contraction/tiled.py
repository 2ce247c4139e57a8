"""The schedule of contractions by primitives: the loops of a plan around a register tile, and copies of operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mirlo.dialects.core import dims as D
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis
from mirlo.passes.schedule.primitives.nests import arrange_copy, fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.orders import BOTH, PANELS, ROWS, LoopOrder
from mirlo.targets.llvm.schedule.contraction.tile_leaf import prefetch_operands, tile_choices
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import (
    ContractionRoles,
    RegisterTile,
    TiledContraction,
    TiledLoops,
)
from mirlo.targets.llvm.schedule.cost import COPY_VECTORS


def arrange_contraction(s: Schedule, names: Sequence[str], plan: TiledContraction) -> TiledLoops:
    """Arrange the loops of a contraction and its epilogue around a register tile, and divide them among threads.

    Of a part of other loops, which threads divide, those of a block of rows are in each of its panels.
    """
    block, *after = names
    roles, tile, order = plan.roles, plan.tile, plan.loops.order
    loops = loops_of_contraction(s, block, roles)
    copies = copy_operands(s, block, plan)
    *panels, lane = loops.of(plan.column_axes)  # a copy of a panel has columns of one dim
    s.reorder(*loops.units, *panels, lane, *loops.of(plan.row_axes), *loops.over)
    rows = loops.fuse(s, plan.loops.rows)
    (row,) = loops.fuse(s, tile.row_axes) or [s.add_unit_loop(block)]
    over, depth = split_sum(s, block, loops.over, tile)
    blocks: list[str] = []
    if plan.part is not None and plan.part.columns:
        *blocks, lane = s.split(lane, (None, plan.part.columns))
    if order.depth_axis is not None:
        block_of_k, over[-1] = s.split(over[-1], (None, order.depth_block))
        blocks.append(block_of_k)
    panel, *vectors = s.split(lane, (None, *plan.vectors), tail=plan.tail_of_panels)
    *block_of_rows, tiles, row = s.split(row, (None, *plan.rows), **plan.tail_of_rows)
    blocks += block_of_rows
    outer, inner = around_tiles(plan, [*panels, panel], [*rows, tiles])
    s.reorder(*loops.units, *blocks, *outer, *inner, *over, row, *vectors, *depth)
    for tap in over[len(over) - plan.unrolled_loops :]:
        s.unroll(tap)
    if plan.packing.packs_panels:
        copies += pack_panel(s, block, panel, plan)
    for other in after:
        s.reverse_compute_inline(other)
    whole = s.loops(block)
    parts = s.partition(tiles, plan.change_points)
    for each in parts:
        (placed,) = s.blocks(each)
        own = dict(zip(whole, s.loops(placed), strict=True))  # a part has the loops of the whole
        inside, reduced = ([own[loop] for loop in same] for same in ([row, *vectors, *depth], over))
        s.register_tile(placed, inside, reduced, **tile_choices(plan))
        prefetch_operands(s, placed, plan, panels)
    for copy in copies:
        s.convert(copy)
    if order.row_block:
        s.parallel(blocks[-1])
    elif plan.part is None:
        share(s, outer, [part for loop in inner for part in (parts if loop == tiles else [loop])], order)
    return TiledLoops(blocks, outer, panel, tiles, over, {loop: axis for axis, loop in loops.of_axis.items()})


def split_sum(s: Schedule, block: str, over: list[str], tile: RegisterTile) -> tuple[list[str], list[str]]:
    """Split the reduction; return its loops around the rows of a tile, and those inside of one instruction.

    These are over the elements of a group, or over the lanes of a vector along K. A tile whose lanes are columns has a
    loop over the lanes of these vectors, with the products of each in its order.
    """
    depth: list[str] = []
    if tile.group is not None:
        step, *depth = s.split(over[-1], (None, tile.group.size))
        over = [*over[:-1], step]
    over = fuse_contiguous(s, block, over)
    if tile.dot or tile.has_partial_sums:
        step, lane = s.split(over[-1], (None, tile.lanes))
        return ([*over[:-1], step], [lane]) if tile.dot else ([*over[:-1], lane, step], [])
    return over, depth


def around_tiles(plan: TiledContraction, columns: list[str], rows: list[str]) -> tuple[list[str], list[str]]:
    """Return the loops around tiles, those that threads divide first, and the others; each ends with its own tiles."""
    if plan.part is not None:  # the loops over heads are outside of a block of rows
        return [*columns[:-1], *rows[:-1]], [columns[-1], rows[-1]]
    if not plan.loops.order.rows_outside:
        return columns, rows
    return (rows[:-1], [*columns, rows[-1]]) if plan.has_own_rows else (rows, columns)


@dataclass(frozen=True)
class ContractionLoops:
    """The loops of a contraction, one for each axis; axes of the block that are divided into parts are split."""

    of_axis: dict[int, str]
    """The loop of each axis, by its id; that of fused axes by the id of the innermost one, which stands for all."""
    units: list[str]
    """Those of one iteration."""
    over: list[str]
    """Those of the reduction, in the order of the rows in memory."""

    def of(self, axes: Sequence[BlockAxis]) -> list[str]:
        """Return the loops that axes consist of, outermost first."""
        return [self.of_axis[part] for axis in axes for part in axis.parts]

    def fuse(self, s: Schedule, axes: Sequence[BlockAxis]) -> list[str]:
        """Fuse the loops that each axis consists of; return one for each."""
        for axis in axes:
            if len(parts := self.of([axis])) > 1:
                self.of_axis[axis.id] = s.fuse(*parts)
        return [self.of_axis[axis.id] for axis in axes]


def loops_of_contraction(s: Schedule, block: str, roles: ContractionRoles) -> ContractionLoops:
    """Return the loops of a contraction; those over columns that are stored as panels are split."""
    loops: dict[int, str] = {}
    for loop, parts in zip(s.loops(block), roles.contraction.parts, strict=True):
        split = s.split(loop, (None, *(part.extent for part in parts[1:]))) if len(parts) > 1 else [loop]
        loops |= {part.id: each for part, each in zip(parts, split, strict=False)}
    if roles.lane_axis.id not in loops:  # of a scalar
        loops[roles.lane_axis.id] = s.add_unit_loop(block)
    units = [loop for loop in s.loops(block) if loop not in loops.values()]
    over = [loops[axis.id] for axis in roles.order]
    if not over:
        over = [loop for loop in units if s.kinds(block)[loop] == "reduce"][-1:]
        units = [loop for loop in units if loop not in over]
    return ContractionLoops(loops, units, over)


def copy_operands(s: Schedule, block: str, plan: TiledContraction) -> list[str]:
    """Copy operands with elements beyond edges that the loops do not skip; return copies that are converted."""
    converted: list[str] = []
    for side in plan.copied_sides:
        position = side.factor.position
        buffer = s.reads(block)[position]
        copy = s.pad(block, buffer, side.padded_dims) if side.padded_dims else s.cache_read(block, position)
        arrange_copy(s, copy, plan.tile.lanes * plan.tile.group_size)
        converted += [copy] if side.is_converted else []
    return converted


def pack_panel(s: Schedule, block: str, panel: str, plan: TiledContraction) -> list[str]:
    """Pack each panel of columns before the tiles that read it: rows of columns, one for each k-step or group.

    Return the copy if it is converted.
    """
    tile, columns, lane_axis = plan.tile, plan.roles.columns, plan.roles.lane_axis
    copy = s.cache_read(block, columns.factor.position)
    s.compute_at(copy, panel)
    loops = [loop for loop in s.loops(copy) if loop not in s.loops(block)]
    if tile.group is not None and tile.group.is_stored:  # as the panel is: it is extended, element by element
        *_, last = fuse_contiguous(s, copy, [loop for loop in loops if s.extent(loop) != 1])
        _, vectors, lane = s.split(last, (None, COPY_VECTORS, tile.lanes * tile.group.size))
        s.unroll(vectors)
        s.vectorize(lane)
        return [copy]
    dims = columns.access.dims
    at = next((dim for dim, index in enumerate(dims) if index.stride(lane_axis) == 1), None)
    if at is None:
        raise ScheduleError("a copy of columns has no loop over them: windows overlap, and skip elements")
    along = [dim for dim in range(len(dims)) if dim != at]
    if tile.group is not None:  # the dim of the groups is the last one
        along.sort(key=lambda dim: dims[dim].stride(plan.roles.order[-1]) != 0)
    s.pack(s.reads(block)[columns.factor.position], [*along, at], [(along[-1], tile.group.size)] if tile.group else ())
    vectors, lane = s.split(loops[at], (None, tile.lanes))
    steps, inner = [loops[dim] for dim in along], list[str]()
    if plan.transposed_squares:
        is_masked = plan.machine.masked and tile.group is None and isinstance(s.extent(steps[-1]), int)
        last, *inner = s.split(steps.pop(), (None, *plan.transposed_squares), "mask" if is_masked else "peel")
        steps.append(last)
    is_unrolled = tile.group is not None or plan.has_contiguous_columns
    s.reorder(*([*steps, vectors] if is_unrolled else [vectors, *steps]), *inner[:1], lane, *inner[1:])
    s.vectorize(lane)
    if is_unrolled:
        s.unroll(vectors)
    if inner:
        s.transpose(inner[0])
    elif steps and plan.has_smaller_panel:  # whole panels without masks
        s.unswitch(steps[0])
    return [copy] if plan.converts_panels else []


def share(s: Schedule, outer: list[str], inner: list[str], order: LoopOrder) -> None:
    """Divide the outer loops among threads, the inner ones, or all of them."""
    counts = [prod(D.estimate_dim(s.extent(each)) for each in loops) for loops in (outer, inner)]
    for loop in {PANELS: outer, ROWS: inner, BOTH: [*outer, *inner]}[order.shared_loops(*counts)]:
        s.parallel(loop)
