"""How a tensor is divided among ranks, and what an operator requires of that.

A `Sharding` says which part of a tensor a rank has: all of it, a range of one axis, or a partial sum. A `ShardingRule`
labels the dims of an operator's operands and results: dims with one label are the same loop. If a label is divided
among the ranks, so are all dims with it; if it is reduced, the results are partial sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.rank_layout import RankLayout
from mirlo.dialects.core.types import TensorType
from mirlo.runtime.records import dataclass

Labels = tuple[str, ...]
"""A label for each dim; an empty one for a dim that is not divided."""


@dataclass(frozen=True)
class Sharding:
    """The part of a tensor that a rank has."""

    axis: int | None = None
    """The axis that is divided; None if there is none."""
    parts: int = 1
    """How many parts the axis has; if they are fewer than the ranks, several ranks in a row have the same part."""
    is_partial: bool = False
    """Whether the tensor is the sum of what all ranks have."""

    @property
    def is_whole(self) -> bool:
        """Return whether each rank has the tensor itself."""
        return self.axis is None and not self.is_partial

    def shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Return the shape of a rank's part."""
        return tuple(dim // self.parts if i == self.axis else dim for i, dim in enumerate(shape))

    def layout(self, rank: int, ranks: int) -> RankLayout:
        """Return which part of a tensor of this many dims each of the ranks has."""
        if self.is_partial:
            return RankLayout((None,) * rank, tuple(range(ranks)))
        split = tuple(each * self.parts // ranks for each in range(ranks))
        return RankLayout(tuple(split if axis == self.axis else None for axis in range(rank)))

    def __str__(self) -> str:
        if self.is_partial:
            return "partial sums"
        return "whole" if self.axis is None else f"axis {self.axis} in {self.parts} parts"


WHOLE, PARTIAL = Sharding(), Sharding(is_partial=True)


def divided(axis: int, parts: int) -> Sharding:
    """Return the sharding with an axis in parts."""
    return Sharding(axis, parts) if parts > 1 else WHOLE


@dataclass(frozen=True)
class ShardingRule:
    """What an operator requires of the shardings of its operands, which are numbered as in the operation."""

    operands: tuple[Labels, ...]
    results: tuple[Labels, ...]
    reduced: frozenset[str] = frozenset()
    """Labels that are summed over: if one is divided, the results are partial sums."""
    linear: tuple[frozenset[int], ...] = ()
    """Sets of operands in which the operator is linear: if exactly these are partial sums, so are the results."""
    shared: frozenset[str] = frozenset()
    """Labels of which a dim may be a divisor of another one, whose consecutive positions share one of its own."""
    shape: str = ""
    """The attribute that is the shape of the result."""
    looked_up: tuple[int, int] | None = None
    """Operand and axis of a table that positions select from, which may be divided: other ranks' rows are zeros."""
    positions: int = 1
    """The operand with the positions in a table."""
    state: int | None = None
    """The operand that the result replaces in the next call: both are divided between calls."""

    def labels(self) -> Iterable[str]:
        """Return all labels."""
        return dict.fromkeys(label for labels in (*self.operands, *self.results) for label in labels if label)


def parts_of(dim: Dim, parts: int, is_shared: bool) -> int | None:
    """Return the number of parts of a dim whose label is divided into `parts`; None if the dim cannot be divided."""
    if not isinstance(dim, int):
        return None
    if dim % parts == 0:
        return parts
    return dim if is_shared and dim > 0 and parts % dim == 0 else None


def positional_labels(shape: Sequence[Dim], rank: int) -> Labels:
    """Return labels, by position, of dims that broadcast to a result of this rank; None for dims of 1."""
    first = rank - len(shape)
    return tuple("" if dim == 1 else f"d{first + i}" for i, dim in enumerate(shape))


def broadcast_rule(
    operands: Sequence[TensorType], results: Sequence[TensorType], linear: Iterable[Iterable[int]] = ()
) -> ShardingRule:
    """Return the rule of an operator that computes each element of the result from those at its place."""
    rank = results[0].rank
    return ShardingRule(
        tuple(positional_labels(each.shape, rank) for each in operands),
        tuple(positional_labels(each.shape, rank) for each in results),
        linear=tuple(map(frozenset, linear)),
    )


def without(labels: Labels, axes: Iterable[int]) -> Labels:
    """Return labels without those of some axes."""
    removed = set(axes)
    return tuple("" if i in removed else label for i, label in enumerate(labels))


def view_labels(before: Sequence[Dim], after: Sequence[Dim]) -> tuple[Labels, Labels]:
    """Return labels for the dims of a tensor and of a reshaped one.

    Of dims that are merged or divided, the outermost one has the label of the merged dim.
    """
    old, new = [""] * len(before), [""] * len(after)
    left = 0
    while left < min(len(before), len(after)) and before[left] == after[left]:
        old[left] = new[left] = f"d{left}"
        left += 1
    i, j, count = len(before), len(after), 0
    while min(i, j) > left:
        first, second = _last_group(before[left:i], after[left:j])
        of_before = [axis for axis in range(i - first, i) if before[axis] != 1]
        of_after = [axis for axis in range(j - second, j) if after[axis] != 1]
        if of_before and of_after and 1 in (len(of_before), len(of_after)):
            old[of_before[0]] = new[of_after[0]] = f"e{count}"
        i, j, count = i - first, j - second, count + 1
    return tuple(old), tuple(new)


def _last_group(before: Sequence[Dim], after: Sequence[Dim]) -> tuple[int, int]:
    """Return how many of the last dims of two shapes have the same product; all dims if no fewer are known to."""
    i, j = 1, 1
    left, right = before[-1], after[-1]
    while left != right:
        is_left = isinstance(left, int) and isinstance(right, int) and left < right
        more = (
            before[-1 - i] if is_left and i < len(before) else after[-1 - j] if not is_left and j < len(after) else ""
        )
        if not isinstance(left, int) or not isinstance(right, int) or not isinstance(more, int):
            return len(before), len(after)
        if is_left:
            left, i = left * more, i + 1
        else:
            right, j = right * more, j + 1
    return i, j
