"""Contractions: matrix products and convolutions in tiles of a thread block.

Each thread keeps a small tile of accumulators in registers. For each k-step the block loads the parts of both
operands that its threads need into shared memory. Positions are affine forms over the axes, so a convolution is the
same as a product (implicit GEMM), and padding is a bounds check on loads. A product that is too thin for tiles gets
one thread per sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.loops import attribute_constant, for_loop
from mirlo.targets.gpu.schedule.costs import Shape
from mirlo.targets.gpu.schedule.epilogue import EpilogueEmitter, Reader, multiply_add, store_epilogue, touch
from mirlo.targets.gpu.schedule.launch import (
    THREADS,
    Ids,
    add,
    barrier,
    clamp_index,
    launch,
    launch_points,
    less,
    multiply,
    shared,
    split,
)
from mirlo.targets.gpu.schedule.roles import ProductOperand, Roles, values_of

THINNEST = 8
"""Fewest rows or columns of a tile."""
ACROSS, DOWN = 16, 16
"""Threads of a block along the columns and along the rows."""
DEPTH = 16
"""k-steps in shared memory at a time."""
MIN_BLOCKS = 64
"""Blocks that keep a device busy: smaller tiles are used until there are as many."""


@dataclass(frozen=True)
class ThreadTile:
    """Accumulators of a thread: rows and columns, interleaved with those of other threads over the block's tile."""

    rows: int
    columns: int

    @property
    def height(self) -> int:
        return self.rows * DOWN

    @property
    def width(self) -> int:
        return self.columns * ACROSS


@dataclass(frozen=True)
class ThreadContractionPlan:
    """A contraction and its elementwise epilogue; without a tile, one thread per sum."""

    name = "contraction"

    roles: Roles
    tile: ThreadTile | None

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        touch(self.roles.contraction, memory)
        if self.tile is None:
            _emit_thread_per_element(self.roles, memory)
        else:
            _Tiled(self.roles, self.tile, memory).emit()

    def describe(self) -> dict[str, Any]:
        tile = [] if self.tile is None else [self.tile.height, self.tile.width, DEPTH]
        return {"tile": tile}


def plan_contraction(roles: Roles) -> ThreadContractionPlan:
    """Plan any product."""
    return ThreadContractionPlan(roles, choose_tile(roles))


def shape_of(plan: ThreadContractionPlan) -> Shape:
    """Return what a thread block computes."""
    return Shape(plan.tile.height, plan.tile.width) if plan.tile is not None else Shape(1, THREADS)


def choose_tile(roles: Roles) -> ThreadTile | None:
    """Return the largest tile that leaves no thread and no multiprocessor idle."""
    height, width, depth = map(D.estimate_dim, (roles.rows.extent, roles.columns.extent, roles.depth))
    if min(height, width, depth) < THINNEST:
        return None
    rows = next((n for n in (4, 2) if height >= n * DOWN), 1)
    columns = next((n for n in (4, 2) if width >= n * ACROSS), 1)
    while rows * columns > 1:
        blocks = D.estimate_dim(roles.batches) * -(-height // (rows * DOWN)) * -(-width // (columns * ACROSS))
        if blocks >= MIN_BLOCKS:
            break
        rows, columns = (rows // 2, columns) if rows >= columns else (rows, columns // 2)
    return ThreadTile(rows, columns)


def _start(roles: Roles) -> ir.Value:
    kind = roles.contraction.product.accumulate_type
    return attribute_constant(emit_init(roles.contraction.block, kind))


def _emit_thread_per_element(roles: Roles, memory: TensorBuffers) -> None:
    """Emit a thread per sum."""
    axes = [*roles.batch, *roles.rows.axes, *roles.columns.axes]

    def thread(indices: list[ir.Value]) -> None:
        values = dict(zip((axis.id for axis in axes), indices, strict=True))
        readers = [Reader(roles, side, memory) for side in (roles.rows, roles.columns)]
        bases = [reader.base(values) for reader in readers]

        def level(done: dict[int, ir.Value], carried: ir.Value) -> ir.Value:
            if len(done) == len(roles.sums):
                a, b = (reader.read(base, done) for reader, base in zip(readers, bases, strict=True))
                return multiply_add(a, b, carried)
            axis = roles.sums[len(done)]
            return for_loop(0, axis.extent, 1, lambda i, held: [level({**done, axis.id: i}, held)], [carried])[0]

        store_epilogue(roles.contraction, memory, values, level({}, _start(roles)))

    launch_points([axis.extent for axis in axes], thread)


class _Tiled:
    """One tiled kernel."""

    def __init__(self, roles: Roles, tile: ThreadTile, memory: TensorBuffers):
        self.roles = roles
        self.tile = tile
        self.memory = memory
        self.high = D.ceildiv(roles.rows.extent, tile.height)
        self.wide = D.ceildiv(roles.columns.extent, tile.width)

    def emit(self) -> None:
        launch(self.roles.batches * self.high * self.wide, ACROSS * DOWN, self._block)

    def _block(self, ids: Ids) -> None:
        kind = self.roles.contraction.product.accumulate_type
        self.thread = ids.thread
        batch, down, across = split(ids.block, [self.roles.batches, self.high, self.wide])
        self.batch = values_of(self.roles.batch, batch)
        self.first = {"rows": multiply(down, self.tile.height), "columns": multiply(across, self.tile.width)}
        self.down, self.across = split(ids.thread, [DOWN, ACROSS])
        self.memories = {
            "rows": shared(DEPTH * self.tile.height, kind), "columns": shared(DEPTH * self.tile.width, kind),
        }  # fmt: skip
        loads = [
            *self._loads("rows", self.roles.rows, self.tile.height),
            *self._loads("columns", self.roles.columns, self.tile.width),
        ]
        start = _start(self.roles)
        count = self.tile.rows * self.tile.columns

        def step(first: ir.Value, *sums: ir.Value) -> list[Any]:
            for load in loads:
                load(first)
            barrier()
            following = for_loop(0, DEPTH, 1, lambda k, *held: self._products(k, held), list(sums))
            barrier()
            return following

        sums = for_loop(0, self.roles.depth, DEPTH, step, [start] * count)
        self._finish(sums)

    def _loads(self, name: str, side: ProductOperand, width: int) -> list[Callable[[ir.Value], None]]:
        """Return copies of a thread's part of one operand to shared memory; each takes the first k-step."""
        threads = ACROSS * DOWN
        along_k = side.stride(self.roles.sums) and (
            not side.axes or D.estimate_dim(side.stride(self.roles.sums)) < D.estimate_dim(side.stride(side.axes))
        )
        reader = Reader(self.roles, side, self.memory)
        found = []
        for part in range(-(-DEPTH * width // threads)):
            number = add(self.thread, part * threads)
            if along_k:
                line, depth = split(number, [width, DEPTH])
            else:
                depth, line = split(number, [DEPTH, width])
            # Rows beyond the last one read data that is not used.
            at = clamp_index(add(self.first[name], line), side.extent, width)
            base = reader.base({**self.batch, **values_of(side.axes, at)})
            place = add(multiply(depth, width), line)
            found.append(self._load(reader, base, depth, place, self.memories[name]))
        return found

    def _load(
        self, reader: Reader, base: tuple[ir.Value, list[ir.Value]], depth: ir.Value, place: ir.Value, memory: ir.Value
    ) -> Callable[[ir.Value], None]:
        total = self.roles.depth

        def load(first: Any) -> None:
            at = add(first, depth)
            value = reader.read(base, values_of(self.roles.sums, clamp_index(at, total, DEPTH)))
            if total % DEPTH != 0:
                zero = emit_constant(0, value.type)
                value = create("arith.select", value.type, less(at, total), value, zero)
            memref.StoreOp(value, memory, [place])

        return load

    def _products(self, k: ir.Value, sums: tuple[ir.Value, ...]) -> list[ir.Value]:
        rows = self._line("rows", k, self.tile.height, self.tile.rows, self.down, DOWN)
        columns = self._line("columns", k, self.tile.width, self.tile.columns, self.across, ACROSS)
        products = [(a, b) for a in rows for b in columns]
        return [multiply_add(a, b, total) for (a, b), total in zip(products, sums, strict=True)]

    def _line(self, name: str, k: ir.Value, width: int, count: int, own: ir.Value, apart: int) -> list[ir.Value]:
        first = add(multiply(k, width), own)
        return [memref.LoadOp(self.memories[name], [add(first, i * apart)]).result for i in range(count)]

    def _finish(self, sums: list[ir.Value]) -> None:
        tile = self.tile
        finisher = EpilogueEmitter(self.roles, self.memory, self.batch, tile.height, tile.width)
        for i in range(tile.rows):
            row = add(self.first["rows"], add(self.down, i * DOWN))
            for j in range(tile.columns):
                column = add(self.first["columns"], add(self.across, j * ACROSS))
                finisher.store(row, column, sums[i * tile.columns + j])
