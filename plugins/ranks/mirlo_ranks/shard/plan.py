"""The strategies that a caller requests, and the record of the resulting division."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase

from mirlo.extend.passes import ReportSection, bytes_text, columns

COLUMN, ROW, HEAD, VOCABULARY, EXPERT, REPLICATE = "column", "row", "head", "vocabulary", "expert", "replicate"
STRATEGIES = ("auto", COLUMN, ROW, EXPERT, VOCABULARY, REPLICATE)
"""Strategies that a plan may name."""


@dataclass(frozen=True)
class RankPlan:
    """Strategies by patterns of nodes' names; the first pattern that matches decides."""

    rows: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def parse(texts: Sequence[str]) -> RankPlan:
        """Parse `PATTERN=STRATEGY`; raise ValueError for another form."""
        rows = []
        for text in texts:
            pattern, equals, strategy = text.rpartition("=")
            if not equals or not pattern or strategy not in STRATEGIES:
                raise ValueError(f"expected PATTERN=STRATEGY with one of {', '.join(STRATEGIES)}, found '{text}'")
            rows.append((pattern, strategy))
        return RankPlan(tuple(rows))

    def strategy(self, names: Sequence[str]) -> str:
        """Return the strategy requested for a node with these names."""
        for pattern, strategy in self.rows:
            if any(fnmatchcase(name, pattern) for name in names):
                return strategy
        return "auto"

    def unused(self, names: Sequence[str]) -> list[str]:
        """Return the patterns that match none of these names."""
        return [pattern for pattern, _ in self.rows if not any(fnmatchcase(name, pattern) for name in names)]


@dataclass(frozen=True)
class DividedNode:
    """An operator with weights, and how it was divided."""

    name: str
    operator: str
    strategy: str
    reason: str
    """The reason why it is computed whole; empty if it is divided."""
    nbytes: int
    """Bytes of its weights."""
    own_bytes: int
    """Bytes of a rank's part of its weights."""


@dataclass(frozen=True)
class InsertedCollective:
    """A collective, and the bytes that a rank sends by it per token."""

    operator: str
    name: str
    kind: str
    """The type of the operand."""
    sent: int
    """Bytes that a rank sends for one token of one sequence, which other ranks read."""


@dataclass
class ShardingRecord(ReportSection):
    """How a model was divided among ranks."""

    key = "ranks"
    ranks: int
    rank: int
    nodes: list[DividedNode] = field(default_factory=list)
    collectives: list[InsertedCollective] = field(default_factory=list)

    @property
    def sent(self) -> int:
        """Return the bytes that a rank sends for one token."""
        return sum(each.sent for each in self.collectives)

    def token_seconds(self, nbytes: float, memory: float, latency: float, link: float, flops: float = 0.0) -> float:
        """Return the time of one token of one sequence, for rates in bytes, or operations, a second.

        A rank reads its weights, `nbytes`, at the rate `memory`, unless computing at the rate `flops` takes longer: a
        multiplication and an addition for each f32. Each collective takes the latency, and its bytes the link's rate.
        """
        compute = nbytes / 4 * 2 / flops if flops else 0.0
        return max(nbytes / memory, compute) + len(self.collectives) * latency + self.sent / link

    def lines(self) -> Iterator[str]:
        """Yield a table of the nodes with weights, a table of the collectives, and the bytes sent per token."""
        yield f"divided among {self.ranks} ranks:"
        rows = [("node", "operator", "strategy", "weights", "of a rank", "why whole")]
        for node in self.nodes:
            sizes = bytes_text(node.nbytes), bytes_text(node.own_bytes)
            rows.append((node.name, node.operator, node.strategy, *sizes, node.reason))
        yield from columns(rows, numbers={3, 4})
        rows_of_collectives = [("collective", "after", "operand", "calls", "sent for a token")]
        for each, count in Counter(self.collectives).items():
            row = (each.operator, each.name, each.kind, str(count), bytes_text(each.sent * count))
            rows_of_collectives.append(row)
        yield from columns(rows_of_collectives, numbers={3, 4})
        calls = len(self.collectives)
        own, whole = (sum(getattr(node, name) for node in self.nodes) for name in ("own_bytes", "nbytes"))
        yield f"a rank has {bytes_text(own)} of {bytes_text(whole)} of weights"
        yield f"a rank sends {bytes_text(self.sent)} in {calls} calls for a token"

    def to_json(self) -> dict[str, object]:
        """Return the record as JSON values."""
        return {**asdict(self), "sent": self.sent}
