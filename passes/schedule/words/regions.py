"""Which part of a buffer one round of a loop touches: an offset by the loops around, and a number of elements."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.passes.schedule.words.index import Index, made
from mirlo.passes.schedule.words.tree import Access, Buffer, Leaf, Loop, around, ranges

Region = tuple[Index, int]


def needed_region(readers: Sequence[tuple[Leaf, Access]], loop: Loop, buffer: Buffer) -> list[Region]:
    """What blocks in a loop read of a buffer in one of its rounds; all of a dim where that is not one range."""
    places = [(leaf, None if access.is_opaque else leaf.place(access)) for leaf, access in readers]
    return region_of(places, [*around(loop), loop], buffer.shape)


def written_region(leaf: Leaf, access: Access, loop: Loop) -> list[Region]:
    """What a block in a loop writes in one round."""
    return region_of([(leaf, leaf.place(access))], [*around(loop), loop], access.buffer.shape)


def region_of(
    places: Sequence[tuple[Leaf, list[Index] | None]], outer: Sequence[Loop], shape: Sequence[int]
) -> list[Region]:
    """For each dim: where these accesses begin, by the outer loops, and how far they reach from there."""
    names = {loop.name for loop in outer}
    return [_of_dim(places, names, dim, size) for dim, size in enumerate(shape)]


def _of_dim(places: Sequence[tuple[Leaf, list[Index] | None]], outer: set[str], dim: int, size: int) -> Region:
    starts: set[Index] = set()
    lows, highs = [], []
    for leaf, at in places:
        if at is None:
            return Index(), size
        parts = split_by(at[dim], outer)
        if parts is None:
            return Index(), size
        start, rest = parts
        low, high = rest.range(ranges(around(leaf)))
        starts.add(start)
        lows.append(low)
        highs.append(high)
    if len(starts) != 1:
        return Index(), size
    extent = max(highs) - min(lows) + 1
    # A region as large as the dim need not be counted from anywhere.
    return (starts.pop() + min(lows), extent) if extent < size else (Index(), size)


def split_by(index: Index, outer: set[str]) -> tuple[Index, Index] | None:
    """The part of an index that depends on the outer loops alone, and the rest; None where they are one."""
    start, rest = {}, {}
    for atom, count in index.terms:
        used = {atom} if isinstance(atom, str) else atom.value.loops
        if used <= outer:
            start[atom] = count
        elif used & outer:
            return None
        else:
            rest[atom] = count
    return made(start, 0), made(rest, index.constant)
