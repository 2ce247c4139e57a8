"""Collective operators: each is called by all ranks of a model at once, each rank with its own operand.

A model on several ranks is one function for each rank, with the same collectives in the same order. What an operator
means takes the operands of all ranks: `meaning_of_ranks` maps these arrays to the results of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from mirlo.dialects.core.attributes import Int
from mirlo.dialects.core.conditions import require_multiple
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import NUMBER, normalize_axis, require_kind


class Collective(RelaxOp):
    """An operator that exchanges tensors between `ranks` ranks."""

    TRAITS = (Trait.COLLECTIVE,)
    FLOPS_PER_ELEMENT = 0
    meaning_of_ranks: ClassVar[Callable[..., Any]]
    """`meaning_of_ranks(operands, **attributes)` on a list with the array of each rank: the results of all ranks."""
    x = operand()
    ranks = Int()

    @classmethod
    def folds(cls, *operands: TensorType | None, **attributes: object) -> bool:
        """Return False: what the other ranks have is not known."""
        return False


class AllReduce(Collective, name="all_reduce"):
    """The sum of the operands of all ranks, on each rank; 16-bit floats are added in f32, and rounded once."""

    meaning_of_ranks = staticmethod(meanings.all_reduce)

    @staticmethod
    def infer(x: TensorType, *, ranks: int) -> TensorType:
        _require_ranks(ranks)
        require_kind(x, NUMBER, "operand")
        return x


class AllGather(Collective, name="all_gather"):
    """The operands of all ranks joined along `axis` in the order of the ranks, on each rank."""

    meaning_of_ranks = staticmethod(meanings.all_gather)
    axis = Int(-1)

    @staticmethod
    def infer(x: TensorType, *, ranks: int, axis: int) -> TensorType:
        _require_ranks(ranks)
        return _with_dim(x, axis, lambda dim: dim * ranks)


class ReduceScatter(Collective, name="reduce_scatter"):
    """The sum of the operands of all ranks, of which each rank has its part along `axis`."""

    meaning_of_ranks = staticmethod(meanings.reduce_scatter)
    axis = Int(-1)

    @staticmethod
    def infer(x: TensorType, *, ranks: int, axis: int) -> TensorType:
        _require_ranks(ranks)
        require_kind(x, NUMBER, "operand")
        return _divided(x, axis, ranks)


class AllToAll(Collective, name="all_to_all"):
    """Each rank divides its operand along `split_axis`, and joins the parts it gets along `concat_axis`.

    Part r goes to rank r: what was divided along `concat_axis` is divided along `split_axis` afterwards.
    """

    meaning_of_ranks = staticmethod(meanings.all_to_all)
    split_axis = Int()
    concat_axis = Int()

    @staticmethod
    def infer(x: TensorType, *, ranks: int, split_axis: int, concat_axis: int) -> TensorType:
        _require_ranks(ranks)
        if normalize_axis(split_axis, x.rank) == normalize_axis(concat_axis, x.rank):
            raise OpError(f"split_axis and concat_axis must be two axes, got {split_axis} for both")
        return _with_dim(_divided(x, split_axis, ranks), concat_axis, lambda dim: dim * ranks)


COLLECTIVES: Sequence[type[Collective]] = (AllReduce, AllGather, ReduceScatter, AllToAll)
"""All collective operators."""


def _require_ranks(ranks: int) -> None:
    if ranks < 1:
        raise OpError(f"ranks must be 1 or more, got {ranks}")


def _with_dim(x: TensorType, axis: int, change: Callable[[Dim], Dim]) -> TensorType:
    at = normalize_axis(axis, x.rank)
    return x.with_shape([change(dim) if i == at else dim for i, dim in enumerate(x.shape)])


def _divided(x: TensorType, axis: int, ranks: int) -> TensorType:
    dim = x.shape[normalize_axis(axis, x.rank)]
    require_multiple(dim, ranks, f"axis {axis} of {x} is {dim}: it must be a multiple of the {ranks} ranks")
    return _with_dim(x, axis, lambda each: each // ranks)
