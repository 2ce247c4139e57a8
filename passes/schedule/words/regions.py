"""Regions of buffers that one iteration of a loop accesses: an offset by the outer loops, and an extent."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr
from mirlo.passes.schedule.words.tree import BlockLeaf, BufferAccess, Loop, ScheduleBuffer, around, extents_of

Region = tuple[IndexExpr, int]


def needed_region(
    readers: Sequence[tuple[BlockLeaf, BufferAccess]], loop: Loop, buffer: ScheduleBuffer
) -> list[Region]:
    """Return the region of a buffer that blocks in a loop read in one iteration; whole dims where it is no range."""
    places = [(leaf, None if access.is_opaque else leaf.place(access)) for leaf, access in readers]
    return region_of(places, [*around(loop), loop], buffer.shape)


def written_region(leaf: BlockLeaf, access: BufferAccess, loop: Loop) -> list[Region]:
    """Return the region that a block in a loop writes in one iteration."""
    return region_of([(leaf, leaf.place(access))], [*around(loop), loop], access.buffer.shape)


def region_of(
    places: Sequence[tuple[BlockLeaf, list[IndexExpr] | None]], outer: Sequence[Loop], shape: Sequence[int]
) -> list[Region]:
    """Return for each dim the start of these accesses, by the outer loops, and their extent."""
    names = {loop.name for loop in outer}
    return [_of_dim(places, names, dim, size) for dim, size in enumerate(shape)]


def _of_dim(places: Sequence[tuple[BlockLeaf, list[IndexExpr] | None]], outer: set[str], dim: int, size: int) -> Region:
    starts: set[IndexExpr] = set()
    lows, highs = [], []
    for leaf, at in places:
        if at is None:
            return IndexExpr(), size
        parts = split_by(at[dim], outer)
        if parts is None:
            return IndexExpr(), size
        start, rest = parts
        low, high = rest.range(extents_of(around(leaf)))
        starts.add(start)
        lows.append(low)
        highs.append(high)
    if len(starts) != 1:
        return IndexExpr(), size
    extent = max(highs) - min(lows) + 1
    # A region as large as the dim needs no offset.
    return (starts.pop() + min(lows), extent) if extent < size else (IndexExpr(), size)


def split_by(index: IndexExpr, outer: set[str]) -> tuple[IndexExpr, IndexExpr] | None:
    """Split an index into the part that depends on the outer loops only and the rest; None if they mix."""
    start, rest = {}, {}
    for atom, count in index.terms.items():
        used = atom.inner.variables() if isinstance(atom, FloorDiv) else {atom}
        if used <= outer:
            start[atom] = count
        elif used & outer:
            return None
        else:
            rest[atom] = count
    return IndexExpr(start), IndexExpr(rest, index.constant)
