"""Conversions between layouts: collectives and slices that give a rank another part of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mirlo.extend.passes import (
    OPS,
    Collective,
    RankGroups,
    RankLayout,
    Split,
    TensorType,
    count_parts,
    group_attributes,
    groups_along,
    ir,
)
from mirlo.extend.passes import dims as D
from mirlo_ranks.shard.constants import AxisRange, sliced
from mirlo_ranks.shard.exchanges import note_exchange
from mirlo_ranks.shard.plan import ShardingRecord

TakePart = Callable[[ir.Value, AxisRange, Split], ir.Value]
"""Returns the rank's range of a value in a split, at the insertion point."""


def take_slice(value: ir.Value, part: AxisRange, split: Split) -> ir.Value:
    """Return a slice of a value."""
    return sliced(value, part)


@dataclass
class LayoutConverter:
    """Emits the operations that convert a rank's part to another layout, at the insertion point."""

    rank: int
    ranks: int
    record: ShardingRecord

    def convert(
        self, value: ir.Value, own: ir.Value, present: RankLayout, wanted: RankLayout, take: TakePart = take_slice
    ) -> ir.Value:
        """Return this rank's part of a value in another layout; `own` is its present part."""
        own, present = self._added(value, own, present, wanted)
        own, present = self._moved(value, own, present, wanted)
        for axis, split in enumerate(present.dims):
            if split is not None and split != wanted.dims[axis]:
                own = self._exchange("all_gather", value, own, self._groups(split, present, axis), axis=axis)
                present = _with_split(present, axis, None)
        for axis, split in enumerate(wanted.dims):
            if split is not None and present.dims[axis] is None:
                kind = TensorType.from_mlir(own.type)
                assert kind is not None
                count = D.static_dim(kind.shape[axis]) // count_parts(split)
                own = take(own, AxisRange(axis, split[self.rank] * count, count), split)
        return own

    def _added(
        self, value: ir.Value, own: ir.Value, present: RankLayout, wanted: RankLayout
    ) -> tuple[ir.Value, RankLayout]:
        """Add partial sums; if the result is divided in the same way, each rank receives only its part."""
        summed = present.summed
        if summed is None or summed == wanted.summed:
            return own, present
        groups = groups_along(summed, present.dims)
        for axis, split in enumerate(wanted.dims):
            if split == summed and present.dims[axis] is None:
                own = self._exchange("reduce_scatter", value, own, groups, axis=axis)
                return own, _with_split(replace(present, summed=None), axis, split)
        return self._exchange("all_reduce", value, own, groups), replace(present, summed=None)

    def _moved(
        self, value: ir.Value, own: ir.Value, present: RankLayout, wanted: RankLayout
    ) -> tuple[ir.Value, RankLayout]:
        """Divide another axis instead of one that is divided in the same way."""
        for axis, split in enumerate(present.dims):
            others = [i for i, each in enumerate(wanted.dims) if each == split and present.dims[i] is None]
            if split is None or wanted.dims[axis] == split or not others:
                continue
            groups = self._groups(split, present, axis)
            own = self._exchange("all_to_all", value, own, groups, split_axis=others[0], concat_axis=axis)
            present = _with_split(_with_split(present, axis, None), others[0], split)
        return own, present

    @staticmethod
    def _groups(split: Split, present: RankLayout, axis: int) -> RankGroups:
        others = tuple(each for i, each in enumerate(present.dims) if i != axis)
        return groups_along(split, (*others, present.summed))

    def _exchange(self, operator: str, value: ir.Value, own: ir.Value, groups: RankGroups, **axes: int) -> ir.Value:
        cls = OPS[operator]
        assert issubclass(cls, Collective)
        with value.location:
            result: ir.Value = cls.make(own, ranks=self.ranks, **axes, **group_attributes(self.ranks, groups))
        note_exchange(result.owner, value.location, self.record)
        return result


def _with_split(layout: RankLayout, axis: int, split: Split | None) -> RankLayout:
    return replace(layout, dims=tuple(split if i == axis else each for i, each in enumerate(layout.dims)))
