"""Layouts of tensors over ranks: which part of each dim a rank has, in any arrangement of the ranks.

A `RankLayout` says for each dim into how many parts it is divided, and which one each rank has. Meshes, tile
assignments and single divided axes are all of that form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache

from mirlo.dialects.core.dims import Dim
from mirlo.runtime.records import dataclass

RankGroups = tuple[tuple[int, ...], ...]
"""The ranks of each group, in the order in which their tensors are joined."""
NO_RANK = -1
"""What fills the rows of groups that are smaller than others."""


def read_groups(ranks: int, rows: Sequence[int], size: int) -> RankGroups:
    """Return groups stored in rows of `size` ranks; no rows are one group of all ranks. Each rank is in one group."""
    if not rows:
        return (tuple(range(ranks)),)
    if size < 1 or len(rows) % size:
        raise ValueError(f"groups has {len(rows)} ranks: expected rows of {size}, the group_size")
    padded = (rows[i : i + size] for i in range(0, len(rows), size))
    groups = tuple(tuple(rank for rank in row if rank != NO_RANK) for row in padded)
    if sorted(rank for group in groups for rank in group) != list(range(ranks)):
        raise ValueError(f"groups must have each of the ranks 0 to {ranks - 1} once, found {groups}")
    return groups


def group_attributes(ranks: int, groups: RankGroups) -> dict[str, object]:
    """Return the attributes of a collective that say its groups: none for one group of all ranks in order."""
    if groups == (tuple(range(ranks)),):
        return {}
    size = max(map(len, groups))
    rows = [(*group, *[NO_RANK] * (size - len(group))) for group in groups]
    return {"groups": [rank for row in rows for rank in row], "group_size": size}


Split = tuple[int, ...]
"""The part that each rank has of a divided dim."""


def count_parts(split: Split | None) -> int:
    """Return into how many parts a dim is divided."""
    return 1 if split is None else max(split) + 1


@dataclass(frozen=True)
class RankLayout:
    """The part of a tensor that each rank has."""

    dims: tuple[Split | None, ...]
    """By dim, how it is divided; None where each rank has all of it."""
    summed: Split | None = None
    """Which partial sum each rank has; None if the tensor is not the sum of what ranks have."""

    @property
    def is_whole(self) -> bool:
        """Return whether each rank has the tensor itself."""
        return self.summed is None and all(split is None for split in self.dims)

    def shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the shape of a rank's part."""
        return tuple(dim // count_parts(split) for dim, split in zip(shape, self.dims, strict=True))

    def part(self, shape: Sequence[int], rank: int) -> tuple[slice, ...]:
        """Return a rank's part of a tensor, as an index of it."""
        pieces = []
        for dim, split in zip(shape, self.dims, strict=True):
            size = dim // count_parts(split)
            begin = 0 if split is None else split[rank] * size
            pieces.append(slice(begin, begin + size))
        return tuple(pieces)

    def fitting(self, shape: Sequence[Dim]) -> RankLayout:
        """Return the layout without the divisions of dynamic dims and of dims that are no multiples of their parts."""
        return RankLayout(
            tuple(
                split if isinstance(dim, int) and dim % count_parts(split) == 0 else None
                for dim, split in zip(shape, self.dims, strict=True)
            ),
            self.summed,
        )

    def with_dims(self, rank: int) -> RankLayout:
        """Return the layout of a tensor with further dims, which are not divided."""
        return RankLayout((*self.dims, *[None] * (rank - len(self.dims))), self.summed)

    def __str__(self) -> str:
        parts = "x".join(str(count_parts(split)) for split in self.dims) or "scalar"
        return f"{parts} parts, partial sums" if self.summed is not None else f"{parts} parts"


def whole(rank: int) -> RankLayout:
    """Return the layout of a tensor that each rank has."""
    return RankLayout((None,) * rank)


def is_regular(splits: Iterable[Split | None]) -> bool:
    """Return whether equally many ranks have each combination of parts, as those of a mesh do."""
    present = [split for split in splits if split is not None]
    if not present:
        return True
    counts: dict[tuple[int, ...], int] = {}
    for place in zip(*present, strict=True):
        counts[place] = counts.get(place, 0) + 1
    return len(counts) == math.prod(map(count_parts, present)) and len(set(counts.values())) == 1


@cache
def groups_along(split: Split, others: tuple[Split | None, ...]) -> RankGroups:
    """Return groups of ranks that have all parts of a dim, in their order, and the same parts of all others."""
    classes: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for rank, part in enumerate(split):
        key = tuple(other[rank] for other in others if other is not None)
        classes.setdefault(key, {}).setdefault(part, []).append(rank)
    return tuple(
        tuple(each[copy] for _, each in sorted(by_part.items()))
        for by_part in classes.values()
        for copy in range(len(by_part[0]))
    )


def tile_layout(parts: Sequence[int], order: Sequence[int]) -> RankLayout:
    """Return the layout of row-major tiles: `order` has the ranks of the first tile, then those of the next."""
    tiles = math.prod(parts)
    copies = len(order) // tiles
    splits: list[Split | None] = []
    inner = tiles
    for count in parts:
        inner //= count
        parts = [0] * len(order)
        for place, rank in enumerate(order):
            parts[rank] = place // copies // inner % count
        splits.append(tuple(parts) if count > 1 else None)
    return RankLayout(tuple(splits))


def tile_attributes(layout: RankLayout, ranks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the parts of each dim, and the ranks of each tile, of a layout: what `tile_layout` takes."""
    place = {rank: tuple(split[rank] for split in layout.dims if split is not None) for rank in range(ranks)}
    return tuple(map(count_parts, layout.dims)), tuple(sorted(range(ranks), key=lambda rank: (place[rank], rank)))
