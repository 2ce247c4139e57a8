"""Contractions by warpgroups (`wgmma`, sm_90a): a producer warpgroup copies tiles, consumers multiply them.

Thread blocks are persistent and compute one output tile after another; copies for the next tile are in flight while
results are stored. Each k-step, 128 bytes of every line, has a pipeline stage in shared memory with two barriers:
`full` completes when all bytes have arrived, `empty` when all warps have consumed them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.scalars import compare
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations, emit_init
from mirlo.passes.schedule.blocks.evaluate import TensorBuffers
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.gpu.schedule.contraction.staging import Stager
from mirlo.targets.gpu.schedule.costs import MATRIX_UNITS, Shape
from mirlo.targets.gpu.schedule.epilogue import EpilogueEmitter, touch
from mirlo.targets.gpu.schedule.launch import Ids, add, launch, less, multiply, shared, split
from mirlo.targets.gpu.schedule.roles import Roles, values_of
from mirlo.targets.nvvm.options import Options
from mirlo.targets.nvvm.schedule import bulk, copies
from mirlo.targets.nvvm.schedule.fragments import PAIR, WARP, Lane
from mirlo.targets.nvvm.schedule.gathered_operand import GatheredOperand, SwizzledMatrix, gathered
from mirlo.targets.nvvm.schedule.in_flight import after_wait, registers, zeros
from mirlo.targets.nvvm.schedule.results import WARP_BYTES, WarpRowStores, row_store_type
from mirlo.targets.nvvm.schedule.ring_buffer import GROUP, PRODUCT_ROWS, RESERVED_BYTES, Ring, only
from mirlo.targets.nvvm.schedule.tensorcore import formats_of
from mirlo.targets.nvvm.schedule.tilemaps import ROW_BYTES, MappedOperand, descriptor, mapped
from mirlo.targets.nvvm.schedule.units import COLUMNS, DEPTH_BYTES, ROWS

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
L2_TILE_ROWS = 16
"""Rows of tiles computed at about the same time, which share operands in the L2 cache."""


@dataclass(frozen=True)
class WarpgroupTile:
    """The tile of a thread block: rows by columns, 64 rows per warpgroup."""

    groups: int
    width: int
    speed: float
    """Estimated share of the matrix units' peak: narrow tiles wait for shared memory."""
    together: int = 1
    """Thread blocks of a cluster, stacked along rows: each copies a part of the shared columns to all."""

    @property
    def height(self) -> int:
        return self.groups * PRODUCT_ROWS

    def high(self, roles: Roles) -> int:
        """Return the tiles along the rows."""
        return -(-roles.rows.extent // (self.height * self.together)) * self.together

    @property
    def threads(self) -> int:
        return (self.groups + 1) * GROUP


TILES = (
    WarpgroupTile(2, 256, 1.0, together=2),
    WarpgroupTile(2, 256, 0.92),
    WarpgroupTile(2, 192, 0.88),
    WarpgroupTile(2, 128, 0.88, together=2),
    WarpgroupTile(2, 128, 0.82),
    WarpgroupTile(2, 64, 0.65),
    WarpgroupTile(1, 128, 0.6),
    WarpgroupTile(1, 64, 0.5),
)


@dataclass(frozen=True)
class WarpgroupPlan:
    """A contraction and its elementwise epilogue by warpgroups."""

    name = "warpgroups"

    roles: Roles
    left: MappedOperand | GatheredOperand
    right: MappedOperand
    tile: WarpgroupTile
    options: Options

    @property
    def shape(self) -> Shape:
        """Return what a thread block computes, and how fast."""
        return Shape(self.tile.height, self.tile.width, MATRIX_UNITS)

    def with_tile(self, tile: WarpgroupTile) -> WarpgroupPlan:
        """Return the plan with another tile."""
        return replace(self, tile=tile)

    def emit(self, memory: TensorBuffers) -> None:
        """Emit the launch at the insertion point."""
        touch(self.roles.contraction, memory)
        _Kernel(self, memory).emit()


def plan_warpgroups(roles: Roles, options: Options) -> WarpgroupPlan | Decline:
    """Plan a product by warpgroups."""
    if not options.chip.has_warpgroups:
        return decline("the chip has no products of warpgroups", chip=options.chip.name)
    formats = formats_of(roles, options)
    if isinstance(formats, Decline):
        return formats
    contraction = roles.contraction
    if emit_init(contraction.block, contraction.product.accumulate_type).value:
        return decline("the sums do not start from zero")
    left: Any = mapped(roles, roles.rows, formats[0])
    if isinstance(left, Decline):
        by_threads = gathered(roles, roles.rows, formats[0])
        if isinstance(by_threads, Decline):
            return decline(f"{left}; {by_threads}")
        left = by_threads
    right = mapped(roles, roles.columns, formats[1])
    if isinstance(right, Decline):
        return right
    tile = choose_tile(roles, options.chip.units)
    if tile is None:
        sizes = (roles.batches, roles.rows.extent, roles.columns.extent)
        return decline("there are too few tiles for the chip's units, or its epilogue is too long", sizes=sizes)
    return WarpgroupPlan(roles, left, right, tile, options)


def choose_tile(roles: Roles, units: int) -> WarpgroupTile | None:
    """Return the tile with the best utilization of the matrix units."""
    heavy = count_operations([stage.block for stage in roles.contraction.stages])
    best, most = None, 0.0
    for tile in TILES:
        count = roles.batches * tile.high(roles) * -(-roles.columns.extent // tile.width)
        if 4 * count < units or heavy * tile.width // 2 > MAX_EPILOGUE_OPS:
            continue
        rounds = -(-count // (units // tile.together * tile.together))
        useful = roles.batches * roles.rows.extent * roles.columns.extent
        share = tile.speed * useful / (rounds * units * tile.height * tile.width)
        if share > most:
            best, most = tile, share
    return best


class _Kernel:
    def __init__(self, plan: WarpgroupPlan, memory: TensorBuffers):
        self.plan = plan
        self.roles, self.tile, self.memory = plan.roles, plan.tile, memory
        self.high = plan.tile.high(plan.roles)
        self.wide = -(-plan.roles.columns.extent // plan.tile.width)
        self.tiles = plan.roles.batches * self.high * self.wide
        # Blocks of a cluster have stacked tiles: a cluster processes one such column of tiles after another.
        self.together = plan.tile.together
        self.clusters = min(plan.options.chip.units, self.tiles) // self.together
        self.shared_lines = plan.tile.width // self.together
        self.left_bytes = plan.tile.height * ROW_BYTES
        self.slot_bytes = self.left_bytes + plan.tile.width * ROW_BYTES
        self.result = row_store_type(plan.roles)
        self.results_bytes = plan.tile.groups * (GROUP // WARP) * WARP_BYTES if self.result else 0
        free = plan.options.chip.shared_bytes - RESERVED_BYTES - self.results_bytes
        self.slots = min(STAGES, free // self.slot_bytes)
        self.step = ROW_BYTES // plan.left.form.bytes
        self.gathers = isinstance(plan.left, GatheredOperand)

    def emit(self) -> None:
        if isinstance(self.plan.left, MappedOperand):
            self.left_map = self.plan.left.tensor_map(self.memory, self.tile.height)
        self.right_map = self.plan.right.tensor_map(self.memory, self.shared_lines)
        launch(self.clusters * self.together, self.tile.threads, self._block)

    def _block(self, ids: Ids) -> None:
        slots = shared(self.slots * self.slot_bytes, ir.IntegerType.get_signless(8))
        states = shared(2 * self.slots, ir.IntegerType.get_signless(64))
        self.slots_memory = slots
        if self.result:
            self.results = shared(self.results_bytes // element_bytes(self.result), self.result)
        self.ring = Ring.of(bulk.address_of(slots), self.slot_bytes, self.slots, bulk.address_of(states))
        with only(less(ids.thread, 1)):
            self.ring.make(1 + (GROUP if self.gathers else 0), self.together * self.tile.groups * (GROUP // WARP))
            bulk.publish_barriers()
        bulk.synchronize(self.together > 1)
        cluster, self.rank = split(ids.block, [self.clusters, self.together])
        group, own = split(ids.thread, [self.tile.groups + 1, GROUP])
        branch = scf.IfOp(less(group, 1), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            bulk.set_registers(GATHERING_REGISTERS if self.gathers else COPYING_REGISTERS, more=False)
            if self.gathers:
                self.thread = own
                self._each_tile(cluster, 1, self._gather)
            else:
                with only(less(ids.thread, 1)):
                    self._each_tile(cluster, 1, self._copy)
            scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            bulk.set_registers(BESIDE_GATHERING if self.gathers else MULTIPLYING_REGISTERS, more=True)
            self.number = create("arith.subi", group.type, group, index(1))
            warp, lane = split(own, [GROUP // WARP, WARP])
            self.warp, self.lane = warp, Lane.of(lane)
            self._each_tile(cluster, 0, self._multiply)
            scf.YieldOp([])
        if self.together > 1:
            # No block may exit while others copy to it or arrive at its barriers.
            bulk.synchronize(cluster=True)

    # Tiles and stages, in the same order for producers and consumers

    def _each_tile(self, cluster: ir.Value, turn: int, body: Callable[[Any, list[Any]], list[Any]]) -> None:
        """Run `body` for each tile of a block, with the next stage and phase; it returns those after it."""

        def one(tile: ir.Value, *at: ir.Value) -> list[ir.Value]:
            return body(self._place(tile), list(at))

        for_loop(cluster, self.tiles // self.together, self.clusters, one, [index(0), index(turn)])

    def _place(self, tile: ir.Value) -> tuple[dict[int, Any], Any, Any]:
        """Return the batch, first row and first column of a tile; those of a cluster count as one."""
        high = self.high // self.together
        near = next(n for n in range(min(L2_TILE_ROWS // self.together, high), 0, -1) if high % n == 0)
        batch, outer, across, inner = split(tile, [self.roles.batches, high // near, self.wide, near])
        down = add(multiply(add(multiply(outer, near), inner), self.together), self.rank)
        values = values_of(self.roles.batch, batch)
        return values, multiply(down, self.tile.height), multiply(across, self.tile.width)

    def _sides(self, slot: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the addresses of both operands' tiles."""
        left = self.ring.at(slot)
        return left, add(left, self.left_bytes)

    # Producer: one thread of its warpgroup

    def _copy(self, place: Any, at: list[ir.Value]) -> list[Any]:
        values, row, _ = place
        factor = self.plan.left
        assert isinstance(factor, MappedOperand)

        def step(first: Any, slot: Any, turn: Any) -> list[Any]:
            self.ring.empty.wait(slot, turn)
            self.ring.full.expect(slot, self.slot_bytes)
            left, _ = self._sides(slot)
            factor.copy(self.left_map, left, self.tile.height, (row, first, values), self.ring.full, slot)
            self._copy_columns(place, first, slot)
            return self.ring.following(slot, turn)

        return for_loop(0, self.roles.depth, self.step, step, at)

    def _copy_columns(self, place: Any, first: Any, slot: Any) -> None:
        """Copy the shared columns to all blocks of a cluster; each block copies a part."""
        values, _, column = place
        _, right = self._sides(slot)
        part = multiply(self.rank, self.shared_lines)
        mine, corner = add(right, multiply(part, ROW_BYTES)), (add(column, part), first, values)
        self.plan.right.copy(self.right_map, mine, self.shared_lines, corner, self.ring.full, slot, self.together)

    # Producer that gathers rows: all threads of its warpgroup

    def _gather(self, place: Any, at: list[ir.Value]) -> list[Any]:
        values, row, _ = place
        factor = self.plan.left
        assert isinstance(factor, GatheredOperand)
        element, size = factor.side.access.element_type, factor.form.bytes
        kind = self.slots_memory.type
        whole = ir.MemRefType.get([kind.shape[0] // size], element, memory_space=kind.memory_space)
        numbers = create("memref.view", whole, self.slots_memory, index(0))
        matrix = SwizzledMatrix(numbers, self.tile.height, self.step, True, factor.form, apart=self.slot_bytes // size)
        stager = Stager(
            self.roles, factor.side, self.memory, factor.form, values, row, matrix.lines, matrix.depth, self.thread,
            GROUP, copies.async_copy, stacked=self.together,
        )  # fmt: skip
        loads = stager.straight(matrix, factor.form.vector, along_k=True)
        later = min(PRODUCER_LAG, -(-self.roles.depth // self.step))

        def step(first: Any, slot: Any, turn: Any) -> list[Any]:
            self.ring.empty.wait(slot, turn)
            with only(less(self.thread, 1)):
                self.ring.full.expect(slot, self.slot_bytes - self.left_bytes)
                self._copy_columns(place, first, slot)
            for load in loads:
                assert load.copy is not None
                load.copy(first, slot)
            copies.commit()
            self._arrived(later)
            with only(compare("uge", first, index(later * self.step))):
                self.ring.full.arrive(self.ring.before(slot, later))
            return self.ring.following(slot, turn)

        slot, turn = for_loop(0, self.roles.depth, self.step, step, at)
        self._arrived(0)
        for number in range(later, 0, -1):
            self.ring.full.arrive(self.ring.before(slot, number))
        return [slot, turn]

    @staticmethod
    def _arrived(under_way: int) -> None:
        """Wait for this thread's copies except those of this many k-steps, and make them visible to products."""
        copies.wait(under_way)
        bulk.publish_copies()

    # Consumers

    def _multiply(self, place: Any, at: list[ir.Value]) -> list[Any]:
        def step(sums: Any, slot: Any, turn: Any, begins: bool) -> Any:
            self.ring.full.wait(slot, turn)
            bulk.begin_products()
            left, right = self._sides(slot)
            left = add(left, multiply(self.number, PRODUCT_ROWS * ROW_BYTES))
            for product in range(ROW_BYTES // DEPTH_BYTES):
                sums = self._product(sums, left, right, product, begins and product == 0)
            bulk.end_products(under_way=1)
            return sums

        def following(_: Any, sums: Any, slot: Any, turn: Any) -> list[ir.Value]:
            sums = step(sums, slot, turn, False)
            # The products of the previous k-step are done: their stage may be overwritten.
            self._release(self.ring.before(slot, 1))
            return [sums, *self.ring.following(slot, turn)]

        start = zeros(self.roles.contraction.product.accumulate_type, self.tile.width // 2)
        slot, turn = at
        begun = [step(start, slot, turn, True), *self.ring.following(slot, turn)]
        sums, slot, turn = for_loop(self.step, self.roles.depth, self.step, following, begun)
        bulk.wait_for_products(0)
        kind = self.roles.contraction.product.accumulate_type
        totals = after_wait(registers(sums, kind, self.tile.width // 2))
        self._release(self.ring.before(slot, 1))
        self._finish(place, totals)
        return [slot, turn]

    def _release(self, slot: ir.Value) -> None:
        """Let each warp signal all producers that it has consumed a stage."""
        with only(less(self.lane.number, self.together)):
            if self.together > 1:
                self.ring.empty.arrive_at(slot, self.lane.number)
            else:
                self.ring.empty.arrive(slot)

    def _product(self, sums: ir.Value, left: ir.Value, right: ir.Value, product: int, begins: bool) -> Value:
        a, b = self.plan.left, self.plan.right
        total = {"f32": "f32", "i32": "s32"}[a.form.sums]
        shape = f"#nvvm.shape<m = {PRODUCT_ROWS}, n = {self.tile.width}, k = {a.form.depth}>"
        text = {
            "shape": shape, "typeA": f"#nvvm.wgmma_type<{a.form.name}>", "typeB": f"#nvvm.wgmma_type<{b.form.name}>",
            "typeD": f"#nvvm.wgmma_type<{total}>", "scaleD": f"#nvvm.wgmma_scale_out<{'zero' if begins else 'one'}>",
            "scaleA": "#nvvm.wgmma_scale_in<one>", "scaleB": "#nvvm.wgmma_scale_in<one>",
            "layoutA": f"#nvvm.mma_layout<{'row' if a.along_k else 'col'}>",
            "layoutB": f"#nvvm.mma_layout<{'col' if b.along_k else 'row'}>",
        }  # fmt: skip
        attributes = {name: ir.Attribute.parse(value) for name, value in text.items()}
        operands = [descriptor(f.form, f.along_k, at, product) for f, at in ((a, left), (b, right))]
        return create("nvvm.wgmma.mma_async", sums.type, sums, *operands, **attributes)

    def _finish(self, place: Any, totals: list[Value]) -> None:
        values, row, column = place
        row = add(row, add(multiply(self.number, PRODUCT_ROWS), multiply(self.warp, ROWS)))
        if self.result:
            warp = add(multiply(self.number, GROUP // WARP), self.warp)
            lines = WarpRowStores(self.roles, self.memory, self.lane, self.results, warp)
            lines.store(values, row, column, list(zip(totals[::2], totals[1::2], strict=True)))
            return
        high = self.tile.height * self.together
        finisher = EpilogueEmitter(self.roles, self.memory, values, high, self.tile.width)
        places = self.lane.places()
        for j in range(self.tile.width // COLUMNS):
            for down, across, (half, i) in places:
                total = totals[len(places) * j + PAIR * half + i]
                finisher.store(add(row, down), add(column, add(across, j * COLUMNS)), total)
