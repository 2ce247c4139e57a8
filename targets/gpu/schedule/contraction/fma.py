"""The engine of every GPU: each thread multiplies and adds its own accumulators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.loops import for_loop
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import Load, SharedMatrix, Stager
from mirlo.targets.gpu.schedule.contraction.tiled import (
    Mover,
    Operands,
    ProductEngine,
    TiledPlan,
    directly,
    through_registers,
)
from mirlo.targets.gpu.schedule.costs import SUMS, Shape, fastest_tile
from mirlo.targets.gpu.schedule.launch import split
from mirlo.targets.gpu.schedule.roles import Roles
from mirlo.targets.gpu.schedule.vectors import element_at, multiply_add, spread

DOWN, ACROSS = 16, 16
"""Threads of a block along the rows and along the columns."""
WARPS = {1: (1, 1), 4: (4, 2)}
"""Warps along rows and columns, by the adjacent lines that a thread reads: vectors of a warp fill all banks."""
MIN_BLOCKS = 64
"""Blocks that keep a device busy: smaller tiles are used until there are as many."""
MAX_EPILOGUE_OPS = 1500
"""Most operations of an epilogue over all accumulators of a thread; large tiles are smaller above it."""


@dataclass(frozen=True)
class FmaTile:
    """Accumulators of a thread, interleaved with those of other threads over the block's tile."""

    rows: int
    columns: int
    steps: int = 16
    """k-steps in shared memory at a time."""
    wide: int = 1
    """Adjacent lines that a thread reads at once."""
    rate: float = SUMS
    step: float = 0.0
    resident: int = 1
    """How fast a block of 256 threads is: `costs.Shape`."""

    @property
    def height(self) -> int:
        return self.rows * DOWN

    @property
    def width(self) -> int:
        return self.columns * ACROSS

    @property
    def accumulators(self) -> int:
        return self.rows * self.columns

    @property
    def shape(self) -> Shape:
        """Return the properties of the tile that its cost depends on."""
        return Shape(self.height, self.width, self.rate, self.step, self.resident)


TILES = (
    FmaTile(8, 8, 8, wide=4, rate=2.0e11),
    FmaTile(4, 8, wide=4, rate=1.55e11, step=32e-9, resident=2),
    FmaTile(8, 4, wide=4, rate=1.75e11, step=24e-9, resident=2),
    FmaTile(4, 4, wide=4, rate=1.35e11, step=35e-9, resident=3),
)
"""Large tiles, of f32 on GPUs that move 16 bytes at once."""


@dataclass(frozen=True)
class Elements:
    """Elements in the accumulator type; vectors are padded, so that they are in different banks."""

    bytes: int
    vector: int

    def padding(self, along_k: bool) -> int:
        return self.vector if self.vector > 1 else 0


@dataclass(frozen=True)
class FmaEngine(ProductEngine):
    """Products and sums by threads, in any accumulator type."""

    tile: FmaTile
    threads: int = DOWN * ACROSS

    @property
    def shape(self) -> Shape:
        return self.tile.shape

    @property
    def steps(self) -> int:
        return self.tile.steps

    def staged(self, stager: Stager) -> tuple[SharedMatrix, list[Load]]:
        return replace(stager, ahead=self.tile.wide != 1).load_along_lines()

    def mover(self, operands: Operands) -> Mover:
        return directly if self.tile.wide == 1 else through_registers

    def part(self, thread: Value) -> FmaPart:
        (high, wide), tile = WARPS[self.tile.wide], self.tile
        warp_down, warp_across, down, across = split(thread, [high, wide, DOWN // high, ACROSS // wide])
        down = warp_down * (DOWN // high) + down
        across = warp_across * (ACROSS // wide) + across
        return FmaPart(tile, down * tile.wide, across * tile.wide)


@dataclass(frozen=True)
class FmaPart:
    """A thread's rows and columns: groups of `wide`, as far apart as all threads' groups are wide."""

    tile: FmaTile
    down: Value
    across: Value

    def start(self, init: ir.Value) -> list[ir.Value]:
        return [self._spread(init)] * (self.tile.accumulators // self.tile.wide)

    def multiply(self, left: SharedMatrix, right: SharedMatrix, sums: list[ir.Value]) -> list[ir.Value]:
        if self.tile.wide == 1:
            return for_loop(0, self.tile.steps, 1, lambda k, *held: self._step(left, right, k, held), sums)
        for k in range(self.tile.steps):
            sums = self._step(left, right, index(k), sums)
        return sums

    def _step(self, left: SharedMatrix, right: SharedMatrix, k: Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        tile = self.tile
        rows = [left.vector(self.down, k, tile.wide, i * DOWN) for i in range(0, tile.rows, tile.wide)]
        columns = [right.vector(self.across, k, tile.wide, j * ACROSS) for j in range(0, tile.columns, tile.wide)]
        lines = [self._spread(self._element(row, i)) for row in rows for i in range(tile.wide)]
        pairs = [(a, b) for a in lines for b in columns]
        return [multiply_add(a, b, total) for (a, b), total in zip(pairs, sums, strict=True)]

    def results(self, row: Value, column: Value, sums: Sequence[ir.Value]) -> Iterator[tuple[Value, Value, ir.Value]]:
        tile, wide = self.tile, self.tile.wide
        for i in range(tile.rows):
            at = row + (self.down + (i // wide * wide * DOWN + i % wide))
            for j in range(tile.columns):
                beside = column + (self.across + (j // wide * wide * ACROSS + j % wide))
                yield at, beside, self._element(sums[i * tile.columns // wide + j // wide], j % wide)

    def _spread(self, value: ir.Value) -> ir.Value:
        """Return a value in all lanes."""
        return value if self.tile.wide == 1 else spread(value, self.tile.wide)

    def _element(self, value: ir.Value, number: int) -> ir.Value:
        return value if self.tile.wide == 1 else element_at(value, number)


def plan_small_tiles(roles: Roles) -> TiledPlan:
    """Plan any product in the largest tile that leaves no thread and no multiprocessor idle."""
    height, width = map(D.estimate_dim, (roles.rows.extent, roles.columns.extent))
    rows = next((n for n in (4, 2) if height >= n * DOWN), 1)
    columns = next((n for n in (4, 2) if width >= n * ACROSS), 1)
    while rows * columns > 1:
        blocks = D.estimate_dim(roles.batches) * -(-height // (rows * DOWN)) * -(-width // (columns * ACROSS))
        if blocks >= MIN_BLOCKS:
            break
        rows, columns = (rows // 2, columns) if rows >= columns else (rows, columns // 2)
    form = Elements(element_bytes(roles.contraction.product.accumulate_type), 1)
    return TiledPlan(roles, FmaEngine("contraction", FmaTile(rows, columns), (form, form)))


def plan_large_tiles(roles: Roles, units: int) -> TiledPlan | Decline:
    """Plan a product of f32 in large tiles, for a device with this many multiprocessors."""
    kind = str(roles.contraction.product.accumulate_type)
    if kind != "f32":
        return decline("the sums are not f32", type=kind)
    tile = choose_tile(roles, units)
    if tile is None:
        sizes = (roles.batches, roles.rows.extent, roles.columns.extent, roles.depth)
        return decline("it is too small for large tiles", sizes=sizes)
    form = Elements(4, tile.wide)
    return TiledPlan(roles, FmaEngine("large tiles", tile, (form, form)))


def choose_tile(roles: Roles, units: int) -> FmaTile | None:
    """Return the fastest large tile that is more than half full."""
    rows, columns = map(D.estimate_dim, (roles.rows.extent, roles.columns.extent))

    def fits(tile: FmaTile) -> bool:
        return rows > tile.height // 2 and columns > tile.width // 2 and D.is_certain(lambda: roles.depth >= tile.steps)

    return fastest_tile(roles, filter(fits, TILES), attrgetter("shape"), units, MAX_EPILOGUE_OPS)
