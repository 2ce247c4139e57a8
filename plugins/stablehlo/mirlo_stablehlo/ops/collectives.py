"""Collectives, and the ids of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.extend.frontend import RankGroups, Tensor, UnsupportedOperation, group_attributes, ir
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.regions import apply, combiner
from mirlo_stablehlo.registry import converter, of_parts

REDUCTIONS = ("add", "mul", "max", "min", "and", "or")
"""Regions that `relax.all_reduce` supports; others are applied to the gathered operands."""


@of_parts
@converter("all_reduce")
def all_reduce(op: StablehloOperation) -> Sequence[Tensor]:
    groups = op.grid.groups(op.op)

    def gathered(x: Tensor) -> Tensor:
        attributes = {"ranks": op.grid.ranks, **group_attributes(op.grid.ranks, groups)}
        return op.emit("all_gather", x.expand_dims(0), axis=0, **attributes)

    return _reduced(op, "all_reduce", groups, gathered)


@of_parts
@converter("cross-replica-sum")
def cross_replica_sum(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `cross-replica-sum`, the predecessor of `all_reduce`."""
    return _exchanged(op, "all_reduce", op.grid.groups(op.op))


@of_parts
@converter("reduce_scatter")
def reduce_scatter(op: StablehloOperation) -> Sequence[Tensor]:
    groups, axis = op.grid.groups(op.op), op.integer("scatter_dimension")

    def gathered(x: Tensor) -> Tensor:
        attributes = {"ranks": op.grid.ranks, **group_attributes(op.grid.ranks, groups)}
        return op.emit("all_to_all", x.expand_dims(0), split_axis=axis + 1, concat_axis=0, **attributes)

    return _reduced(op, "reduce_scatter", groups, gathered, axis=axis)


@of_parts
@converter("all_gather")
def all_gather(op: StablehloOperation) -> Sequence[Tensor]:
    return _exchanged(op, "all_gather", op.grid.groups(op.op), axis=op.integer("all_gather_dim"))


@of_parts
@converter("all_to_all")
def all_to_all(op: StablehloOperation) -> Sequence[Tensor]:
    groups, count = op.grid.groups(op.op), op.integer("split_count")
    if any(len(group) != count for group in groups):
        raise UnsupportedOperation(f"has split_count {count}, but groups of {len(groups[0])} processes")
    axes = {"split_axis": op.integer("split_dimension"), "concat_axis": op.integer("concat_dimension")}
    return _exchanged(op, "all_to_all", groups, **axes)


@of_parts
@converter("collective_permute")
def collective_permute(op: StablehloOperation) -> Sequence[Tensor]:
    return _permuted(op, op.grid.pairs(op.op))


@of_parts
@converter("collective_broadcast")
def collective_broadcast(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert a broadcast from the first process of each group; processes in no group get zeros."""
    groups = op.grid.groups(op.op)
    return _permuted(op, tuple((group[0], rank) for group in groups for rank in group))


@converter("partition_id")
def partition_id(op: StablehloOperation) -> Tensor:
    grid = op.grid
    rank = _rank(op)
    return rank if grid.replicas == 1 else rank % rank.filled(grid.partitions)


@converter("replica_id")
def replica_id(op: StablehloOperation) -> Tensor:
    grid = op.grid
    rank = _rank(op)
    return rank if grid.partitions == 1 else rank // rank.filled(grid.partitions)


def _rank(op: StablehloOperation) -> Tensor:
    if op.grid.ranks == 1:
        return op.constant(0, op.declared().dtype)
    return op.emit("rank_id", ranks=op.grid.ranks)


def _permuted(op: StablehloOperation, pairs: RankGroups) -> list[Tensor]:
    ranks = op.grid.ranks
    if ranks == 1 and pairs:
        return list(op.operands)
    flat = [rank for pair in pairs for rank in pair]
    return [op.emit("collective_permute", x, ranks=ranks, pairs=flat) for x in op.operands]


def _exchanged(op: StablehloOperation, operator: str, groups: RankGroups, **attributes: object) -> list[Tensor]:
    """Apply a collective to each operand."""
    _require_all(op, groups)
    if all(len(group) == 1 for group in groups):
        return list(op.operands)
    attributes |= group_attributes(op.grid.ranks, groups)
    return [op.emit(operator, x, ranks=op.grid.ranks, **attributes) for x in op.operands]


def _reduced(
    op: StablehloOperation,
    operator: str,
    groups: RankGroups,
    gathered: Callable[[Tensor], Tensor],
    **attributes: object,
) -> list[Tensor]:
    """Reduce each operand by the region: a known function by a collective, others by gathering and folding."""
    _require_all(op, groups)
    if all(len(group) == 1 for group in groups):
        return list(op.operands)
    block = op.op.regions[0].blocks[0]
    kind = combiner(block)
    results: list[Tensor] = []
    for parts in op.parts:
        if kind == "add" or (kind in REDUCTIONS and len(parts) == 1):
            own = {"ranks": op.grid.ranks, "reduction": kind, **attributes, **group_attributes(op.grid.ranks, groups)}
            results += [op.emit(operator, part, **own) for part in parts]
        else:
            _require_one_size(groups)
            results += _combined(op, block, [gathered(part) for part in parts], groups)
    return results


def _combined(op: StablehloOperation, block: ir.Block, parts: Sequence[Tensor], groups: RankGroups) -> list[Tensor]:
    """Apply a region to the values that a group's processes contributed along the first axis, in their order."""
    total = [part.slice(0, 0, 1) for part in parts]
    for place in range(1, len(groups[0])):
        total = apply(op, block, [*total, *(part.slice(0, place, 1) for part in parts)])
    return [part.squeeze(0) for part in total]


def _require_all(op: StablehloOperation, groups: RankGroups) -> None:
    """Check that each process is in one group: the results of others are not defined."""
    ranks = op.grid.ranks
    if sorted(rank for group in groups for rank in group) != list(range(ranks)):
        raise UnsupportedOperation(f"has groups {groups}: expected each of the {ranks} processes in one")


def _require_one_size(groups: RankGroups) -> None:
    sizes = {len(group) for group in groups}
    if len(sizes) != 1:
        raise UnsupportedOperation(
            f"reduces groups of {', '.join(map(str, sorted(sizes)))} processes with a function that is not a sum, "
            "maximum or the like: expected groups of one size"
        )
