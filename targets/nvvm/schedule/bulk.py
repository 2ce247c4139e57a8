"""Asynchronous operations of a thread block: tile copies, transaction barriers, warpgroup products.

Shared memory is addressed by integers, as in the descriptors of these instructions.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.schedule.launch import barrier

_TICKS = 10_000_000
"""Longest sleep of a thread at a barrier before it checks again, in nanoseconds."""


def _i(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def i32(value: ir.Value | int) -> Value:
    """Convert an integer or index to 32 bits."""
    if isinstance(value, int):
        return emit_constant(value, _i(32))
    return create("arith.index_cast", _i(32), value)


def address_of(memory: Value) -> Value:
    """Return the address of shared memory."""
    return create("memref.extract_aligned_pointer_as_index", ir.IndexType.get(), memory)


def pointer(address: Value) -> Value:
    """Convert a shared-memory address to a pointer."""
    number = create("arith.index_cast", _i(64), address)
    return create("llvm.inttoptr", ir.Type.parse("!llvm.ptr<3>"), number)


@dataclass(frozen=True)
class Barriers:
    """Transaction barriers in shared memory, 8 bytes each; waits alternate between even and odd phases."""

    address: Value

    def at(self, number: ir.Value) -> Value:
        return pointer(self.address + Value(number) * 8)

    def make(self, number: int, arrivals: int) -> None:
        """Initialize a barrier for this many arrivals; it completes after them and all expected bytes."""
        ir.Operation.create("nvvm.mbarrier.init", operands=[self.at(index(number)), i32(arrivals)])

    def arrive(self, number: ir.Value) -> None:
        """Arrive; every executing thread counts."""
        ir.Operation.create("nvvm.mbarrier.arrive", operands=[self.at(number)])

    def arrive_at(self, number: Value, rank: Value) -> None:
        """Arrive at the same barrier of a block of this cluster, after waiting for products.

        No writes of this thread need to be visible there; with cluster scope the arrival would wait for a fence of
        the whole GPU.
        """
        there = create("nvvm.mapa", ir.Type.parse("!llvm.ptr<7>"), self.at(number), i32(rank))
        ir.Operation.create("nvvm.mbarrier.arrive", operands=[there])

    def expect(self, number: ir.Value, count: int) -> None:
        """Arrive, and announce incoming bytes."""
        ir.Operation.create("nvvm.mbarrier.arrive.expect_tx", operands=[self.at(number), i32(count)])

    def wait(self, number: ir.Value, parity: ir.Value) -> None:
        """Wait until the phase of this parity is complete; the one before the first is."""
        ir.Operation.create("nvvm.mbarrier.try_wait.parity", operands=[self.at(number), i32(parity), i32(_TICKS)])


def publish_copies() -> None:
    """Make this thread's completed copies visible to warpgroup products."""
    attributes = {
        "kind": ir.Attribute.parse("#nvvm.proxy_kind<async.shared>"),
        "space": ir.Attribute.parse("#nvvm.shared_space<cta>"),
    }
    ir.Operation.create("nvvm.fence.proxy", attributes=attributes)


def publish_barriers() -> None:
    """Make initialized barriers visible to the copy engine."""
    ir.Operation.create("nvvm.fence.mbarrier.init")


def synchronize(cluster: bool) -> None:
    """Synchronize all threads of the block, or of the cluster."""
    if not cluster:
        barrier()
        return
    ir.Operation.create("nvvm.cluster.arrive")
    ir.Operation.create("nvvm.cluster.wait")


def copy_tile(
    target: Value,
    tensor_map: Value,
    corner: list[ir.Value],
    barriers: Barriers,
    number: ir.Value,
    blocks: int = 1,
) -> None:
    """Start the copy of a tile: destination, tensor map, and its first index in each dim, innermost first.

    With several blocks it is multicast to the same address in each block of the cluster, and counts at its barrier.
    """
    cluster = create("llvm.addrspacecast", ir.Type.parse("!llvm.ptr<7>"), pointer(target))
    source = create("builtin.unrealized_conversion_cast", ir.Type.parse("!llvm.ptr"), tensor_map)
    everyone = [emit_constant((1 << blocks) - 1, _i(16))] if blocks > 1 else []
    segments = ir.DenseI32ArrayAttr.get([1, 1, len(corner), 1, 0, len(everyone), 0, 0])
    ir.Operation.create(
        "nvvm.cp.async.bulk.tensor.shared.cluster.global",
        operands=[cluster, source, *map(i32, corner), barriers.at(number), *everyone],
        attributes={"operandSegmentSizes": segments},
    )


def set_registers(count: int, more: bool) -> None:
    """Change the number of registers of each thread of this warpgroup."""
    action = ir.Attribute.parse(f"#nvvm<action {'increase' if more else 'decrease'}>")
    number = ir.IntegerAttr.get(_i(32), count)
    ir.Operation.create("nvvm.setmaxregister", attributes={"regCount": number, "action": action})


def begin_products() -> None:
    """Order register writes before the products that follow."""
    ir.Operation.create("nvvm.wgmma.fence.aligned")


def end_products(under_way: int) -> None:
    """Commit the products since the last commit as a group, and wait until at most this many groups are in flight."""
    ir.Operation.create("nvvm.wgmma.commit.group.sync.aligned")
    wait_for_products(under_way)


def wait_for_products(under_way: int) -> None:
    """Wait until at most this many groups of products are in flight."""
    number = ir.IntegerAttr.get(_i(64), under_way)
    ir.Operation.create("nvvm.wgmma.wait.group.sync.aligned", attributes={"group": number})


def wait_named_barrier(number: Value, threads: int) -> None:
    """Wait at one of the block's 16 named barriers until this many threads have arrived there."""
    segments = ir.DenseI32ArrayAttr.get([1, 1])
    ir.Operation.create(
        "nvvm.barrier", operands=[i32(number), i32(threads)], attributes={"operandSegmentSizes": segments}
    )


def arrive_named_barrier(number: Value | int, threads: int) -> None:
    """Arrive at a named barrier without waiting."""
    ir.Operation.create("nvvm.barrier.arrive", operands=[i32(number), i32(threads)])
