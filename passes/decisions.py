"""Decisions of passes about operators and prim functions, for `mirlo explain`."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.passes.locations import describe, names_of
from mirlo.passes.rules import Decline
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class PassDecision:
    """The decision of a pass about an operator of some nodes, or a prim function, with the reason."""

    decided_by: str
    """The name of the pass."""
    outcome: str | Decline
    nodes: tuple[str, ...] = ()
    """The nodes of the operator, or its location."""
    function: str = ""
    """The name of the prim function."""

    def __str__(self) -> str:
        declined = "declined: " if isinstance(self.outcome, Decline) else ""
        return f"{self.decided_by}: {declined}{self.outcome}"


def decision_of_nodes(decided_by: str, outcome: str | Decline, location: ir.Location) -> PassDecision:
    """Return a decision about the operator at a location."""
    return PassDecision(decided_by, outcome, tuple(names_of(location)) or (describe(location),))


@dataclass(frozen=True)
class Approximation:
    """Results that differ from those that the model describes, as an option permits."""

    by: str
    """The pass."""
    what: str
    """What was approximated, and by how much."""

    def __str__(self) -> str:
        return f"{self.by}: {self.what}"
