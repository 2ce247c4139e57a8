"""How a model was divided among ranks, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from mirlo.passes.shard.plan import ShardingRecord
from mirlo.tools.cli.tables import bytes_text, columns


def rank_lines(record: ShardingRecord) -> Iterator[str]:
    """Yield a table of the nodes with weights, one of the collectives, and what a rank sends for one token."""
    yield f"divided among {record.ranks} ranks:"
    rows = [("node", "operator", "strategy", "weights", "of a rank", "why whole")]
    for node in record.nodes:
        sizes = bytes_text(node.nbytes), bytes_text(node.own_bytes)
        rows.append((node.name, node.operator, node.strategy, *sizes, node.reason))
    yield from columns(rows, numbers={3, 4})
    counts = Counter(record.collectives)
    rows_of_collectives = [("collective", "after", "operand", "calls", "sent for a token")]
    for each, count in counts.items():
        row = (each.operator, each.name, each.kind, str(count), bytes_text(each.sent * count))
        rows_of_collectives.append(row)
    yield from columns(rows_of_collectives, numbers={3, 4})
    calls = len(record.collectives)
    own, whole = (sum(getattr(node, name) for node in record.nodes) for name in ("own_bytes", "nbytes"))
    yield f"a rank has {bytes_text(own)} of {bytes_text(whole)} of weights"
    yield f"a rank sends {bytes_text(record.sent)} in {calls} calls for a token"


def rank_json(record: ShardingRecord) -> dict[str, object]:
    """Return the record as JSON values."""
    return {**asdict(record), "sent": record.sent}
