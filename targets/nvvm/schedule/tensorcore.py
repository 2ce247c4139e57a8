"""Contractions by `mma.sync`: tiles in shared memory, fragments in registers, f32 or i32 accumulators.

While a block multiplies one k-step, the next ones are in flight. Contiguous operands are copied to shared memory
asynchronously in 16-byte vectors (`cp.async`), several k-steps ahead; others go through registers, one k-step ahead.
`units.py` lists the supported formats.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from mirlo.targets.nvvm.options import Options
from mirlo.targets.nvvm.schedule import copies
from mirlo.targets.nvvm.schedule.fragments import WARP, Lane, SharedMatrix, fragment_element, multiply_add, registers
from mirlo.targets.nvvm.schedule.staging import Load, Stager
from mirlo.targets.nvvm.schedule.units import COLUMNS, ROWS, Format, format_of

WARPS = 2
"""Warps of a block along rows, and along columns."""
STEP_BYTES = 64
"""Bytes of K per line in shared memory at a time."""
MIN_BLOCKS = 108
"""Blocks that keep a device busy."""
STAGES = 4
"""Most pipeline stages."""
MAX_EPILOGUE_OPS = 2000
"""Most operations of an epilogue over all accumulators of a thread; tiles are smaller above it."""


@dataclass(frozen=True)
class WarpTile:
    """Fragments of the result that a warp holds."""

    down: int
    across: int

    @property
    def height(self) -> int:
        return WARPS * self.down * ROWS

    @property
    def width(self) -> int:
        return WARPS * self.across * COLUMNS


TILES = (WarpTile(4, 8), WarpTile(4, 4), WarpTile(2, 4), WarpTile(1, 2))


@dataclass(frozen=True)
class Formats:
    """The formats of the two operands."""

    rows: Format
    columns: Format


@dataclass(frozen=True)
class TensorCorePlan:
    """A contraction and its elementwise epilogue by `mma.sync`."""

    roles: Roles
    formats: Formats
    tile: WarpTile
    options: Options

    name = "tensor cores"

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        touch(self.roles.contraction, memory)
        _Kernel(self, memory).emit()


def plan_tensor_cores(roles: Roles, options: Options) -> TensorCorePlan | Decline:
    """Plan a product by `mma.sync`."""
    formats = formats_of(roles, options)
    if isinstance(formats, Decline):
        return formats
    form = formats.rows
    sizes = tuple(map(D.estimate_dim, (roles.rows.extent, roles.columns.extent, roles.depth)))
    if sizes[0] < ROWS or sizes[1] < COLUMNS or sizes[2] < form.depth:
        return decline("it is smaller than what the matrix units multiply", sizes=sizes)
    tiles = TILES[1:] if form.family in options.chip.converted else TILES
    return TensorCorePlan(roles, formats, choose_tile(roles, tiles), options)


def formats_of(roles: Roles, options: Options) -> Formats | Decline:
    """Return the matrix-unit formats of the two operands."""
    found = [format_of(side.factor, side.access.element_type, options) for side in (roles.rows, roles.columns)]
    rows, columns = found
    if isinstance(rows, Decline):
        return rows
    if isinstance(columns, Decline):
        return columns
    if not rows.fits(columns):
        return decline("the matrix units do not multiply the factors with each other", types=(rows.name, columns.name))
    sums = str(roles.contraction.product.accumulate_type)
    if sums != rows.sums:
        return decline(f"the sums are not {rows.sums}", type=sums)
    return Formats(rows, columns)


def choose_tile(roles: Roles, tiles: Sequence[WarpTile] = TILES) -> WarpTile:
    """Return the largest tile that wastes little, keeps the device busy, and has an acceptable epilogue size."""
    heavy = count_operations([stage.block for stage in roles.contraction.stages])
    rows, columns, batches = map(D.estimate_dim, (roles.rows.extent, roles.columns.extent, roles.batches))
    for tile in tiles[:-1]:
        high, wide = -(-rows // tile.height), -(-columns // tile.width)
        fits = rows > tile.height // 2 and columns > tile.width // 2
        if fits and heavy * 4 * tile.down * tile.across <= MAX_EPILOGUE_OPS and high * wide * batches >= MIN_BLOCKS:
            return tile
    return tiles[-1]


class _Kernel:
    def __init__(self, plan: TensorCorePlan, memory: TensorBuffers):
        self.roles = plan.roles
        self.tile = plan.tile
        self.formats = plan.formats
        self.most_shared = plan.options.chip.shared_bytes
        self.memory = memory
        self.steps = STEP_BYTES // plan.formats.rows.bytes
        self.high = D.ceildiv(plan.roles.rows.extent, plan.tile.height)
        self.wide = D.ceildiv(plan.roles.columns.extent, plan.tile.width)
        self.threads = WARPS * WARPS * WARP

    def emit(self) -> None:
        launch(self.roles.batches * self.high * self.wide, self.threads, self._block)

    def _block(self, ids: Ids) -> None:
        roles, tile = self.roles, self.tile
        self.thread = ids.thread
        batch, down, across = split(ids.block, [roles.batches, self.high, self.wide])
        self.batch = values_of(roles.batch, batch)
        self.row, self.column = multiply(down, tile.height), multiply(across, tile.width)
        warp_down, warp_across, lane = split(ids.thread, [WARPS, WARPS, WARP])
        self.lane = Lane.of(lane)
        self.warp_row = multiply(warp_down, tile.down * ROWS)
        self.warp_column = multiply(warp_across, tile.across * COLUMNS)
        left, loads = self._side(roles.rows, self.formats.rows, self.row, tile.height)
        right, more = self._side(roles.columns, self.formats.columns, self.column, tile.width)
        loads = [*loads, *more]
        zero = self._start()
        kind = ir.VectorType.get([2, 2], zero.type)
        start: list[ir.Value] = [create("vector.broadcast", kind, zero)] * (tile.down * tile.across)
        bytes_ = left.size * self.formats.rows.bytes + right.size * self.formats.columns.bytes
        stages = min(STAGES, self.most_shared // bytes_, max(2, -(-roles.depth // self.steps)))
        if stages > 1 and all(load.copy is not None for load in loads):
            self._finish(self._staged(left, right, loads, start, stages))
        else:
            self._finish(self._through_registers(left, right, loads, start))

    def _side(self, side: ProductOperand, form: Format, first: ir.Value, lines: int) -> tuple[SharedMatrix, list[Load]]:
        stager = Stager(
            self.roles, side, self.memory, form, self.batch, first, lines, self.steps, self.thread, self.threads
        )
        return stager.make()

    def _through_registers(
        self, left: SharedMatrix, right: SharedMatrix, loads: list[Load], start: list[Any]
    ) -> list[Any]:
        count = len(start)
        begin = [load.read(index(0)) for load in loads]

        def round_(first: Any, *carried: Any) -> list[Any]:
            held = iter(carried[count:])
            for load, values in zip(loads, begin, strict=True):
                load.write([next(held) for _ in values], index(0))
            barrier()
            following = add(first, self.steps)
            ahead = [value for load in loads for value in load.read(following)]
            sums = self._products(left, right, list(carried[:count]))
            barrier()
            return [*sums, *ahead]

        flat = [value for values in begin for value in values]
        return for_loop(0, self.roles.depth, self.steps, round_, [*start, *flat])[:count]

    def _staged(
        self, left: SharedMatrix, right: SharedMatrix, loads: list[Load], start: list[ir.Value], stages: int
    ) -> list[ir.Value]:
        for matrix in (left, right):
            matrix.grow(stages)

        def copy(first: ir.Value, stage: ir.Value) -> None:
            for load in loads:
                assert load.copy is not None
                load.copy(first, stage)
            copies.commit()

        def round_(first: ir.Value, *sums: ir.Value) -> list[ir.Value]:
            copies.wait(stages - 2)
            # From here on all threads see this stage, and none reads the previous one.
            barrier()
            number = create("arith.divui", first.type, first, index(self.steps))
            last = create("arith.remui", first.type, add(number, stages - 1), index(stages))
            copy(add(first, (stages - 1) * self.steps), last)
            stage = create("arith.remui", first.type, number, index(stages))
            here = [replace(matrix, start=multiply(stage, matrix.size)) for matrix in (left, right)]
            return self._products(here[0], here[1], list(sums))

        for stage in range(stages - 1):
            copy(index(stage * self.steps), index(stage))
        sums = for_loop(0, self.roles.depth, self.steps, round_, start)
        copies.wait(0)
        return sums

    def _start(self) -> ir.Value:
        kind = self.roles.contraction.product.accumulate_type
        return create("arith.constant", kind, value=emit_init(self.roles.contraction.block, kind))

    # Products and what becomes of them

    def _products(self, left: SharedMatrix, right: SharedMatrix, sums: list[ir.Value]) -> list[ir.Value]:
        lane, tile = self.lane, self.tile
        for first in range(0, self.steps, left.form.depth):
            step = index(first)
            places = [add(self.warp_row, i * ROWS) for i in range(tile.down)]
            rows = [registers(left.form, lane.left(left, place, step)) for place in places]
            places = [add(self.warp_column, j * COLUMNS) for j in range(tile.across)]
            columns = [registers(right.form, lane.right(right, place, step)) for place in places]
            pairs = [(a, b) for a in rows for b in columns]
            sums = [multiply_add(a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]
        return sums

    def _finish(self, sums: list[ir.Value]) -> None:
        tile = self.tile
        finisher = EpilogueEmitter(self.roles, self.memory, self.batch, tile.height, tile.width)
        for i in range(tile.down):
            for j in range(tile.across):
                fragment = sums[i * tile.across + j]
                for row, column, position in self.lane.places():
                    finisher.store(
                        add(self.row, add(self.warp_row, add(row, i * ROWS))),
                        add(self.column, add(self.warp_column, add(column, j * COLUMNS))),
                        fragment_element(fragment, position),
                    )
