"""The state of one compilation besides the module, and the decisions of passes that are noted in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.passes.locations import describe, names_of
from mirlo.passes.rules import Decline
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.runtime.params import ParameterStore


REQUESTED_ACTIVATIONS = "activations"
"""The option with the representation of activations that the user requested, whatever the model says."""
Report = Callable[[str, str, "ir.Location | None"], None]
"""Called with a severity ("warning", "remark"), a message, and a location or None."""


def _print_to_stderr(severity: str, message: str, location: ir.Location | None) -> None:
    position = f"{describe(location)}: " if location is not None else ""
    print(f"{position}{severity}: {message}", file=sys.stderr)


class Session:
    """Context passed to every pass: weights, records of passes, the caller's options.

    `notes` holds the records that passes append (declined rules, placement decisions); tools print them. `options`
    is free for the caller of the pipeline. `report` receives the warnings and remarks of passes.
    """

    def __init__(
        self,
        params: ParameterStore | None = None,
        notes: list[object] | None = None,
        options: dict[str, Any] | None = None,
        report: Report = _print_to_stderr,
    ):
        self._params = params
        self.notes: list[object] = [] if notes is None else notes
        self.options = {} if options is None else options
        self.report = report
        self.watching: Sequence[Any] = ()
        """The instruments of the run that observe nested passes."""

    @property
    def params(self) -> ParameterStore:
        """Return the arrays that `relax.constant` names; an empty store is created on first use if none was given."""
        if self._params is None:
            from mirlo.runtime.params import ParameterStore

            self._params = ParameterStore()
        return self._params

    @params.setter
    def params(self, params: ParameterStore) -> None:
        self._params = params

    @property
    def has_params(self) -> bool:
        """Return whether there are parameters, without creating a store."""
        return self._params is not None and len(self._params) > 0

    def warning(self, message: str, location: ir.Location | None = None) -> None:
        """Warn about a possible mistake at a location in the user's model."""
        self.report("warning", message, location)

    def remark(self, message: str, location: ir.Location | None = None) -> None:
        """Report a decision of the compiler and its reason."""
        self.report("remark", message, location)


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
class RowType:
    """How the rows of some products are represented."""

    kind: str
    """One of `ACTIVATIONS`."""


@dataclass(frozen=True)
class Approximation:
    """Results that differ from those that the model describes, as an option permits."""

    by: str
    """The pass."""
    what: str
    """What was approximated, and by how much."""

    def __str__(self) -> str:
        return f"{self.by}: {self.what}"
