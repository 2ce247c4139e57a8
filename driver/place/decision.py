"""The alternatives of placement by cost, and the selected one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from mirlo.runtime.records import dataclass

Nodes = Mapping[str, Sequence[int]]
"""For each code generator the nodes that it may have, by their numbers in the records of `partition`."""


@dataclass(frozen=True)
class Candidate:
    """An alternative placement of a whole model."""

    name: str
    nodes: dict[str, list[int]]
    microseconds: float | None = None
    """Of one run; None where it could not be had."""
    ratio: float | None = None
    """To the first candidate, in neighbouring turns."""
    problem: str = ""


@dataclass(frozen=True)
class RegionCost:
    """One region of the placement by priority, with its costs on other targets, transfers included."""

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
        """Return the nodes that each code generator gets."""
        return next(candidate.nodes for candidate in self.candidates if candidate.name == self.best)

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Decision:
        """Return the decision that `to_json` wrote."""
        candidates = tuple(Candidate(**candidate) for candidate in content["candidates"])
        regions = tuple(RegionCost(**region) for region in content["regions"])
        decision = Decision(content["how"], content["threads"], content["best"], candidates, regions, known=True)
        _ = decision.nodes  # an error where the best one is none of them
        return decision
