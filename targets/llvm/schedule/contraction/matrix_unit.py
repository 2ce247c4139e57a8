"""The schedule of contractions on a matrix unit (AMX) by primitives."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import arrange_copy, fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.matrix_unit_choices import (
    LoopExtents,
    RowTiles,
    choose_unit_tiles,
    instruction_for,
    panel_columns,
)
from mirlo.targets.llvm.schedule.contraction.orders import LoopOrder
from mirlo.targets.llvm.schedule.contraction.tiled import loops_of_contraction, share
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction


@deciding
def plan_on_matrix_unit(group: BlockGroup[Machine], plan: TiledContraction) -> PrimitivesPlan | Decline:
    """Schedule a contraction on the matrix unit."""
    instruction = instruction_for(plan)
    if isinstance(instruction, Decline):
        return instruction
    s = schedule_of(group)
    try:
        tile = contraction_on_matrix_unit(s, plan, instruction)
    except ScheduleError as error:
        return decline("its loops make no register tile", found=str(error))
    if isinstance(tile, Decline):
        return tile
    columns = panel_columns(plan.roles.lane_axis, instruction)
    facts: ScheduleFacts = {"instruction": instruction.name, "tile": [tile.tile, columns]}
    return PrimitivesPlan(group, s, "contraction", {}, facts)


def contraction_on_matrix_unit(s: Schedule, plan: TiledContraction, instruction: TileInstruction) -> RowTiles | Decline:
    """Arrange the loops of a contraction around tiles of the matrix unit; return their rows."""
    assert instruction.shape is not None
    block, *after = s.blocks()
    loops = fuse_loops(s, block, plan, instruction)
    if isinstance(loops, Decline):
        return loops
    _, lanes, depth = instruction.shape
    if s.extent(loops.step) % (depth // instruction.group):
        return decline("K is no multiple of what an instruction multiplies", groups=s.extent(loops.step))
    step, groups = s.split(loops.step, (None, depth // instruction.group))
    vector, lane = s.split(loops.lane, (None, lanes))
    chosen = choose_unit_tiles(plan, instruction, loops.extents(s, step))
    tiles, row = s.split(loops.row, (None, chosen.rows.tile), **chosen.tail)
    rows, lines, blocks = list(loops.rows), list[str](), list[str]()
    if chosen.has_lines:
        rows[-1], line = s.split(rows[-1], (None, 2))
        lines.append(line)
    outer, inner = chosen.around(loops.panels, rows, tiles)
    if chosen.block_steps:
        block_of_k, step = s.split(step, (None, chosen.block_steps))
        blocks.append(block_of_k)
    tile = (*lines, row, vector, lane, groups, loops.element)
    s.reorder(*outer, *blocks, *inner, *loops.over, step, *tile)
    for other in after:
        s.reverse_compute_inline(other)
    s.register_tile(block, tile, (*loops.over, step), instruction.name)
    if loops.panels and chosen.prefetches_columns:
        s.prefetch(block, s.reads(block)[plan.roles.columns.factor.position], loop=loops.panels[-1])
    share(s, outer, inner, LoopOrder())
    return chosen.rows


@dataclass(frozen=True)
class UnitLoops:
    """The loops of a contraction that tiles of a matrix unit are made of, fused where that needs no divisions."""

    columns: int
    """Columns of the result."""
    panels: list[str]
    lane: str
    """Over the columns of a panel."""
    batches: list[str]
    """Over a dynamic number of rows, outside of the others."""
    rows: list[str]
    """Over rows around those of a tile, `batches` included."""
    row: str
    over: list[str]
    """Of the reduction, around k-steps."""
    step: str
    """Over groups along K."""
    element: str
    """Over the elements of a group."""

    def extents(self, s: Schedule, step: str) -> LoopExtents:
        """Return the iterations of the loops, with those of a loop over k-steps."""
        known = (s.extent(loop) for loop in self.rows[len(self.batches) :])
        row, steps = D.static_dim(s.extent(self.row)), D.static_dim(s.extent(step))
        return LoopExtents(self.columns, row, tuple(map(D.static_dim, known)), len(self.batches), steps, len(self.over))


def fuse_loops(s: Schedule, block: str, plan: TiledContraction, instruction: TileInstruction) -> UnitLoops | Decline:
    """Fuse the loops of a contraction whose columns are stored as panels; pad what it reads beyond edges."""
    assert instruction.shape is not None
    _, lanes, _ = instruction.shape
    spatial = [loop for loop in s.memory_order(block) if s.kinds(block)[loop] == "spatial"]
    columns = D.static_dim(s.extent(spatial[-1]))
    loops = loops_of_contraction(s, block, plan.roles)
    *panels, lane = loops.of(plan.column_axes)
    rows = [loop for loop in s.memory_order(block) if loop in loops.of(plan.row_axes)]
    if not loops.over:
        return decline("K has one element")
    *over, element = loops.over
    for buffer, dims in s.beyond_edges(block).items():
        arrange_copy(s, s.pad(block, buffer, dims), plan.machine.lanes(2))
    if not over or s.extent(element) != instruction.group or s.extent(lane) % lanes:
        return decline("the columns are not stored as panels for the matrix unit")
    s.reorder(*loops.units, *panels, lane, *rows, *over, element)
    *over, step = fuse_contiguous(s, block, over)
    batches = [loop for loop in rows if not isinstance(s.extent(loop), int)]
    if batches and rows[: len(batches)] != batches:
        return decline("adjacent rows have a size that is known at run time only")
    *rows, row = [*batches, *fuse_contiguous(s, block, rows[len(batches) :])] or [s.add_unit_loop(block)]
    return UnitLoops(columns, panels, lane, batches, rows, row, over, step, element)
