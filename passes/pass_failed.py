"""The error of a pipeline: which pass failed, why, and where."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.locations import describe
from mirlo.passes.registry import PassError


class PassFailed(PassError):
    """Raised when a pass of a pipeline fails.

    `diagnostics` come from MLIR; `internal` marks an exception that the pass did not raise on purpose.
    """

    error_code = "MIR0402"
    remedy = "See the reason in the message; `--debug` shows where an internal one happened."

    def __init__(
        self,
        name: str,
        reason: str,
        location: ir.Location | None = None,
        diagnostics: Sequence[ir.DiagnosticInfo] = (),
        internal: bool = False,
    ):
        super().__init__(f"pass '{name}' failed: {reason}", location)
        self.pass_name = name
        self.diagnostics = tuple(diagnostics)
        self.internal = internal

    def __str__(self) -> str:
        lines = [f"{describe(self.location)}: {self.message}" if self.location is not None else self.message]
        lines += [f"  {describe(d.location)}: {d.severity.name.lower()}: {d.message}" for d in self.diagnostics]
        return "\n".join(lines)
