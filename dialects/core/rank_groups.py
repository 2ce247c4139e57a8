"""Groups of ranks that exchange tensors among themselves, as attributes of collectives hold them."""

from __future__ import annotations

from collections.abc import Sequence

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
