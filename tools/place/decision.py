"""What placement by cost compared, and what it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mirlo.tools.cli.tables import columns

Nodes = Mapping[str, Sequence[int]]
"""For each code generator the nodes that it may have, by their numbers in the records of `partition`."""


@dataclass(frozen=True)
class Candidate:
    """A way to place all of a model."""

    name: str
    nodes: dict[str, list[int]]
    microseconds: float | None = None
    """Of one run; None where it could not be had."""
    ratio: float | None = None
    """To the first candidate, in neighbouring turns."""
    problem: str = ""


@dataclass(frozen=True)
class RegionCost:
    """One region of the placement by priority, and what it costs elsewhere, its transfers included."""

    region: str
    target: str
    operators: int
    microseconds: dict[str, float]
    best: str
    problem: str = ""
    why: dict[str, str] = field(default_factory=dict)
    """What decides the time, by target, where it was estimated."""


@dataclass(frozen=True)
class Decision:
    """The comparison; `best` is the name of the candidate that was taken."""

    how: str
    threads: int
    best: str
    candidates: tuple[Candidate, ...]
    regions: tuple[RegionCost, ...] = ()
    known: bool = False
    """Whether it was measured before, and read from disk."""

    @property
    def nodes(self) -> dict[str, list[int]]:
        """Which nodes each code generator gets."""
        return next(candidate.nodes for candidate in self.candidates if candidate.name == self.best)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Decision:
        """The opposite of `to_json`, of what is read from disk."""
        candidates = tuple(Candidate(**candidate) for candidate in found["candidates"])
        regions = tuple(RegionCost(**region) for region in found["regions"])
        decision = Decision(found["how"], found["threads"], found["best"], candidates, regions, known=True)
        _ = decision.nodes  # an error where the best one is none of them
        return decision


TITLES = ("alternative", "given away", "ms", "by the first")


def candidate_rows(decision: Decision) -> list[tuple[str, ...]]:
    """The alternatives as people read them."""
    rows: list[tuple[str, ...]] = []
    for candidate in decision.candidates:
        given = str(sum(map(len, candidate.nodes.values())))
        mark = " ← taken" if candidate.name == decision.best else ""
        if candidate.microseconds is None:
            rows.append((candidate.name, given, "", candidate.problem))
        else:
            ratio = f"{candidate.ratio:.3f}" if candidate.ratio is not None else ""
            note = f" ({candidate.problem})" if candidate.problem else ""
            rows.append((candidate.name, given, f"{candidate.microseconds / 1000:.3f}", f"{ratio}{mark}{note}"))
    return rows


def decision_lines(decision: Decision) -> Iterator[str]:
    """The comparison as text."""
    known = ", measured before" if decision.known else ""
    threads = "1 thread" if decision.threads == 1 else f"{decision.threads} threads"
    yield f"alternatives, cost {decision.how}, {threads}{known}:"
    yield from (f"  {line}" for line in columns([TITLES, *candidate_rows(decision)], numbers={1, 2}))
    if decision.regions:
        yield "regions elsewhere, in microseconds:"
        rows = []
        for region in decision.regions:
            costs = ", ".join(f"{name} {cost:.1f}" for name, cost in region.microseconds.items())
            said = f"best on {region.best}" + (f" ({region.problem})" if region.problem else "")
            rows.append((f"  {region.region}", f"{region.operators} operators", costs, said))
        yield from columns(rows, numbers={1})
        for region in decision.regions:
            yield from (f"  {region.region} on {name}: {why}" for name, why in region.why.items() if why)
