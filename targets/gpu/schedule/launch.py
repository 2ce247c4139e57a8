"""Launches: grids of thread blocks, and the index computations of a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import mul

from mirlo.dialects.bindings import gpu, ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, index, integer_of
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import when
from mirlo.runtime.records import dataclass

THREADS = 128
"""Default threads per block, which every Vulkan device supports."""
MAX_GRID_SIZE = 65535
"""Most blocks along one grid dimension on every device."""
WARP = 32
"""Threads that execute together: those of a warp of NVIDIA GPUs."""
SHARED = 3
"""Address space of shared memory, as LLVM and the conversion to SPIR-V number it."""


@dataclass(frozen=True)
class Ids:
    """The indices of a thread: of its block, and within its block."""

    block: Value
    thread: Value


def launch(blocks: Dim, threads: int, body: Callable[[Ids], None]) -> None:
    """Run `body` in this many thread blocks; multi-dimensional grids are linearized."""
    if not isinstance(blocks, int):
        _launch_dynamic(blocks, threads, body)
        return
    width = min(blocks, MAX_GRID_SIZE)
    height = -(-blocks // width)
    width = -(-blocks // height)
    op = gpu.LaunchOp((width, height, 1), (threads, 1, 1))
    with ir.InsertionPoint(op.regions[0].blocks[0]):
        block_x, block_y, _, thread_x, *_ = op.regions[0].blocks[0].arguments
        block = Value(block_x)
        if height > 1:
            block = Value(block_y) * width + block_x
        when(block.below(blocks) if width * height > blocks else None, partial(body, Ids(block, Value(thread_x))))
        gpu.TerminatorOp()


def _launch_dynamic(blocks: Dim, threads: int, body: Callable[[Ids], None]) -> None:
    """Run `body` in a dynamic number of thread blocks."""
    op = gpu.LaunchOp(
        (index(D.minimum(blocks, MAX_GRID_SIZE)), index(D.ceildiv(blocks, MAX_GRID_SIZE)), 1), (threads, 1, 1)
    )
    with ir.InsertionPoint(op.regions[0].blocks[0]):
        block_x, block_y, _, thread_x, *_ = op.regions[0].blocks[0].arguments
        # A grid with several rows has the maximum number of blocks in each.
        ids = Ids(Value(block_y) * MAX_GRID_SIZE + block_x, Value(thread_x))
        when(ids.block.below(blocks), partial(body, ids))
        gpu.TerminatorOp()


def launch_points(extents: Sequence[Dim], body: Callable[[list[Value]], None]) -> None:
    """Run `body` in one thread per point of a space; adjacent threads differ in the last index."""
    total, threads = D.product(list(extents)), THREADS
    if isinstance(total, int):
        threads = min(threads, max(32, -(-total // 32) * 32))

    def thread(ids: Ids) -> None:
        number = ids.block * threads + ids.thread
        when(number.below(total) if not D.is_multiple(total, threads) else None, lambda: body(split(number, extents)))

    launch(D.ceildiv(total, threads), threads, thread)


def launch_iterations(extents: Sequence[ir.Value], body: Callable[[list[Value]], None]) -> None:
    """Run `body` as `launch_points` does; the extents are values, and what is negative is empty."""
    known = [integer_of(extent) for extent in extents]
    if all(extent is not None for extent in known):
        launch_points([extent for extent in known if extent is not None], body)
        return
    sizes = [Value(extent).maximum(0) for extent in extents]
    total = reduce(mul, sizes)
    blocks = (total + (THREADS - 1)).divide_unsigned(THREADS)
    rows = (blocks + (MAX_GRID_SIZE - 1)).divide_unsigned(MAX_GRID_SIZE)
    op = gpu.LaunchOp((blocks.minimum(MAX_GRID_SIZE), rows, 1), (THREADS, 1, 1))
    with ir.InsertionPoint(op.regions[0].blocks[0]):
        block_x, block_y, _, thread_x, *_ = op.regions[0].blocks[0].arguments
        number = (Value(block_y) * MAX_GRID_SIZE + block_x) * THREADS + thread_x

        def point() -> None:
            indices: list[Value] = []
            rest = number
            for extent in reversed(sizes[1:]):
                indices.insert(0, rest.remainder_unsigned(extent))
                rest = rest.divide_unsigned(extent)
            body([rest, *indices])

        when(number.below(total), point)
        gpu.TerminatorOp()


def split(number: ir.Value, extents: Sequence[Dim]) -> list[Value]:
    """Delinearize the index of a point, last dimension fastest."""
    parts: list[Value] = []
    rest = Value(number)
    for position in range(len(extents) - 1, -1, -1):
        extent = extents[position]
        if extent == 1:
            parts.append(index(0))
        elif D.product(list(extents[:position])) == 1:
            parts.append(rest)
            rest = index(0)
        else:
            parts.append(rest.remainder_unsigned(index(extent)))
            rest = rest.divide_unsigned(index(extent))
    return parts[::-1]


def clamp_index(value: Value, extent: Dim, step: int, width: int = 1) -> Value:
    """Clamp the first of `width` indices to their extent if steps of this size may exceed it."""
    if D.is_multiple(extent, step):
        return value
    return create("arith.minui", value.type, value, index(extent - width))


def shared(size: int, element: ir.Type) -> Value:
    """Allocate shared memory at the insertion point inside of a launch."""
    space = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), SHARED)
    return Value(memref.AllocOp(ir.MemRefType.get([size], element, memory_space=space), [], []).result)


def barrier() -> None:
    """Synchronize all threads of the block and make their writes visible."""
    gpu.BarrierOp()
