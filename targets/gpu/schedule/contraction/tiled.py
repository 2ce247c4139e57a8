"""The skeleton of contractions in tiles of a thread block: grid, k-steps through shared memory, epilogue.

Positions are affine forms over the axes, so a convolution is the same as a product (implicit GEMM), and padding is a
bounds check on loads. An *engine* decides what the threads of a block keep in registers and how they multiply some
k-steps in shared memory; a *mover* loads the k-steps to shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import attribute_constant, for_loop
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import ElementFormat, Load, SharedMatrix, Stager
from mirlo.targets.gpu.schedule.costs import ProductTile, Shape
from mirlo.targets.gpu.schedule.launch import Ids, barrier, launch, split
from mirlo.targets.gpu.schedule.product_leaves import EpilogueEmitter, ProductLeaves
from mirlo.targets.gpu.schedule.roles import Roles, values_of


class ThreadPart(Protocol):
    """The part of a tile that one thread computes."""

    def start(self, init: ir.Value) -> list[ir.Value]:
        """Return the accumulators before the first k-step."""

    def multiply(self, left: SharedMatrix, right: SharedMatrix, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the products of all k-steps in shared memory."""

    def results(self, row: Value, column: Value, sums: Sequence[ir.Value]) -> Iterator[tuple[Value, Value, ir.Value]]:
        """Yield row, column and value of each accumulator, given the tile's first row and column."""


@dataclass(frozen=True)
class ProductEngine:
    """The method by which a thread block multiplies a tile."""

    name: str
    tile: ProductTile
    forms: tuple[ElementFormat, ElementFormat]
    """How both operands are kept in shared memory."""
    threads: int

    @property
    def shape(self) -> Shape:
        """Return the properties of the tile that its cost depends on."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """Return the k-steps in shared memory at a time."""
        raise NotImplementedError

    def staged(self, stager: Stager) -> tuple[SharedMatrix, list[Load]]:
        """Return the memory of an operand's tile, and this thread's loads."""
        raise NotImplementedError

    def mover(self, operands: Operands) -> Mover:
        """Return the function that loads the operands to shared memory."""
        raise NotImplementedError

    def part(self, thread: Value) -> ThreadPart:
        """Return the part of a thread."""
        raise NotImplementedError


Multiply = Callable[[SharedMatrix, SharedMatrix, list[ir.Value]], list[ir.Value]]


@dataclass(frozen=True)
class Operands:
    """Both operands of a tile in shared memory, and the loads that fill them."""

    left: SharedMatrix
    right: SharedMatrix
    loads: Sequence[Load]
    depth: Dim
    steps: int

    def stages(self, shared_bytes: int, most: int) -> int:
        """Return as many pipeline stages as fit shared memory and have k-steps, and at least two."""
        size = sum(matrix.size * matrix.form.bytes for matrix in (self.left, self.right))
        return max(2, min(most, shared_bytes // size, -(-D.estimate_dim(self.depth) // self.steps)))

    def grow(self, stages: int) -> None:
        """Make room for this many pipeline stages."""
        for matrix in (self.left, self.right):
            matrix.grow(stages)

    def each_round(self, body: Callable[..., Sequence[ir.Value]], sums: list[ir.Value]) -> list[ir.Value]:
        """Run `body(first, *sums)` for the first k-step of each round."""
        return for_loop(0, self.depth, self.steps, body, sums)

    def stage(self, first: Value, stages: int, later: int = 0) -> Value:
        """Return the pipeline stage of the round with this first k-step, or of a later round."""
        number = create("arith.divui", first.type, first, index(self.steps))
        return create("arith.remui", first.type, number + later if later else number, index(stages))

    def multiplied(self, multiply: Multiply, stage: Value | None, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Add the products of a stage."""
        return multiply(self.left.stage(stage), self.right.stage(stage), list(sums))


Mover = Callable[[Operands, Multiply, list[ir.Value]], list[ir.Value]]


def directly(operands: Operands, multiply: Multiply, sums: list[ir.Value]) -> list[ir.Value]:
    """Load k-steps to the only stage, and multiply them."""

    def one(first: Value, *held: ir.Value) -> list[ir.Value]:
        for load in operands.loads:
            load.write(load.read(first), None)
        barrier()
        following = operands.multiplied(multiply, None, held)
        barrier()
        return following

    return operands.each_round(one, sums)


def through_registers(operands: Operands, multiply: Multiply, sums: list[ir.Value]) -> list[ir.Value]:
    """Load the next k-steps to registers while some are multiplied, then to the other one of two stages."""
    operands.grow(2)

    def read(first: Value) -> list[list[ir.Value]]:
        return [load.read(first) for load in operands.loads]

    def write(values: list[list[ir.Value]], stage: Value) -> None:
        for load, own in zip(operands.loads, values, strict=True):
            load.write(own, stage)
        # After this no thread reads the stage that is written next, or writes the one that is read.
        barrier()

    def one(first: Value, *held: ir.Value) -> list[ir.Value]:
        ahead = read(first + operands.steps)
        stage = operands.stage(first, 2)
        following = operands.multiplied(multiply, stage, held)
        write(ahead, create("arith.subi", stage.type, index(1), stage))
        return following

    write(read(index(0)), index(0))
    return operands.each_round(one, sums)


@dataclass(frozen=True)
class TiledPlan:
    """A contraction and its elementwise epilogue, in tiles."""

    roles: Roles
    engine: ProductEngine

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def tile(self) -> ProductTile:
        return self.engine.tile

    @property
    def shape(self) -> Shape:
        """Return the properties of the plan that its cost depends on."""
        return self.engine.shape

    def with_tile(self, tile: ProductTile) -> TiledPlan:
        """Return the plan with another tile of its engine."""
        return replace(self, engine=replace(self.engine, tile=tile))

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        roles, tile = self.roles, self.tile
        leaves = ProductLeaves(roles, memory)
        high, wide = D.ceildiv(roles.rows.extent, tile.height), D.ceildiv(roles.columns.extent, tile.width)
        grid = [roles.batches, high, wide]
        launch(D.product(grid), self.engine.threads, partial(self._block, leaves, grid))

    def _block(self, leaves: ProductLeaves, grid: Sequence[Dim], ids: Ids) -> None:
        roles, engine, tile = self.roles, self.engine, self.tile
        number, down, across = split(ids.block, grid)
        batch = values_of(roles.batch, number)
        row, column = down * tile.height, across * tile.width
        part = engine.part(ids.thread)
        places = zip((roles.rows, roles.columns), engine.forms, (row, column), (tile.height, tile.width), strict=True)
        (left, loads), (right, more) = (
            engine.staged(Stager(leaves, side, form, batch, first, size, engine.steps, ids.thread, engine.threads))
            for side, form, first, size in places
        )
        operands = Operands(left, right, [*loads, *more], roles.depth, engine.steps)
        init = attribute_constant(emit_init(roles.contraction.block, roles.contraction.product.accumulate_type))
        sums = engine.mover(operands)(operands, part.multiply, part.start(init))
        finisher = EpilogueEmitter(leaves, batch, tile.height, tile.width)
        for at, beside, total in part.results(row, column, sums):
            finisher.store(at, beside, total)
