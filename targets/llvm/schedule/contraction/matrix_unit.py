"""Contractions on a matrix unit (AMX), as schedules of primitives."""

from __future__ import annotations

from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, row_major
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import ScheduleFacts
from mirlo.passes.schedule.primitives.group_plan import PrimitivesPlan, schedule_of
from mirlo.passes.schedule.primitives.nests import arrange_copy, fuse_contiguous
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction
from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.intrinsics.amx import PRODUCTS
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.choices import operand_bytes, resident_bytes
from mirlo.targets.llvm.schedule.contraction.tiled import loops_of_contraction, share
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction
from mirlo.targets.llvm.schedule.cost import (
    MATRIX_UNIT_BLOCK,
    MATRIX_UNIT_MOST_STEPS,
    MATRIX_UNIT_ROWS,
    MATRIX_UNIT_WAKE,
)


@deciding
def instruction_for(plan: TiledContraction) -> TileInstruction | Decline:
    """Return the instruction of the machine's matrix unit for a contraction, or decline it for that unit."""
    contraction, machine = plan.roles.contraction, plan.machine
    if not machine.tiles:
        return decline("the machine has no matrix unit")
    if plan.choices.tile is not None:
        return decline("a caller or a measurement chose a tile of vectors")
    rows, columns = plan.roles.rows.factor, plan.roles.columns.factor
    offered = (each for kind, products in PRODUCTS.items() if kind in machine.tiles for each in products)
    instruction = next((each for each in offered if each.takes(rows, columns, contraction.product)), None)
    if instruction is None:
        return decline("the matrix unit does not multiply these types")
    if machine.invariant and isinstance(contraction.product.accumulate_type, ir.F32Type):
        return decline("it sums pairs of bf16 in another order than vectors do, which compute few rows (invariant)")
    if not (plan.tile.problem.shared_rows and plan.tile.problem.shared_columns):
        return decline("columns have rows of their own")
    if not plan.packing.is_stored and not plan.choices.is_packed:
        return decline("the columns are not constant")
    if plan.roles.columns.padded_shape is not None:
        return decline("the columns are padded in a copy")
    # Strides of the operands themselves: the plan's are those of fused axes.
    accesses = plan.roles.rows.access, plan.roles.columns.access
    rows_form, columns_form = (row_major(each.dims, each.shape) for each in accesses)
    row_axes = [axis for axis in contraction.spatial if columns_form.stride(axis) == 0]
    inner = min(row_axes, key=lambda axis: abs(D.estimate_dim(rows_form.stride(axis))), default=None)
    fixed = [plan.roles.lane_axis, *contraction.reduce, *([] if inner is None else [inner])]
    dynamic = [str(axis.extent) for axis in fixed if not isinstance(axis.extent, int)]
    if dynamic:
        return decline("columns, K or adjacent rows have a size that is known at run time only", size=dynamic[0])
    rows_count = prod(D.estimate_dim(axis.extent) for axis in row_axes)
    if rows_count < MATRIX_UNIT_ROWS:
        return decline("too few rows", rows=rows_count, least=MATRIX_UNIT_ROWS)
    products_of_all = prod(D.estimate_dim(axis.extent) for axis in contraction.axes)
    if products_of_all < MATRIX_UNIT_WAKE:
        return decline("too few products to wake the matrix unit", products=products_of_all, least=MATRIX_UNIT_WAKE)
    depth = prod(axis.extent for axis in contraction.reduce if rows_form.stride(axis) < instruction.depth)
    if depth % instruction.depth:
        return decline("K is no multiple of what an instruction multiplies", depth=depth, multiple=instruction.depth)
    return instruction


def panel_columns(columns: BlockAxis, instruction: TileInstruction) -> int:
    """Return the columns of a panel: two registers, or one if that has all of them."""
    assert instruction.shape is not None
    one = instruction.shape[1]
    return one if columns.extent <= one else 2 * one


@dataclass(frozen=True)
class RowTiles:
    """The tiles of rows: those of a register, of a tile, and of the tile for the rest; 0 if none is smaller."""

    register: int
    tile: int
    rest: int = 0


def row_tiles(extent: int, most: int) -> RowTiles:
    """Choose the rows of tiles: two registers, or one if it has all rows.

    A product takes as long for fewer rows. Between equals, tiles that divide the rows compute none twice.
    """
    if extent <= most:
        return RowTiles(extent, extent)

    def cost(register: int) -> tuple[int, bool, int]:
        whole, rest = divmod(extent, 2 * register)
        return 2 * whole + -(-rest // register), rest > 0, -register

    register = min(range(most, most // 2, -1), key=cost)
    rest = extent % (2 * register)
    return RowTiles(register, 2 * register, register if 0 < rest <= register else 0)


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
    most_rows, lanes, depth = instruction.shape
    spatial = [loop for loop in s.memory_order(block) if s.kinds(block)[loop] == "spatial"]
    columns = D.static_dim(s.extent(spatial[-1]))
    loops = loops_of_contraction(s, block, plan.roles)
    units, (*panels, lane) = loops.units, loops.of([*plan.loops.columns, plan.roles.lane_axis])
    row_axes = [*plan.loops.rows, *([] if plan.tile.row_axis is None else [plan.tile.row_axis])]
    rows = [loop for loop in s.memory_order(block) if loop in loops.of(row_axes)]
    if not loops.over:
        return decline("K has one element")
    *over, element = loops.over
    for buffer, dims in s.beyond_edges(block).items():
        arrange_copy(s, s.pad(block, buffer, dims), plan.machine.lanes(2))
    width = s.extent(lane)
    if not over or s.extent(element) != instruction.group or width % lanes:
        return decline("the columns are not stored as panels for the matrix unit")
    s.reorder(*units, *panels, lane, *rows, *over, element)
    *over, step = fuse_contiguous(s, block, over)
    # Batches of a dynamic number of rows stay apart.
    batches = [loop for loop in rows if not isinstance(s.extent(loop), int)]
    if batches and rows[: len(batches)] != batches:
        return decline("adjacent rows have a size that is known at run time only")
    *rows, row = [*batches, *fuse_contiguous(s, block, rows[len(batches) :])] or [s.add_unit_loop(block)]
    if s.extent(step) % (depth // instruction.group):
        return decline("K is no multiple of what an instruction multiplies", groups=s.extent(step))
    step, groups = s.split(step, (None, depth // instruction.group))
    vector, lane = s.split(lane, (None, lanes))
    tile = row_tiles(D.static_dim(s.extent(row)), most_rows)
    is_shifted = s.extent(row) % tile.tile != 0
    rests = [tile.rest] if tile.rest else []
    tiles, row = s.split(row, (None, tile.tile), tail="shift" if is_shifted else "mask", rests=rests)
    lines: list[str] = []
    if len(rows) > len(batches) and tile.tile == tile.register and not is_shifted and s.extent(rows[-1]) != 1:
        rows[-1], line = s.split(rows[-1], (None, 2))
        lines.append(line)
    outer, inner = panels, [*rows, tiles]
    if operand_bytes(plan.roles.rows) > resident_bytes(plan.machine):
        # Rows are read once, columns, which may stay in the L2 cache, for each block of them.
        outer, inner = ([*rows, *panels], [tiles]) if rows else ([tiles, *panels], [])
    blocks: list[str] = []
    steps_of_k = D.static_dim(s.extent(step))
    is_whole = not is_shifted and columns % lanes == 0  # between blocks whole registers are stored
    is_reused = outer is panels and not (over or batches) and s.extent(tiles) != 1
    is_short = MATRIX_UNIT_BLOCK < steps_of_k <= MATRIX_UNIT_MOST_STEPS and steps_of_k % MATRIX_UNIT_BLOCK == 0
    if is_whole and is_reused and is_short:
        block_of_k, step = s.split(step, (None, MATRIX_UNIT_BLOCK))
        blocks.append(block_of_k)
    tile_loops = (*lines, row, vector, lane, groups, element)
    s.reorder(*outer, *blocks, *inner, *over, step, *tile_loops)
    for other in after:
        s.reverse_compute_inline(other)
    s.register_tile(block, tile_loops, (*over, step), instruction.name)
    if outer is panels and panels and operand_bytes(plan.roles.columns) > resident_bytes(plan.machine):
        s.prefetch(block, s.reads(block)[plan.roles.columns.factor.position], loop=panels[-1])
    share(s, outer, inner)
    return tile
