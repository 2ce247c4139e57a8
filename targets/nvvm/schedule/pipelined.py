"""The skeleton of contractions by warpgroups: one copies tiles, the others multiply them.

Thread blocks are persistent and compute one output tile after another; copies for the next tile are in flight while
results are stored. Each k-step, 128 bytes of every line, has a pipeline stage in shared memory with two barriers:
`full` completes when all bytes have arrived, `empty` when all consumers are done with them. *Consumers* decide how a
matrix unit multiplies a stage, and where its results are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import static_dim
from mirlo.dialects.core.value import Value, compare, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import either, for_loop, when
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.contraction.staging import Stager
from mirlo.targets.gpu.schedule.contraction.tiled import ProductTile
from mirlo.targets.gpu.schedule.costs import Shape, fastest_tile
from mirlo.targets.gpu.schedule.launch import WARP, Ids, launch, shared, split
from mirlo.targets.gpu.schedule.product_leaves import EpilogueEmitter, ProductLeaves
from mirlo.targets.gpu.schedule.roles import Roles, values_of
from mirlo.targets.nvvm.options import Options
from mirlo.targets.nvvm.schedule import bulk, copies
from mirlo.targets.nvvm.schedule.fragments import PAIR, Lane
from mirlo.targets.nvvm.schedule.gathered_operand import GatheredOperand, SwizzledMatrix, gathered
from mirlo.targets.nvvm.schedule.results import WARP_BYTES, WarpRowStores, row_store_type
from mirlo.targets.nvvm.schedule.ring_buffer import GROUP, PRODUCT_ROWS, RESERVED_BYTES, Ring, only
from mirlo.targets.nvvm.schedule.tensorcore import formats_of
from mirlo.targets.nvvm.schedule.tilemaps import ROW_BYTES, MappedMatrix, mapped
from mirlo.targets.nvvm.schedule.units import COLUMNS

STAGES = 8
"""Most pipeline stages."""
COPYING_REGISTERS, MULTIPLYING_REGISTERS = 40, 232
"""Registers per producer and per consumer thread; together all of a multiprocessor."""
GATHERING_REGISTERS, BESIDE_GATHERING = 120, 192
"""The same if producer threads gather, and keep the addresses of their lines."""
PRODUCER_LAG = 2
"""k-steps after which producers wait for their own copies."""
MAX_EPILOGUE_OPS = 4000
"""Most operations of an epilogue over all accumulators of a thread; tiles are narrower above it."""
PRODUCTS = 2.95e12
"""Multiply-adds of 16-bit operands per second and multiprocessor, in any tile: `costs.Shape`."""
GATHERED_STEP = 4e-9
"""Seconds of a k-step in which producer threads gather an operand."""
L2_TILE_ROWS = 16
"""Rows of tiles computed at about the same time, which share operands in the L2 cache."""


@dataclass(frozen=True)
class WarpgroupTile:
    """The tile of a thread block: rows by columns, as many rows per warpgroup as a product has."""

    groups: int
    width: int
    speed: float = 1.0
    """Of what other tiles reach."""
    together: int = 1
    """Thread blocks of a cluster, stacked along rows: each copies a part of the shared columns to all."""
    group_rows: int = PRODUCT_ROWS

    @property
    def height(self) -> int:
        return self.groups * self.group_rows

    @property
    def accumulators(self) -> int:
        return self.group_rows * self.width // GROUP

    def high(self, roles: Roles) -> int:
        """Return the tiles along the rows."""
        return -(-static_dim(roles.rows.extent) // (self.height * self.together)) * self.together

    @property
    def threads(self) -> int:
        return (self.groups + 1) * GROUP


@dataclass(frozen=True)
class PipelinedPlan:
    """A contraction and its elementwise epilogue by warpgroups."""

    roles: Roles
    left: MappedMatrix | GatheredOperand
    right: MappedMatrix
    tile: WarpgroupTile
    options: Options
    consumers: type[Consumers]

    @property
    def name(self) -> str:
        return self.consumers.name

    @property
    def shape(self) -> Shape:
        """Return the properties of the plan that its cost depends on."""
        return tile_shape(self.tile, self.roles, self.left)

    def with_tile(self, tile: ProductTile) -> PipelinedPlan:
        """Return the plan with another tile."""
        assert isinstance(tile, WarpgroupTile)
        return replace(self, tile=tile)

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        PipelinedKernel(self, memory).emit()


def plan_pipelined(
    roles: Roles, options: Options, tiles: tuple[WarpgroupTile, ...], consumers: type[Consumers]
) -> PipelinedPlan | Decline:
    """Plan a product with the best of these tiles."""
    operands = operands_of(roles, options)
    if isinstance(operands, Decline):
        return operands
    tile = best_tile(roles, tiles, options.chip.units, operands[0])
    return tile if isinstance(tile, Decline) else PipelinedPlan(roles, *operands, tile, options, consumers)


def operands_of(roles: Roles, options: Options) -> tuple[MappedMatrix | GatheredOperand, MappedMatrix] | Decline:
    """Return the operands of a product as producers copy them."""
    formats = formats_of(roles, options)
    if isinstance(formats, Decline):
        return formats
    contraction = roles.contraction
    if emit_init(contraction.block, contraction.product.accumulate_type).value:
        return decline("the sums do not start from zero")
    left: MappedMatrix | GatheredOperand | Decline = mapped(roles, roles.rows, formats[0])
    if isinstance(left, Decline):
        by_threads = gathered(roles, roles.rows, formats[0])
        if isinstance(by_threads, Decline):
            return decline(f"{left}; {by_threads}")
        left = by_threads
    right = mapped(roles, roles.columns, formats[1])
    return right if isinstance(right, Decline) else (left, right)


def tile_shape(tile: WarpgroupTile, roles: Roles, left: MappedMatrix | GatheredOperand) -> Shape:
    """Return the properties of a tile that the cost depends on."""
    step = tile.height * tile.width / (PRODUCTS * tile.speed) * left.form.bytes / 2
    if isinstance(left, GatheredOperand):
        step += GATHERED_STEP
    # A cluster may have blocks beyond the last row.
    step *= tile.high(roles) / -(-static_dim(roles.rows.extent) // tile.height)
    return Shape(tile.height, tile.width, tile.height * tile.width / step)


def best_tile(
    roles: Roles, tiles: tuple[WarpgroupTile, ...], units: int, left: MappedMatrix | GatheredOperand
) -> WarpgroupTile | Decline:
    """Return the fastest tile."""
    tile = fastest_tile(roles, tiles, partial(tile_shape, roles=roles, left=left), units, MAX_EPILOGUE_OPS)
    return tile or decline("its epilogue is too long for all tiles")


class Consumers:
    """The warpgroups of a block that multiply tiles."""

    name: str
    arrivals: int
    """Arrivals of a warpgroup that release a stage."""
    carried = 0
    """Phases from tile to tile beside that of the stages."""

    def __init__(self, kernel: PipelinedKernel):
        self.kernel = kernel
        self.roles, self.tile, self.leaves = kernel.roles, kernel.tile, kernel.leaves
        self.result = row_store_type(self.roles)

    @property
    def shared_bytes(self) -> int:
        """Return the bytes of shared memory where results are assembled."""
        return self.tile.groups * (GROUP // WARP) * WARP_BYTES if self.result else 0

    def allocate(self, thread: Value) -> None:
        """Allocate memory, before all threads of the block synchronize."""
        if self.result:
            self.results = shared(self.shared_bytes // element_bytes(self.result), self.result)

    def enter(self, number: Value, thread: Value) -> None:
        """Begin, with the number of the warpgroup and of the thread in it."""
        self.number, self.thread = number, thread
        self.warp, lane = split(thread, [GROUP // WARP, WARP])
        self.lane = Lane.of(lane)

    def multiply(self, place: ResultTile, at: list[ir.Value]) -> list[ir.Value]:
        """Compute a tile from its stages; `at` is the first one with its phase. Return those after it."""
        raise NotImplementedError

    def leave(self, thread: Value) -> None:
        """End, after the last tile; all threads of the block take part."""

    def store_rows(self, place: ResultTile, row: Value, totals: Sequence[ir.Value]) -> None:
        """Store 16 rows of this warp, given the first one and this thread's fragments of all columns."""
        if self.result:
            warp = self.number * (GROUP // WARP) + self.warp
            lines = WarpRowStores(self.leaves, self.lane, self.results, warp)
            lines.store(place.batch, row, place.column, list(zip(totals[::2], totals[1::2], strict=True)))
            return
        high = self.tile.height * self.tile.together
        finisher = EpilogueEmitter(self.leaves, place.batch, high, self.tile.width)
        places = self.lane.result_positions()
        for j in range(self.tile.width // COLUMNS):
            for down, across, (half, i) in places:
                total = totals[len(places) * j + PAIR * half + i]
                finisher.store(row + down, place.column + (across + j * COLUMNS), total)


@dataclass(frozen=True)
class ResultTile:
    """A tile of the result."""

    batch: dict[int, Value]
    row: Value
    column: Value


class PipelinedKernel:
    """One kernel of producers and consumers."""

    def __init__(self, plan: PipelinedPlan, memory: TensorBuffers):
        self.plan = plan
        self.roles, self.tile, self.memory = plan.roles, plan.tile, memory
        self.leaves = ProductLeaves(plan.roles, memory)
        self.high = plan.tile.high(plan.roles)
        self.wide = -(-static_dim(plan.roles.columns.extent) // plan.tile.width)
        self.tiles = static_dim(plan.roles.batches) * self.high * self.wide
        # Blocks of a cluster have stacked tiles: a cluster processes one such column of tiles after another.
        self.together = plan.tile.together
        self.clusters = min(plan.options.chip.units, self.tiles) // self.together
        self.shared_lines = plan.tile.width // self.together
        self.left_bytes = plan.tile.height * ROW_BYTES
        self.slot_bytes = self.left_bytes + plan.tile.width * ROW_BYTES
        self.consumers = plan.consumers(self)
        free = plan.options.chip.shared_bytes - RESERVED_BYTES - self.consumers.shared_bytes
        self.slots = min(STAGES, free // self.slot_bytes)
        self.step = ROW_BYTES // plan.left.form.bytes
        self.gathers = isinstance(plan.left, GatheredOperand)

    def emit(self) -> None:
        if isinstance(self.plan.left, MappedMatrix):
            self.left_map = self.plan.left.tensor_map(self.memory, self.tile.height)
        self.right_map = self.plan.right.tensor_map(self.memory, self.shared_lines)
        launch(self.clusters * self.together, self.tile.threads, self._block)

    def _block(self, ids: Ids) -> None:
        slots = shared(self.slots * self.slot_bytes, ir.IntegerType.get_signless(8))
        states = shared(2 * self.slots, ir.IntegerType.get_signless(64))
        self.slots_memory = slots
        self.consumers.allocate(ids.thread)
        self.ring = Ring.of(bulk.address_of(slots), self.slot_bytes, self.slots, bulk.address_of(states))
        with only(ids.thread.below(1)):
            arrivals = self.together * self.tile.groups * self.consumers.arrivals
            self.ring.make(1 + (GROUP if self.gathers else 0), arrivals)
            bulk.publish_barriers()
        bulk.synchronize(self.together > 1)
        cluster, self.rank = split(ids.block, [self.clusters, self.together])
        group, own = split(ids.thread, [self.tile.groups + 1, GROUP])

        def produce() -> None:
            bulk.set_registers(GATHERING_REGISTERS if self.gathers else COPYING_REGISTERS, more=False)
            self.thread = own
            each = partial(self._each_tile, cluster, [1], self._gather if self.gathers else self._copy)
            when(None if self.gathers else ids.thread.below(1), each)

        def consume() -> None:
            bulk.set_registers(BESIDE_GATHERING if self.gathers else MULTIPLYING_REGISTERS, more=True)
            self.consumers.enter(create("arith.subi", group.type, group, index(1)), own)
            self._each_tile(cluster, [0] * (1 + self.consumers.carried), self.consumers.multiply)

        either(group.below(1), produce, consume)
        self.consumers.leave(ids.thread)
        if self.together > 1:
            # No block may exit while others copy to it or arrive at its barriers.
            bulk.synchronize(cluster=True)

    # Tiles and stages, in the same order for producers and consumers

    def _each_tile(
        self, cluster: Value, phases: list[int], body: Callable[[ResultTile, list[ir.Value]], list[ir.Value]]
    ) -> None:
        """Run `body` for each tile of a block, with the next stage and phases; it returns those after it."""

        def one(tile: Value, *at: Value) -> list[ir.Value]:
            return body(self._result_tile(tile), list(at))

        for_loop(cluster, self.tiles // self.together, self.clusters, one, [index(0), *map(index, phases)])

    def _result_tile(self, tile: Value) -> ResultTile:
        """Return where a tile is; those of a cluster count as one."""
        high = self.high // self.together
        near = next(n for n in range(min(L2_TILE_ROWS // self.together, high), 0, -1) if high % n == 0)
        batch, outer, across, inner = split(tile, [self.roles.batches, high // near, self.wide, near])
        down = (outer * near + inner) * self.together + self.rank
        values = values_of(self.roles.batch, batch)
        return ResultTile(values, down * self.tile.height, across * self.tile.width)

    def sides(self, slot: ir.Value) -> tuple[Value, Value]:
        """Return the addresses of both operands' tiles."""
        left = self.ring.at(slot)
        return left, left + self.left_bytes

    # Producer: one thread of its warpgroup

    def _copy(self, place: ResultTile, at: list[ir.Value]) -> list[ir.Value]:
        operand = self.plan.left
        assert isinstance(operand, MappedMatrix)

        def step(first: Value, slot: Value, parity: Value) -> list[ir.Value]:
            self.ring.empty.wait(slot, parity)
            self.ring.full.expect(slot, self.slot_bytes)
            left, _ = self.sides(slot)
            corner = (place.row, first, place.batch)
            operand.copy(self.left_map, left, self.tile.height, corner, self.ring.full, slot)
            self._copy_columns(place, first, slot)
            return self.ring.following(slot, parity)

        return for_loop(0, self.roles.depth, self.step, step, at)

    def _copy_columns(self, place: ResultTile, first: Value, slot: Value) -> None:
        """Copy the shared columns to all blocks of a cluster; each block copies a part."""
        _, right = self.sides(slot)
        part = self.rank * self.shared_lines
        mine, corner = right + part * ROW_BYTES, (place.column + part, first, place.batch)
        self.plan.right.copy(self.right_map, mine, self.shared_lines, corner, self.ring.full, slot, self.together)

    # Producer that gathers rows: all threads of its warpgroup

    def _gather(self, place: ResultTile, at: list[ir.Value]) -> list[ir.Value]:
        operand = self.plan.left
        assert isinstance(operand, GatheredOperand)
        element, form = operand.side.access.element_type, operand.form
        kind = self.slots_memory.type
        whole = ir.MemRefType.get([kind.shape[0] // form.bytes], element, memory_space=kind.memory_space)
        numbers = create("memref.view", whole, self.slots_memory, index(0))
        apart = self.slot_bytes // form.bytes
        matrix = SwizzledMatrix(numbers, self.tile.height, self.step, True, form, apart=apart)
        stager = Stager(
            self.leaves, operand.side, form, place.batch, place.row, matrix.lines, matrix.depth,
            self.thread, GROUP, copies.async_copy, stacked=self.together,
        )  # fmt: skip
        loads = stager.straight(matrix, form.vector, along_k=True)
        later = min(PRODUCER_LAG, -(-static_dim(self.roles.depth) // self.step))

        def step(first: Value, slot: Value, parity: Value) -> list[ir.Value]:
            self.ring.empty.wait(slot, parity)
            with only(self.thread.below(1)):
                self.ring.full.expect(slot, self.slot_bytes - self.left_bytes)
                self._copy_columns(place, first, slot)
            for load in loads:
                assert load.copy is not None
                load.copy(first, slot)
            copies.commit()
            self._arrived(later)
            with only(compare("uge", first, index(later * self.step))):
                self.ring.full.arrive(self.ring.before(slot, later))
            return self.ring.following(slot, parity)

        slot, parity = for_loop(0, self.roles.depth, self.step, step, at)
        self._arrived(0)
        for number in range(later, 0, -1):
            self.ring.full.arrive(self.ring.before(slot, number))
        return [slot, parity]

    @staticmethod
    def _arrived(under_way: int) -> None:
        """Wait for this thread's copies except those of this many k-steps, and make them visible to products."""
        copies.wait(under_way)
        bulk.publish_copies()
