"""The schedule primitive `stream`: results that go past the caches."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.value import compare, create, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.loops import either
from mirlo.passes.schedule.primitives.contiguity import position_of
from mirlo.passes.schedule.primitives.lanes import StoreLanes
from mirlo.passes.schedule.primitives.memory import PlacedBuffers
from mirlo.passes.schedule.primitives.tree import VECTORIZED, BlockLeaf, Loop, ScheduleError


def stream(leaf: BlockLeaf) -> None:
    """Store the vectors of a block's result past the caches (non-temporal stores)."""
    loop = leaf.parent
    if not isinstance(loop, Loop) or loop.kind != VECTORIZED or loop.body != [leaf]:
        raise ScheduleError(f"stream: '{leaf.name}' is not alone in a vectorized loop")
    stored = [(access, access.at) for access in leaf.writes if not access.is_held]
    if leaf.is_reduction or len(stored) != 1 or leaf.epilogue:
        raise ScheduleError(f"stream: expected '{leaf.name}' to store one result, which is no reduction")
    ((access, _),) = stored
    position, lanes = position_of(access, leaf.place(access)), loop.extent
    assert isinstance(lanes, int), "vectors have a known length"
    size = lanes * element_bytes(access.buffer.element)
    if size & (size - 1):
        raise ScheduleError(f"stream: expected vectors of a power of two of bytes, found {size} in '{leaf.name}'")
    others = [count for atom, count in position.terms.items() if atom != loop.name]
    is_whole = D.is_certain(lambda: all(count % lanes == 0 for count in (*others, position.constant)))
    if position.coefficient(loop.name) != 1 or not is_whole:
        raise ScheduleError(f"stream: vectors of '{leaf.name}' do not begin at multiples of their {lanes} elements")
    leaf.is_streamed = True


def emit_streamed(stores: Sequence[StoreLanes], leaf: BlockLeaf, placed: PlacedBuffers) -> None:
    """Emit the stores of a block, past the caches if memory is aligned: arrays of callers may begin anywhere."""
    loop = leaf.parent
    assert isinstance(loop, Loop) and isinstance(loop.extent, int), "vectors have a known length"
    (access,) = (access for access in leaf.writes if not access.is_held)
    size = loop.extent * element_bytes(access.buffer.element)
    kind = ir.IndexType.get()
    address = create("memref.extract_aligned_pointer_as_index", kind, placed[access.buffer].flat)
    is_aligned = compare("eq", create("arith.andi", kind, address, index(size - 1)), index(0))

    def each(past_caches: int) -> None:
        for store in stores:
            store(past_caches)

    either(is_aligned, lambda: each(size), lambda: each(0))
