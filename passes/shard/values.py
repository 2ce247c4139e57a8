"""The values of a rank: for each value of the graph, the part that this rank has, and conversions between parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.sharding import PARTIAL, WHOLE, Sharding
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.collectives import Collective
from mirlo.passes.shard.constants import AxisRange, ConstantParts, sliced
from mirlo.passes.shard.exchanges import note_exchange
from mirlo.passes.shard.plan import ShardingRecord


@dataclass
class RankValues:
    """The values of one rank."""

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
        """Return what this rank has of a value of the graph."""
        return self._known[value][0] if value in self._known else value

    def put(self, value: ir.Value, own: ir.Value, sharding: Sharding) -> None:
        """Remember what this rank has of a value of the graph."""
        self._known[value] = own, sharding

    def range_of(self, sharding: Sharding, size: int, rank: int | None = None) -> AxisRange:
        """Return the range of an axis that a rank has."""
        assert sharding.axis is not None
        count = size // sharding.parts
        index = (self.rank if rank is None else rank) * sharding.parts // self.ranks
        return AxisRange(sharding.axis, index * count, count)

    def convert(self, value: ir.Value, wanted: Sharding) -> ir.Value:
        """Return a value of the graph with another sharding, at the insertion point; once for all of its users."""
        present = self.sharding(value)
        if present == wanted:
            return self.own(value)
        if (value, wanted) not in self._converted:
            self._converted[value, wanted] = self._conversion(value, present, wanted)
        return self._converted[value, wanted]

    def _conversion(self, value: ir.Value, present: Sharding, wanted: Sharding) -> ir.Value:
        if present.is_whole:
            return self._part(value, self.own(value), wanted)
        everywhere = wanted.axis is not None and wanted.parts == self.ranks
        if present.is_partial:
            if everywhere:
                return self._exchange("reduce_scatter", value, self.own(value), axis=wanted.axis)
            return self._part(value, self._summed(value), wanted)
        if everywhere and present.parts == self.ranks:
            axes = {"split_axis": wanted.axis, "concat_axis": present.axis}
            return self._exchange("all_to_all", value, self.own(value), **axes)
        return self._part(value, self._gathered(value, present), wanted)

    def _summed(self, value: ir.Value) -> ir.Value:
        if (value, WHOLE) not in self._converted:
            self._converted[value, WHOLE] = self._exchange("all_reduce", value, self.own(value))
        return self._converted[value, WHOLE]

    def _gathered(self, value: ir.Value, present: Sharding) -> ir.Value:
        """Join the parts of all ranks; of ranks that have the same part, the first one's is taken."""
        assert present.axis is not None
        joined = self._exchange("all_gather", value, self.own(value), axis=present.axis)
        kind = TensorType.from_mlir(joined.type)
        assert kind is not None
        axis, same = present.axis, self.ranks // present.parts
        if same == 1:
            return joined
        before, after = kind.shape[:axis], kind.shape[axis + 1 :]
        own = kind.shape[axis] // self.ranks
        groups = OPS["reshape"].make(joined, shape=(*before, present.parts, same, own, *after))
        first = OPS["strided_slice"].make(groups, axes=(axis + 1,), begin=(0,), end=(1,), strides=(1,))
        result: ir.Value = OPS["reshape"].make(first, shape=(*before, present.parts * own, *after))
        return result

    def _part(self, value: ir.Value, whole: ir.Value, wanted: Sharding) -> ir.Value:
        if wanted.axis is None:
            return whole
        kind = TensorType.from_mlir(whole.type)
        assert kind is not None
        part = self.range_of(wanted, D.static_dim(kind.shape[wanted.axis]))
        if value in self.constants.known and whole == value:
            return self.constants.take(value, part)
        return sliced(whole, part)

    def _exchange(self, operator: str, value: ir.Value, own: ir.Value, **axes: int | None) -> ir.Value:
        cls = OPS[operator]
        assert issubclass(cls, Collective)
        with value.location:
            result: ir.Value = cls.make(own, ranks=self.ranks, **axes)
        note_exchange(result.owner, value.location, self.record)
        return result


__all__ = ["PARTIAL", "WHOLE", "RankValues"]
