"""Choices for a contraction on a matrix unit (AMX): the instruction, the tiles, the order of the loops around them."""

from __future__ import annotations

from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.passes.rules import Decline, deciding, decline
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, row_major
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.intrinsics.amx import PRODUCTS
from mirlo.targets.llvm.schedule.contraction.choices import operand_bytes, resident_bytes
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TailArguments, TiledContraction
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


@dataclass(frozen=True)
class LoopExtents:
    """The loops that tiles of a matrix unit are made of, by their iterations."""

    columns: int
    """Columns of the result."""
    rows: int
    """Rows that are next to each other."""
    outer_rows: tuple[int, ...]
    """The loops over rows around these whose number is known."""
    batches: int
    """How many loops over rows have a dynamic number of iterations."""
    steps: int
    """K-steps that are next to each other."""
    outer_steps: int
    """How many loops of the reduction are around these."""


@dataclass(frozen=True)
class UnitTiles:
    """What is chosen for a contraction on a matrix unit."""

    rows: RowTiles
    tail: TailArguments
    """How rows are split into tiles."""
    has_lines: bool
    """Whether a tile has the rows of two iterations of the loop around them, each in a register."""
    rows_outside: bool
    """Whether rows are read once, and columns, which may stay in the L2 cache, for each block of them."""
    block_steps: int
    """The k-steps of a block of K, after which registers are stored; 0 for all of them."""
    prefetches_columns: bool
    """Whether tiles prefetch the next panel of columns."""

    def around(self, panels: list[str], rows: list[str], tiles: str) -> tuple[list[str], list[str]]:
        """Return the loops around tiles, those that threads divide first, and the others."""
        if not self.rows_outside:
            return panels, [*rows, tiles]
        return ([*rows, *panels], [tiles]) if rows else ([tiles, *panels], [])


def choose_unit_tiles(plan: TiledContraction, instruction: TileInstruction, extents: LoopExtents) -> UnitTiles:
    """Choose the tiles of a contraction on a matrix unit, and the order of the loops around them."""
    assert instruction.shape is not None
    most_rows, lanes, _ = instruction.shape
    rows = row_tiles(extents.rows, most_rows)
    is_shifted = extents.rows % rows.tile != 0
    rests = [rows.rest] if rows.rest else []
    far_rows, far_columns = (
        operand_bytes(side) > resident_bytes(plan.machine) for side in (plan.roles.rows, plan.roles.columns)
    )
    is_single = rows.tile == rows.register and not is_shifted
    is_whole = not is_shifted and extents.columns % lanes == 0  # between blocks whole registers are stored
    is_reused = not (far_rows or extents.outer_steps or extents.batches) and extents.rows != rows.tile
    is_short = MATRIX_UNIT_BLOCK < extents.steps <= MATRIX_UNIT_MOST_STEPS and extents.steps % MATRIX_UNIT_BLOCK == 0
    return UnitTiles(
        rows,
        {"tail": "shift" if is_shifted else "mask", "rests": rests},
        has_lines=is_single and extents.outer_rows[-1:] not in ((), (1,)),
        rows_outside=far_rows,
        block_steps=MATRIX_UNIT_BLOCK if is_whole and is_reused and is_short else 0,
        prefetches_columns=far_columns and not far_rows,
    )
