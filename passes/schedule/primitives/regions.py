"""Regions of buffers that one iteration of a loop accesses: an offset by the outer loops, and an extent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr
from mirlo.passes.schedule.primitives.contiguity import in_iterations
from mirlo.passes.schedule.primitives.tree import BlockLeaf, BufferAccess, Loop, ScheduleBuffer, around, extents_of

Region = tuple[IndexExpr, Dim]


def needed_region(
    readers: Sequence[tuple[BlockLeaf, BufferAccess]], loop: Loop, buffer: ScheduleBuffer
) -> list[Region]:
    """Return the region of a buffer that blocks in a loop read in one iteration; whole dims where it is not a range."""
    places = [(leaf, None if access.is_opaque else leaf.place(access)) for leaf, access in readers]
    return region_of(places, [*around(loop), loop], buffer.shape)


def written_region(leaf: BlockLeaf, access: BufferAccess, loop: Loop) -> list[Region]:
    """Return the region that a block in a loop writes in one iteration."""
    return region_of([(leaf, leaf.place(access))], [*around(loop), loop], access.buffer.shape)


def region_of(
    places: Sequence[tuple[BlockLeaf, list[IndexExpr] | None]], outer: Sequence[Loop], shape: Sequence[Dim]
) -> list[Region]:
    """Return for each dim the start of these accesses, by the outer loops, and their extent."""
    return region_within(places, {loop.name for loop in outer}, shape)


def region_within(
    places: Sequence[tuple[BlockLeaf, list[IndexExpr] | None]],
    names: set[str],
    shape: Sequence[Dim],
    axes: Mapping[str, Dim] | None = None,
) -> list[Region]:
    """Return the region of accesses by the values that all of them share: outer loops, or hardware axes of extents."""
    accesses = [
        ({**extents_of(around(leaf)), **(axes or {})}, at and [in_iterations(index, leaf) for index in at])
        for leaf, at in places
    ]
    return [_of_dim(accesses, names, dim, size) for dim, size in enumerate(shape)]


def _of_dim(
    accesses: Sequence[tuple[dict[str, Dim], list[IndexExpr] | None]], outer: set[str], dim: int, size: Dim
) -> Region:
    whole: Region = (IndexExpr(), size)
    starts: set[IndexExpr] = set()
    lows: list[Dim] = []
    highs: list[Dim] = []
    for extents, at in accesses:
        parts = None if at is None else split_by(at[dim], outer)
        if parts is None:
            return whole
        start, rest = parts
        try:
            low, high = rest.range(extents)
        except UndecidedDim:
            return whole
        starts.add(start)
        lows.append(low)
        highs.append(high)
    if len(starts) != 1:
        return whole
    try:
        first, extent = min(lows), max(highs) - min(lows) + 1
    except UndecidedDim:
        return whole
    # A region as large as the dim needs no offset. One of a fixed size is not larger than it has to be.
    is_part = isinstance(extent, int) and not isinstance(size, int) or D.is_certain(lambda: extent < size)
    return (starts.pop() + first, extent) if is_part else whole


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
