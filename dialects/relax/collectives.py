"""Collective operators: each is called by all ranks of a model at once, each rank with its own operand.

A model on several ranks is one function for each rank, with the same collectives in the same order. What an operator
means takes the operands of all ranks: `meaning_of_ranks` maps these arrays to the results of all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from mirlo.dialects.core.attributes import Int, Ints, Str
from mirlo.dialects.core.conditions import require_multiple
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.rank_layout import RankGroups, read_groups
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import NUMBER, normalize_axis, require_kind

REDUCTIONS = ("add", "mul", "max", "min", "and", "or")
"""How the operands of ranks are combined; the last two are for bools."""


class RankOp(RelaxOp):
    """An operator of models on `ranks` ranks, of which each rank has its own result."""

    TRAITS = (Trait.COLLECTIVE,)
    FLOPS_PER_ELEMENT = 0
    meaning_of_ranks: ClassVar[Callable[..., Any]]
    """`meaning_of_ranks(operands, **attributes)` on a list with the array of each rank: the results of all ranks."""
    ranks = Int()

    @classmethod
    def folds(cls, *operands: TensorType | None, **attributes: object) -> bool:
        """Return False: what the other ranks have is not known."""
        return False


class Collective(RankOp):
    """An operator that exchanges tensors between ranks: all of them, or those of each group.

    `groups` has the ranks of each group, in rows of `group_size`; -1 fills the rows of smaller groups.
    """

    x = operand()
    groups = Ints(())
    group_size = Int(0)


class AllReduce(Collective, name="all_reduce"):
    """The operands of all ranks of a group, combined by `reduction`, on each rank.

    16-bit floats are combined in f32, and rounded once.
    """

    meaning_of_ranks = staticmethod(meanings.all_reduce)
    reduction = Str("add", choices=REDUCTIONS)

    @staticmethod
    def infer(x: TensorType, *, ranks: int, groups: Sequence[int], group_size: int, reduction: str) -> TensorType:
        _groups(ranks, groups, group_size)
        _require_reducible(x, reduction)
        return x


class AllGather(Collective, name="all_gather"):
    """The operands of all ranks of a group joined along `axis` in the order of the group, on each rank."""

    meaning_of_ranks = staticmethod(meanings.all_gather)
    axis = Int(-1)

    @staticmethod
    def infer(x: TensorType, *, ranks: int, groups: Sequence[int], group_size: int, axis: int) -> TensorType:
        size = _size(_groups(ranks, groups, group_size))
        return _with_dim(x, axis, lambda dim: dim * size)


class ReduceScatter(Collective, name="reduce_scatter"):
    """The operands of all ranks of a group, combined by `reduction`, of which each rank has its part along `axis`."""

    meaning_of_ranks = staticmethod(meanings.reduce_scatter)
    axis = Int(-1)
    reduction = Str("add", choices=REDUCTIONS)

    @staticmethod
    def infer(
        x: TensorType, *, ranks: int, groups: Sequence[int], group_size: int, axis: int, reduction: str
    ) -> TensorType:
        size = _size(_groups(ranks, groups, group_size))
        _require_reducible(x, reduction)
        return _divided(x, axis, size)


class AllToAll(Collective, name="all_to_all"):
    """Each rank divides its operand along `split_axis`, and joins the parts it gets along `concat_axis`.

    Part r goes to rank r of the group: what was divided along `concat_axis` is divided along `split_axis` afterwards.
    """

    meaning_of_ranks = staticmethod(meanings.all_to_all)
    split_axis = Int()
    concat_axis = Int()

    @staticmethod
    def infer(
        x: TensorType, *, ranks: int, groups: Sequence[int], group_size: int, split_axis: int, concat_axis: int
    ) -> TensorType:
        size = _size(_groups(ranks, groups, group_size))
        return _with_dim(_divided(x, split_axis, size), concat_axis, lambda dim: dim * size)


class CollectivePermute(RankOp, name="collective_permute"):
    """The operand of another rank: `pairs` has each source, and the target that gets its operand.

    A source may have several targets. A rank that is no target gets zeros.
    """

    meaning_of_ranks = staticmethod(meanings.collective_permute)
    x = operand()
    pairs = Ints()

    @staticmethod
    def infer(x: TensorType, *, ranks: int, pairs: Sequence[int]) -> TensorType:
        _require_ranks(ranks)
        if len(pairs) % 2 or not all(0 <= rank < ranks for rank in pairs):
            raise OpError(f"pairs must be sources and targets from 0 to {ranks - 1}, got {tuple(pairs)}")
        targets = pairs[1::2]
        if len(set(targets)) != len(targets):
            raise OpError(f"pairs must have each target once, got {tuple(pairs)}")
        return x


class RankId(RankOp, name="rank_id"):
    """The number of the rank, from 0 on."""

    meaning_of_ranks = staticmethod(meanings.rank_id)

    @staticmethod
    def infer(*, ranks: int) -> TensorType:
        _require_ranks(ranks)
        return TensorType.of((), "u32")


COLLECTIVES: Sequence[type[RankOp]] = (AllReduce, AllGather, ReduceScatter, AllToAll, CollectivePermute, RankId)
"""All operators that the ranks of a model compute together."""


def _require_ranks(ranks: int) -> None:
    if ranks < 1:
        raise OpError(f"ranks must be 1 or more, got {ranks}")


def _groups(ranks: int, rows: Sequence[int], size: int) -> RankGroups:
    _require_ranks(ranks)
    try:
        return read_groups(ranks, rows, size)
    except ValueError as error:
        raise OpError(str(error)) from None


def _size(groups: RankGroups) -> int:
    """Return the size of all groups, which must have one, as all ranks have results of one type."""
    sizes = {len(group) for group in groups}
    if len(sizes) != 1:
        raise OpError(f"groups must have one size, got groups of {', '.join(map(str, sorted(sizes)))} ranks")
    return sizes.pop()


def _require_reducible(x: TensorType, reduction: str) -> None:
    if reduction not in ("and", "or"):
        require_kind(x, NUMBER, "operand")
    elif not x.dtype.is_bool:
        raise OpError(f"operand must be bool for the reduction '{reduction}', got {x}")


def _with_dim(x: TensorType, axis: int, change: Callable[[Dim], Dim]) -> TensorType:
    at = normalize_axis(axis, x.rank)
    return x.with_shape([change(dim) if i == at else dim for i, dim in enumerate(x.shape)])


def _divided(x: TensorType, axis: int, ranks: int) -> TensorType:
    dim = x.shape[normalize_axis(axis, x.rank)]
    require_multiple(dim, ranks, f"axis {axis} of {x} is {dim}: it must be a multiple of the {ranks} ranks")
    return _with_dim(x, axis, lambda each: each // ranks)


class PartsOp(RankOp):
    """An operator between a tensor and tiles of it: each axis is in `parts`, and `order` has the ranks of the tiles."""

    x = operand()
    parts = Ints()
    order = Ints()


class ToParts(PartsOp, name="to_parts"):
    """The rank's part of a tensor that all ranks have: each axis is in `parts`, row-major tiles.

    `order` has the ranks of the first tile, then those of the next. The pass `shard` divides what computes the tensor.
    """

    meaning_of_ranks = staticmethod(meanings.to_parts)

    @staticmethod
    def infer(x: TensorType, *, ranks: int, parts: Sequence[int], order: Sequence[int]) -> TensorType:
        _require_tiles(x, ranks, parts, order)
        for axis, (dim, count) in enumerate(zip(x.shape, parts, strict=True)):
            require_multiple(dim, count, f"axis {axis} of {x} is {dim}: it must be a multiple of its {count} parts")
        return x.with_shape([dim // count for dim, count in zip(x.shape, parts, strict=True)])


class FromParts(PartsOp, name="from_parts"):
    """The tensor of which each rank has a part, as `to_parts` makes them."""

    meaning_of_ranks = staticmethod(meanings.from_parts)

    @staticmethod
    def infer(x: TensorType, *, ranks: int, parts: Sequence[int], order: Sequence[int]) -> TensorType:
        _require_tiles(x, ranks, parts, order)
        return x.with_shape([dim * count for dim, count in zip(x.shape, parts, strict=True)])


def _require_tiles(x: TensorType, ranks: int, parts: Sequence[int], order: Sequence[int]) -> None:
    if not 0 < ranks == len(order) or sorted(order) != list(range(ranks)):
        raise OpError(f"order must have each of the ranks 0 to {ranks - 1} once, got {tuple(order)}")
    if len(parts) != x.rank or any(count < 1 for count in parts):
        raise OpError(f"parts must have a number for each axis of {x}, got {tuple(parts)}")
    if ranks % math.prod(parts):
        raise OpError(f"parts must be a divisor of the {ranks} ranks together, got {tuple(parts)}")
