"""What runs beside the threads of a block: copies of tiles, barriers that count bytes, products of warpgroups.

Shared memory is addressed by numbers here, as the descriptors of these instructions are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.loops import index
from mirlo.targets.gpu.schedule.launch import add, barrier, multiply

_TICKS = 10_000_000
"""How long a thread may sleep at a barrier before it looks again, in nanoseconds."""


def _i(bits: int) -> Any:
    return ir.IntegerType.get_signless(bits)


def i32(value: Any) -> Any:
    """A number, or an index, in 32 bits."""
    if isinstance(value, int):
        return emit_constant(value, _i(32))
    return create("arith.index_cast", _i(32), value)


def address_of(memory: Any) -> Any:
    """Where shared memory begins."""
    return create("memref.extract_aligned_pointer_as_index", ir.IndexType.get(), memory)


def pointer(address: Any) -> Any:
    """An address of shared memory as a pointer."""
    number = create("arith.index_cast", _i(64), address)
    return create("llvm.inttoptr", ir.Type.parse("!llvm.ptr<3>"), number)


@dataclass(frozen=True)
class Barriers:
    """Barriers in shared memory, 8 bytes each; one is passed in turns of even and odd numbers."""

    address: Any

    def at(self, number: Any) -> Any:
        return pointer(add(self.address, multiply(number, 8)))

    def make(self, number: int, arrivals: int) -> None:
        """Let a barrier open after so many arrivals, and all bytes that these said are coming."""
        ir.Operation.create("nvvm.mbarrier.init", operands=[self.at(index(number)), i32(arrivals)])

    def arrive(self, number: Any) -> None:
        """Arrive: of the threads that do, each for itself."""
        ir.Operation.create("nvvm.mbarrier.arrive", operands=[self.at(number)])

    def arrive_at(self, number: Any, rank: Any) -> None:
        """Arrive at the same barrier of a block of this cluster, for products whose end was waited for.

        Nothing that this thread wrote itself is to be seen there: with the scope of the cluster the arrival would wait
        for a fence of the whole GPU.
        """
        there = create("nvvm.mapa", ir.Type.parse("!llvm.ptr<7>"), self.at(number), i32(rank))
        ir.Operation.create("nvvm.mbarrier.arrive", operands=[there])

    def expect(self, number: Any, count: int) -> None:
        """Arrive, and say how many bytes are coming."""
        ir.Operation.create("nvvm.mbarrier.arrive.expect_tx", operands=[self.at(number), i32(count)])

    def wait(self, number: Any, turn: Any) -> None:
        """Until the turn of this parity is over; that before the first one is."""
        ir.Operation.create("nvvm.mbarrier.try_wait.parity", operands=[self.at(number), i32(turn), i32(_TICKS)])


def publish_copies() -> None:
    """Let products of warpgroups see what this thread has copied itself, and waited for."""
    attributes = {
        "kind": ir.Attribute.parse("#nvvm.proxy_kind<async.shared>"),
        "space": ir.Attribute.parse("#nvvm.shared_space<cta>"),
    }
    ir.Operation.create("nvvm.fence.proxy", attributes=attributes)


def publish_barriers() -> None:
    """Let the engine that copies see barriers that were made."""
    ir.Operation.create("nvvm.fence.mbarrier.init")


def meet(cluster: bool) -> None:
    """All threads of the block wait here, or all of the cluster."""
    if not cluster:
        barrier()
        return
    ir.Operation.create("nvvm.cluster.arrive")
    ir.Operation.create("nvvm.cluster.wait")


def copy_tile(
    target: Any, tensor_map: Any, corner: list[Any], barriers: Barriers, number: Any, blocks: int = 1
) -> None:
    """Start the copy of a tile: where it goes, what it is of, its first index in each dim, the innermost first.

    With several blocks it goes to the same place in each block of the cluster, and counts for the barrier there.
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
    """Change how many registers each thread of this warpgroup has."""
    action = ir.Attribute.parse(f"#nvvm<action {'increase' if more else 'decrease'}>")
    number = ir.IntegerAttr.get(_i(32), count)
    ir.Operation.create("nvvm.setmaxregister", attributes={"regCount": number, "action": action})


def begin_products() -> None:
    """Registers that were written may be used by the products that follow."""
    ir.Operation.create("nvvm.wgmma.fence.aligned")


def end_products(under_way: int) -> None:
    """Group the products since the last time, and wait until at most so many groups are under way."""
    ir.Operation.create("nvvm.wgmma.commit.group.sync.aligned")
    wait_for_products(under_way)


def wait_for_products(under_way: int) -> None:
    """Until at most so many groups of products are under way."""
    number = ir.IntegerAttr.get(_i(64), under_way)
    ir.Operation.create("nvvm.wgmma.wait.group.sync.aligned", attributes={"group": number})


def wait_at(number: Any, threads: int) -> None:
    """Wait at a barrier of the block, of which there are 16, until so many threads have waited or arrived there."""
    segments = ir.DenseI32ArrayAttr.get([1, 1])
    ir.Operation.create(
        "nvvm.barrier", operands=[i32(number), i32(threads)], attributes={"operandSegmentSizes": segments}
    )


def arrive_at(number: Any, threads: int) -> None:
    """The same without waiting."""
    ir.Operation.create("nvvm.barrier.arrive", operands=[i32(number), i32(threads)])
