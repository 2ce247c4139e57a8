"""The recorder of a placement."""

from __future__ import annotations

from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.passes.byoc.graph import BlockGraph, BlockNode
from mirlo.passes.byoc.records import AttemptRecord, CompositeRecord, NodeRecord, PatternRecord, Placement
from mirlo.passes.byoc.search import Failure, Match
from mirlo.passes.byoc.tables import PatternEntry
from mirlo.passes.byoc.work import bytes_of, flops_of
from mirlo.passes.locations import describe, names_of
from mirlo.runtime.records import dataclass


@dataclass
class Recorder:
    """A recorder for one block."""

    placement: Placement
    graph: BlockGraph
    function: str
    ids: dict[int, int] = field(default_factory=dict)
    """The placement's id of each node of the graph."""

    def __post_init__(self) -> None:
        for node in self.graph.nodes:
            if not node.is_terminator:
                self.ids[node.index] = len(self.placement.nodes)
                self.placement.nodes.append(self._describe(node))

    def _describe(self, node: BlockNode) -> NodeRecord:
        location = node.op.location
        reads = (value.node.index for value in node.operands if value.node is not None)
        return NodeRecord(
            id=self.ids[node.index],
            function=self.function,
            operator=node.name,
            names=tuple(names_of(location)),
            place=describe(location),
            operands=tuple(str(value.type or value.mlir.type) for value in node.operands),
            results=tuple(str(value.type or value.mlir.type) for value in node.results),
            reads=tuple(dict.fromkeys(self.ids[index] for index in reads)),
            flops=flops_of(node),
            bytes=bytes_of(node),
        )

    def failed(self, entry: PatternEntry, root: BlockNode, failure: Failure | None) -> None:
        """Record that a pattern did not match at this root."""
        at = failure.at.node if failure is not None and failure.at is not None else None
        self.placement.attempts.append(
            AttemptRecord(
                target=entry.target,
                pattern=entry.name,
                root=self.ids[root.index],
                accepted=False,
                nodes=self.numbers(failure.mask) if failure is not None else (),
                depth=failure.depth if failure is not None else 0,
                reason=str(failure.reason) if failure is not None else "",
                at=self.ids.get(at.index) if at is not None else None,
                predicate=failure.predicate if failure is not None else "",
                lost_to=failure.lost_to if failure is not None else "",
            )
        )

    def matched(self, entry: PatternEntry, match: Match) -> None:
        nodes = self.numbers(match.mask)
        attempt = AttemptRecord(entry.target, entry.name, self.ids[match.root.index], True, nodes, len(nodes))
        self.placement.attempts.append(attempt)

    def made(self, entry: PatternEntry, match: Match, function: ir.OpView) -> None:
        """Record that a match became a composite."""
        self.placement.taken.append(
            CompositeRecord(entry.target, entry.name, symbol_name(function), self.numbers(match.mask))
        )

    def numbers(self, mask: int) -> tuple[int, ...]:
        """Return the placement's ids of these nodes."""
        return tuple(self.ids[node.index] for node in self.graph.members(mask) if node.index in self.ids)


def pattern_record(entry: PatternEntry) -> PatternRecord:
    """Return the record of a pattern whose root no node could match."""
    ends = entry.pattern.roots() or ()
    return PatternRecord(entry.target, entry.name, tuple(sorted(entry.operators)), tuple(sorted(ends)))
