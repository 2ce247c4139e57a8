"""f32 contractions by FMA in large tiles: up to 8 x 8 accumulators per thread.

Shared memory has two pipeline stages, contiguous along lines, of which threads read four at once. While a block
multiplies one k-step, the next is loaded to registers, and from there to the other stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations, emit_init
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.gpu.schedule.epilogue import EpilogueEmitter, touch
from mirlo.targets.gpu.schedule.launch import Ids, add, barrier, launch, multiply, split
from mirlo.targets.gpu.schedule.roles import ProductOperand, Roles, values_of
from mirlo.targets.nvvm.schedule.fragments import SharedMatrix
from mirlo.targets.nvvm.schedule.staging import Load, Stager
from mirlo.targets.nvvm.schedule.units import F32

WIDE = 4
"""Lines that a thread reads at once."""
WARP_DOWN, WARP_ACROSS = 4, 8
"""Threads of a warp along rows and columns: a read of either operand is at most as wide as the banks."""
WARPS_DOWN, WARPS_ACROSS = 4, 2
DOWN, ACROSS = WARP_DOWN * WARPS_DOWN, WARP_ACROSS * WARPS_ACROSS
MIN_BLOCKS = 108
"""Blocks that keep a device busy."""
MAX_EPILOGUE_OPS = 1500
"""Most operations of an epilogue over all accumulators of a thread; tiles are smaller above it."""


@dataclass(frozen=True)
class FmaTile:
    """Accumulators of a thread, and the k-steps in shared memory at a time."""

    rows: int
    columns: int
    steps: int

    @property
    def height(self) -> int:
        return self.rows * DOWN

    @property
    def width(self) -> int:
        return self.columns * ACROSS


TILES = (FmaTile(8, 8, 8), FmaTile(4, 8, 16), FmaTile(8, 4, 16), FmaTile(4, 4, 16))


@dataclass(frozen=True)
class TilesPlan:
    """An f32 contraction and its elementwise epilogue."""

    name = "large tiles"

    roles: Roles
    tile: FmaTile

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        touch(self.roles.contraction, memory)
        _Kernel(self.roles, self.tile, memory).emit()


def plan_tiles(roles: Roles) -> TilesPlan | Decline:
    """Plan a product in large tiles."""
    kind = str(roles.contraction.product.accumulate_type)
    if kind != "f32":
        return decline("the sums are not f32", type=kind)
    tile = choose_tile(roles)
    if tile is None:
        sizes = (roles.batches, roles.rows.extent, roles.columns.extent, roles.depth)
        return decline("it is too small for large tiles", sizes=sizes)
    return TilesPlan(roles, tile)


def choose_tile(roles: Roles) -> FmaTile | None:
    """Return the largest tile that wastes little, keeps the device busy, and has an acceptable epilogue size."""
    heavy = count_operations([stage.block for stage in roles.contraction.stages])
    rows, columns, batches = map(D.estimate_dim, (roles.rows.extent, roles.columns.extent, roles.batches))
    for tile in TILES:
        blocks = batches * -(-rows // tile.height) * -(-columns // tile.width)
        fits = 3 * blocks * tile.height * tile.width <= 4 * batches * rows * columns
        if (
            fits
            and heavy * tile.rows * tile.columns <= MAX_EPILOGUE_OPS
            and blocks >= MIN_BLOCKS
            and roles.depth >= tile.steps
        ):
            return tile
    return None


class _Kernel:
    def __init__(self, roles: Roles, tile: FmaTile, memory: TensorBuffers):
        self.roles = roles
        self.tile = tile
        self.memory = memory
        self.high = D.ceildiv(roles.rows.extent, tile.height)
        self.wide = D.ceildiv(roles.columns.extent, tile.width)

    def emit(self) -> None:
        launch(self.roles.batches * self.high * self.wide, DOWN * ACROSS, self._block)

    def _block(self, ids: Ids) -> None:
        roles, tile = self.roles, self.tile
        self.thread = ids.thread
        batch, down, across = split(ids.block, [roles.batches, self.high, self.wide])
        self.batch = values_of(roles.batch, batch)
        self.row, self.column = multiply(down, tile.height), multiply(across, tile.width)
        warp_down, warp_across, own_down, own_across = split(
            ids.thread, [WARPS_DOWN, WARPS_ACROSS, WARP_DOWN, WARP_ACROSS]
        )
        self.down = multiply(add(multiply(warp_down, WARP_DOWN), own_down), WIDE)
        self.across = multiply(add(multiply(warp_across, WARP_ACROSS), own_across), WIDE)
        left, loads = self._side(roles.rows, self.row, tile.height)
        right, more = self._side(roles.columns, self.column, tile.width)
        self._finish(self._sums(left, right, [*loads, *more]))

    def _side(self, side: ProductOperand, first: ir.Value, lines: int) -> tuple[SharedMatrix, list[Load]]:
        stager = Stager(
            self.roles, side, self.memory, F32, self.batch, first, lines, self.tile.steps, self.thread, DOWN * ACROSS
        )
        return stager.load_along_lines()

    def _sums(self, left: SharedMatrix, right: SharedMatrix, loads: list[Load]) -> list[Any]:
        steps = self.tile.steps
        for matrix in (left, right):
            matrix.grow(2)

        def read(first: Any) -> list[list[Any]]:
            return [load.read(first) for load in loads]

        def write(values: list[list[Any]], half: Any) -> None:
            for load, own in zip(loads, values, strict=True):
                load.write(own, half)

        def round_(first: Any, *sums: Any) -> list[ir.Value]:
            ahead = read(add(first, steps))
            number = create("arith.divui", first.type, first, index(steps))
            half = create("arith.remui", first.type, number, index(2))
            here = [replace(matrix, start=multiply(half, matrix.size)) for matrix in (left, right)]
            following = self._products(here[0], here[1], list(sums))
            write(ahead, create("arith.subi", half.type, index(1), half))
            # After this no thread reads the stage that is written next, or writes the one that is read.
            barrier()
            return following

        write(read(index(0)), index(0))
        barrier()
        f32 = ir.F32Type.get()
        start = create("arith.constant", f32, value=emit_init(self.roles.contraction.block, f32))
        start = create("vector.broadcast", ir.VectorType.get([WIDE], f32), start)
        return for_loop(0, self.roles.depth, steps, round_, [start] * (self.tile.rows * self.tile.columns // WIDE))

    def _products(self, left: SharedMatrix, right: SharedMatrix, sums: list[ir.Value]) -> list[ir.Value]:
        tile = self.tile
        kind = ir.VectorType.get([WIDE], ir.F32Type.get())
        for k in range(tile.steps):
            step = index(k)
            rows = [left.vector(add(self.down, i * DOWN), step, WIDE) for i in range(0, tile.rows, WIDE)]
            columns = [right.vector(add(self.across, j * ACROSS), step, WIDE) for j in range(0, tile.columns, WIDE)]
            numbers = [
                create("vector.broadcast", kind, create("vector.extract", kind.element_type, row, static_position=at))
                for row in rows
                for at in map(lambda i: ir.DenseI64ArrayAttr.get([i]), range(WIDE))
            ]
            pairs = [(a, b) for a in numbers for b in columns]
            sums = [create("vector.fma", kind, a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]
        return sums

    def _finish(self, sums: list[ir.Value]) -> None:
        tile = self.tile
        finisher = EpilogueEmitter(self.roles, self.memory, self.batch, tile.height, tile.width)
        across = tile.columns // WIDE
        for i in range(tile.rows):
            row = add(self.row, add(self.down, i // WIDE * WIDE * DOWN + i % WIDE))
            for j in range(tile.columns):
                column = add(self.column, add(self.across, j // WIDE * WIDE * ACROSS + j % WIDE))
                at = ir.DenseI64ArrayAttr.get([j % WIDE])
                total = create("vector.extract", ir.F32Type.get(), sums[i * across + j // WIDE], static_position=at)
                finisher.store(row, column, total)
