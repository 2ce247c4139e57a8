"""Contractions by `tcgen05` (sm_100a): accumulators in tensor memory, products issued by one thread of a warpgroup.

Tensor memory has 128 lanes, one per row, and 512 columns of 32 bits. A warpgroup owns as many columns as its tile has.
Products of a stage arrive at its `empty` barrier when they are done, and those of a tile at the warpgroup's own. Then
its warps load their 32 lanes each, in the fragments of `mma.sync`.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.value import Value, compare, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.loops import for_loop
from mirlo.passes.schedule.vectors import elements_of
from mirlo.targets.gpu.schedule.launch import WARP, barrier, shared
from mirlo.targets.gpu.schedule.roles import Roles
from mirlo.targets.nvvm.options import Options
from mirlo.targets.nvvm.schedule import bulk
from mirlo.targets.nvvm.schedule.in_flight import registers, tied
from mirlo.targets.nvvm.schedule.pipelined import Consumers, PipelinedPlan, ResultTile, WarpgroupTile, plan_pipelined
from mirlo.targets.nvvm.schedule.ring_buffer import GROUP, only
from mirlo.targets.nvvm.schedule.tilemaps import ROW_BYTES, descriptor
from mirlo.targets.nvvm.schedule.units import DEPTH_BYTES, ROWS

LANES = 128
"""Rows of a product, and lanes of tensor memory."""
LANE_SHIFT = 16
"""Position of the lane in an address of tensor memory; the column is below it."""
MIN_COLUMNS = 32
"""Fewest columns of tensor memory that are allocated; always a power of two."""
VERSION = 1 << 46
"""The field in which descriptors differ from those of `wgmma`."""
KINDS = {
    "f16": ("f16", 0), "bf16": ("f16", 1), "tf32": ("tf32", 2), "e4m3": ("f8f6f4", 0), "e5m2": ("f8f6f4", 1),
    "u8": ("i8", 0), "s8": ("i8", 1),
}  # fmt: skip
"""The kind of product of a format, and its number in instruction descriptors."""
SUMS = {"f32": 1, "i32": 2}
"""Number of the accumulator type in instruction descriptors."""
TILES = (
    WarpgroupTile(2, 256, group_rows=LANES),
    WarpgroupTile(1, 256, group_rows=LANES),
    WarpgroupTile(2, 128, group_rows=LANES),
    WarpgroupTile(1, 128, group_rows=LANES),
    WarpgroupTile(1, 64, group_rows=LANES),
)


def plan_tensor_memory(roles: Roles, options: Options) -> PipelinedPlan | Decline:
    """Plan a product with accumulators in tensor memory."""
    if not options.chip.has_tensor_memory:
        return decline("the chip has no tensor memory", chip=options.chip.name)
    return plan_pipelined(roles, options, TILES, TensorMemoryConsumers)


class TensorMemoryConsumers(Consumers):
    """Each warpgroup has 128 rows; its first thread issues their products."""

    name = "tensor memory"
    arrivals = 1
    carried = 1

    @property
    def columns(self) -> int:
        """Return the columns of tensor memory of the block."""
        return max(MIN_COLUMNS, 1 << (self.tile.groups * self.tile.width - 1).bit_length())

    def allocate(self, thread: Value) -> None:
        super().allocate(thread)
        self.address = shared(1, ir.IntegerType.get_signless(32))
        self.done = bulk.Barriers(bulk.address_of(shared(self.tile.groups, ir.IntegerType.get_signless(64))))
        with only(thread.below(1)):
            for group in range(self.tile.groups):
                self.done.make(group, 1)
        with only(thread.below(WARP)):
            operands = [bulk.pointer(bulk.address_of(self.address)), bulk.i32(self.columns)]
            ir.Operation.create("nvvm.tcgen05.alloc", operands=operands)
            ir.Operation.create("nvvm.tcgen05.relinquish_alloc_permit")
        _fence("before")

    def enter(self, number: Value, thread: Value) -> None:
        super().enter(number, thread)
        _fence("after")
        base = memref.LoadOp(self.address, [index(0)]).result
        self.memory_of_group = create("arith.addi", base.type, base, bulk.i32(number * self.tile.width))

    def multiply(self, place: ResultTile, at: list[ir.Value]) -> list[ir.Value]:
        ring, kernel = self.kernel.ring, self.kernel
        slot, parity, phase = map(Value, at)

        def step(first: Value, slot: Value, parity: Value) -> list[ir.Value]:
            ring.full.wait(slot, parity)
            _fence("after")
            left, right = kernel.sides(slot)
            left = left + self.number * (LANES * ROW_BYTES)
            for product in range(ROW_BYTES // DEPTH_BYTES):
                begun = compare("ugt", first, index(0)) if product == 0 else emit_constant(1, _i(1))
                self._product(left, right, product, begun)
            _commit(ring.empty.at(slot))
            return ring.following(slot, parity)

        with only(self.thread.below(1)):
            for_loop(0, self.roles.depth, kernel.step, step, [slot, parity])
            _commit(self.done.at(self.number))
        self.done.wait(self.number, phase)
        _fence("after")
        for half in range(0, WARP, ROWS):
            row = self.warp * WARP + half
            self.store_rows(place, place.row + (self.number * LANES + row), self._totals(row))
        # The next products overwrite what the warps of this group have loaded.
        _fence("before")
        bulk.wait_named_barrier(self.number + 1, GROUP)
        past = slot + index(-(-self.roles.depth // kernel.step))
        rounds = create("arith.divui", past.type, past, index(kernel.slots))
        return [
            create("arith.remui", past.type, past, index(kernel.slots)), _odd(parity + rounds), _odd(phase + 1)
        ]  # fmt: skip

    def leave(self, thread: Value) -> None:
        barrier()
        with only(thread.below(WARP)):
            base = memref.LoadOp(self.address, [index(0)]).result
            ir.Operation.create("nvvm.tcgen05.dealloc", operands=[_pointer(base), bulk.i32(self.columns)])

    def _product(self, left: Value, right: Value, product: int, begun: Value) -> None:
        """Issue a product, added to the accumulators if they are begun."""
        a, b = self.kernel.plan.left, self.kernel.plan.right
        (kind, rows), (_, columns) = KINDS[a.form.name], KINDS[b.form.name]
        described = SUMS[a.form.sums] << 4 | rows << 7 | columns << 10
        described |= (not a.along_k) << 15 | (not b.along_k) << 16 | self.tile.width // 8 << 17 | LANES // 16 << 24
        version = emit_constant(VERSION, _i(64))
        operands = [
            create("arith.ori", version.type, descriptor(f.form, f.along_k, at, product), version)
            for f, at in ((a, left), (b, right))
        ]
        ir.Operation.create(
            "nvvm.tcgen05.mma",
            operands=[_pointer(self.memory_of_group), *operands, bulk.i32(described), begun],
            attributes={
                "kind": ir.Attribute.parse(f"#nvvm.tcgen05_mma_kind<{kind}>"),
                "ctaGroup": ir.Attribute.parse("#nvvm.cta_group<cta_1>"),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, 1, 0, 0]),
            },
        )

    def _totals(self, lane: Value) -> list[ir.Value]:
        """Load 16 lanes of all columns of the warpgroup."""
        i32, kind = _i(32), self.roles.contraction.product.accumulate_type
        place = create("arith.addi", i32, self.memory_of_group, bulk.i32(lane * (1 << LANE_SHIFT)))
        loaded = create(
            "nvvm.tcgen05.ld", ir.VectorType.get([ROWS * self.tile.width // WARP], i32), _pointer(place),
            shape=ir.Attribute.parse("#nvvm.tcgen05_ldst_shape<shape_16x256b>"),
        )  # fmt: skip
        words = registers(
            tied(elements_of(loaded), "tcgen05.wait::ld.sync.aligned;"), i32, self.tile.width * ROWS // WARP
        )
        return words if kind == i32 else [create("arith.bitcast", kind, word) for word in words]


def _i(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def _odd(number: Value) -> Value:
    return create("arith.remui", number.type, number, index(2))


def _pointer(address: ir.Value) -> Value:
    """Convert an address of tensor memory to a pointer."""
    return create("llvm.inttoptr", ir.Type.parse("!llvm.ptr<6>"), address)


def _fence(when: str) -> None:
    """Order products and loads of tensor memory before or after a synchronization of threads."""
    ir.Operation.create("nvvm.tcgen05.fence", attributes={"kind": ir.Attribute.parse(f"#nvvm.tcgen05_fence<{when}>")})


def _commit(barriers: Value) -> None:
    """Arrive at a barrier when all products that this thread has issued are done."""
    ir.Operation.create("nvvm.tcgen05.commit", operands=[barriers])
