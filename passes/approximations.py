"""Records of what a compilation changed in the results of a model, on request."""

from __future__ import annotations

from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Approximation:
    """Results that differ from those that the model describes, as an option permits."""

    by: str
    """The pass."""
    what: str
    """What was approximated, and by how much."""

    def __str__(self) -> str:
        return f"{self.by}: {self.what}"
