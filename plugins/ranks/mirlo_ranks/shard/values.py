"""The values of a rank: its part of each value of the graph, and conversions between parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirlo.extend.passes import PARTIAL, WHOLE, Sharding, Split, TensorType, ir
from mirlo_ranks.shard.constants import AxisRange, ConstantParts, sliced
from mirlo_ranks.shard.conversions import LayoutConverter
from mirlo_ranks.shard.plan import ShardingRecord


@dataclass
class RankValues:
    """The parts of the graph's values on one rank."""

    rank: int
    ranks: int
    constants: ConstantParts
    record: ShardingRecord
    _known: dict[ir.Value, tuple[ir.Value, Sharding]] = field(default_factory=dict)
    _converted: dict[tuple[ir.Value, Sharding], ir.Value] = field(default_factory=dict)

    def sharding(self, value: ir.Value) -> Sharding:
        """Return the sharding of a value of the graph."""
        return self._known[value][1] if value in self._known else WHOLE

    def own(self, value: ir.Value) -> ir.Value:
        """Return this rank's part of a value of the graph."""
        return self._known[value][0] if value in self._known else value

    def put(self, value: ir.Value, own: ir.Value, sharding: Sharding) -> None:
        """Record this rank's part of a value of the graph."""
        self._known[value] = own, sharding

    def range_of(self, sharding: Sharding, size: int, rank: int | None = None) -> AxisRange:
        """Return the range of an axis that a rank has."""
        assert sharding.axis is not None
        count = size // sharding.parts
        index = (self.rank if rank is None else rank) * sharding.parts // self.ranks
        return AxisRange(sharding.axis, index * count, count)

    def convert(self, value: ir.Value, wanted: Sharding) -> ir.Value:
        """Return a value of the graph with another sharding, at the insertion point; converted once for all users."""
        present = self.sharding(value)
        if present == wanted:
            return self.own(value)
        if (value, wanted) not in self._converted:
            self._converted[value, wanted] = self._conversion(value, present, wanted)
        return self._converted[value, wanted]

    def _conversion(self, value: ir.Value, present: Sharding, wanted: Sharding) -> ir.Value:
        own = self.own(value)
        if present.is_partial and wanted.parts != self.ranks and not wanted.is_whole:
            own, present = self.convert(value, WHOLE), WHOLE  # one sum for all users

        def take(whole: ir.Value, part: AxisRange, split: Split) -> ir.Value:
            is_constant = value in self.constants.known and whole == value
            return self.constants.take(value, part) if is_constant else sliced(whole, part)

        kind = TensorType.from_mlir(value.type)
        assert kind is not None
        before, after = (each.layout(kind.rank, self.ranks) for each in (present, wanted))
        return LayoutConverter(self.rank, self.ranks, self.record).convert(value, own, before, after, take)


__all__ = ["PARTIAL", "WHOLE", "RankValues"]
