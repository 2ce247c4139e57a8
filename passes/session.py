"""The state of one compilation besides the module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.passes.locations import describe

if TYPE_CHECKING:
    from mirlo.runtime.params import ParameterStore


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
