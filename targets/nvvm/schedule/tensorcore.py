"""Contractions by `mma.sync`: tiles in shared memory, fragments in registers, f32 or i32 accumulators.

While a block multiplies one k-step, the next ones are in flight. Contiguous operands are copied to shared memory
asynchronously in 16-byte vectors (`cp.async`), several k-steps ahead; others go through registers, one k-step ahead.
`units.py` lists the supported formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value, index
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import Load, SharedMatrix, Stager
from mirlo.targets.gpu.schedule.contraction.tiled import (
    Mover,
    Operands,
    ProductEngine,
    TiledPlan,
    through_registers,
)
from mirlo.targets.gpu.schedule.costs import MATRIX_UNITS, Shape, fastest_tile
from mirlo.targets.gpu.schedule.launch import WARP, split
from mirlo.targets.gpu.schedule.roles import Roles
from mirlo.targets.gpu.schedule.vectors import element_at, spread
from mirlo.targets.nvvm.options import Options
from mirlo.targets.nvvm.schedule.copies import async_copy, asynchronously
from mirlo.targets.nvvm.schedule.fragments import Lane, format_of_matrix, multiply_add, registers
from mirlo.targets.nvvm.schedule.units import COLUMNS, ROWS, Format, format_of

WARPS = 2
"""Warps of a block along rows, and along columns."""
STEP_BYTES = 64
"""Bytes of K per line in shared memory at a time."""
STAGES = 4
"""Most pipeline stages."""
MAX_EPILOGUE_OPS = 2000
"""Most operations of an epilogue over all accumulators of a thread; tiles are smaller above it."""


@dataclass(frozen=True)
class WarpTile:
    """Fragments of the result that a warp holds."""

    down: int
    across: int
    rate: float
    """Multiply-adds of 16-bit operands per second and multiprocessor."""

    @property
    def height(self) -> int:
        return WARPS * self.down * ROWS

    @property
    def width(self) -> int:
        return WARPS * self.across * COLUMNS

    @property
    def accumulators(self) -> int:
        return self.down * self.across * ROWS * COLUMNS // WARP


TILES = (WarpTile(4, 8, MATRIX_UNITS), WarpTile(4, 4, 8.2e11), WarpTile(2, 4, 6.5e11), WarpTile(1, 2, 2.9e11))


@dataclass(frozen=True)
class MmaEngine(ProductEngine):
    """Products by `mma.sync`: each warp has fragments of the result."""

    tile: WarpTile
    shared_bytes: int
    """Most shared memory of a thread block."""

    @property
    def shape(self) -> Shape:
        return tile_shape(self.tile, self.forms[0].bytes)

    @property
    def steps(self) -> int:
        return STEP_BYTES // self.forms[0].bytes

    def staged(self, stager: Stager) -> tuple[SharedMatrix, list[Load]]:
        return replace(stager, async_copy=async_copy).make()

    def mover(self, operands: Operands) -> Mover:
        if any(load.copy is None for load in operands.loads):
            return through_registers
        return partial(asynchronously, stages=operands.stages(self.shared_bytes, STAGES))

    def part(self, thread: Value) -> WarpPart:
        down, across, lane = split(thread, [WARPS, WARPS, WARP])
        return WarpPart(
            self.tile,
            Lane.of(lane),
            down * (self.tile.down * ROWS),
            across * (self.tile.across * COLUMNS),
        )


@dataclass(frozen=True)
class WarpPart:
    """A thread's part of the fragments of its warp."""

    tile: WarpTile
    lane: Lane
    row: Value
    column: Value

    def start(self, init: ir.Value) -> list[ir.Value]:
        return [spread(init, 2, 2)] * (self.tile.down * self.tile.across)

    def multiply(self, left: SharedMatrix, right: SharedMatrix, sums: list[ir.Value]) -> list[ir.Value]:
        lane, tile = self.lane, self.tile
        left_form, right_form = format_of_matrix(left), format_of_matrix(right)
        for first in range(0, left.depth, left_form.depth):
            step = index(first)
            places = [self.row + i * ROWS for i in range(tile.down)]
            rows = [registers(left_form, lane.load_lhs(left, place, step)) for place in places]
            places = [self.column + j * COLUMNS for j in range(tile.across)]
            columns = [registers(right_form, lane.load_rhs(right, place, step)) for place in places]
            pairs = [(a, b) for a in rows for b in columns]
            sums = [multiply_add(a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]
        return sums

    def results(self, row: Value, column: Value, sums: Sequence[ir.Value]) -> Iterator[tuple[Value, Value, ir.Value]]:
        for i in range(self.tile.down):
            for j in range(self.tile.across):
                fragment = sums[i * self.tile.across + j]
                for down, across, position in self.lane.result_positions():
                    at = row + (self.row + (down + i * ROWS))
                    beside = column + (self.column + (across + j * COLUMNS))
                    yield at, beside, element_at(fragment, *position)


def plan_tensor_cores(roles: Roles, options: Options) -> TiledPlan | Decline:
    """Plan a product by `mma.sync`."""
    formats = formats_of(roles, options)
    if isinstance(formats, Decline):
        return formats
    form, _ = formats
    sizes = tuple(map(D.estimate_dim, (roles.rows.extent, roles.columns.extent, roles.depth)))
    if sizes[0] < ROWS or sizes[1] < COLUMNS or sizes[2] < form.depth:
        return decline("it is smaller than what the matrix units multiply", sizes=sizes)
    tiles = TILES[1:] if form.family in options.chip.converted else TILES
    tile, threads = choose_tile(roles, tiles, form.bytes, options.chip.units), WARPS * WARPS * WARP
    engine = MmaEngine("tensor cores", tile, formats, threads, options.chip.shared_bytes)
    return TiledPlan(roles, engine)


def formats_of(roles: Roles, options: Options) -> tuple[Format, Format] | Decline:
    """Return the matrix-unit formats of the two operands."""
    formats = [format_of(side.factor, side.access.element_type, options) for side in (roles.rows, roles.columns)]
    rows, columns = formats
    if isinstance(rows, Decline):
        return rows
    if isinstance(columns, Decline):
        return columns
    if not rows.fits(columns):
        return decline("the matrix units do not multiply the factors with each other", types=(rows.name, columns.name))
    sums = str(roles.contraction.product.accumulate_type)
    if sums != rows.sums:
        return decline(f"the sums are not {rows.sums}", type=sums)
    return rows, columns


def tile_shape(tile: WarpTile, element_bytes: int) -> Shape:
    """Return the properties of a tile of such elements that the cost depends on."""
    return Shape(tile.height, tile.width, tile.rate * 2 / element_bytes)


def choose_tile(roles: Roles, tiles: Sequence[WarpTile], element_bytes: int, units: int) -> WarpTile:
    """Return the fastest tile that is more than half full, or the smallest one."""
    rows, columns = map(D.estimate_dim, (roles.rows.extent, roles.columns.extent))
    fitting = (tile for tile in tiles if rows > tile.height // 2 and columns > tile.width // 2)
    tile = fastest_tile(roles, fitting, partial(tile_shape, element_bytes=element_bytes), units, MAX_EPILOGUE_OPS)
    return tile or tiles[-1]
