"""Diagnostics: collected from MLIR and from passes, printed with the line that they are about."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TextIO

from mirlo.dialects.bindings import ir
from mirlo.driver.source import SourceFile
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.locations import PARSED_TEXT, SourcePosition, find_source_position, names_of
from mirlo.passes.reproducer import RESOURCE
from mirlo.runtime.names import terminal
from mirlo.runtime.records import dataclass

SEVERITIES = ("error", "warning", "remark", "note")
"""The severities of MLIR's diagnostics, the gravest first."""
AUTOMATIC_NOTE = "see current operation: "
"""MLIR adds a note with the operation to each error of a verifier."""
READ_BY_TOOLS = f"ignoring unknown external resources for '{RESOURCE}'"
"""MLIR's warning about a pipeline in a file, which `--run-reproducer` reads."""


@dataclass(frozen=True)
class Diagnostic:
    """A message with a location, copied from MLIR, whose diagnostics live only as long as their handler."""

    severity: str
    message: str
    place: SourcePosition | None = None
    names: tuple[str, ...] = ()
    notes: tuple[Diagnostic, ...] = ()


@dataclass
class Diagnostics:
    """The diagnostics of one input: printed at once, or collected for comparison."""

    source: SourceFile
    keep: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    kept: list[Diagnostic] = field(default_factory=list)
    errors: int = 0
    has_notes: bool = True
    has_operations: bool = True
    """Whether notes that only print the operation are printed."""
    has_stacks: bool = False
    """Whether where in Python a diagnostic was emitted is printed below it."""
    severities: Sequence[str] = SEVERITIES
    """The severities that are printed or collected."""

    def add(self, diagnostic: Diagnostic) -> None:
        self.errors += diagnostic.severity == "error"
        if diagnostic.severity not in self.severities:
            return
        if self.keep:
            self.kept.append(diagnostic)
        else:
            self.print(diagnostic)

    def report(self, severity: str, message: str, location: ir.Location | None = None) -> None:
        """Add a diagnostic that did not come from MLIR."""
        self.add(
            Diagnostic(
                severity, message, self._place(location), tuple(names_of(location) if location is not None else ())
            )
        )

    def add_mlir(self, diagnostic: ir.DiagnosticInfo | ir.Diagnostic) -> bool:
        """Add one of MLIR's diagnostics; return True, which marks it as handled."""
        if diagnostic.message != READ_BY_TOOLS:
            self.add(self._converted(diagnostic))
        return True

    def add_error(self, error: ir.MLIRError) -> None:
        """Add the diagnostics of an exception of the bindings."""
        for diagnostics in error.error_diagnostics:
            self.add_mlir(diagnostics)
        if not error.error_diagnostics:
            self.report("error", str(error))

    def add_failure(self, failure: PassFailed) -> None:
        """Add the cause of the failure of a pass."""
        for diagnostics in failure.diagnostics:
            self.add_mlir(diagnostics)
        if not failure.diagnostics:
            self.report("error", failure.message, failure.location)
        elif not self.keep:
            self.hint(failure.message)

    def hint(self, message: str) -> None:
        """Print a hint about the errors above; it is no diagnostic of the input."""
        if not self.keep:
            self.stream.write(f"note: {message}\n")

    def print(self, diagnostic: Diagnostic) -> None:
        self.stream.write(render(diagnostic, self.source))
        if self.has_stacks:
            self.stream.write("note: diagnostic emitted with trace:\n")
            self.stream.writelines(traceback.format_stack()[:-1])
        for note in diagnostic.notes if self.has_notes else ():
            if self.has_operations or not note.message.startswith(AUTOMATIC_NOTE):
                self.stream.write(render(note, self.source))

    def _converted(self, diagnostic: ir.DiagnosticInfo | ir.Diagnostic) -> Diagnostic:
        return Diagnostic(
            diagnostic.severity.name.lower(),
            diagnostic.message,
            self._place(diagnostic.location),
            tuple(names_of(diagnostic.location)),
            tuple(self._converted(note) for note in diagnostic.notes),
        )

    def _place(self, location: ir.Location | None) -> SourcePosition | None:
        position = find_source_position(location) if location is not None else None
        if position is not None and position.file == PARSED_TEXT:
            return position._replace(file=self.source.name)
        return position


def render(diagnostic: Diagnostic, source: SourceFile) -> str:
    """Format `file:3:5: error: message`, then the source line with a caret if it is known."""
    position = diagnostic.place
    names = ", ".join(f'"{terminal(name)}"' for name in diagnostic.names)
    head = [str(position)] if position else []
    head += [names] if names else []
    text = ": ".join([*head, diagnostic.severity, diagnostic.message]) + "\n"
    if position is None or position.file != source.name or not 0 < position.line <= len(source.lines):
        return text
    line = source.lines[position.line - 1].rstrip("\r")
    # Tabs stay tabs, so that the caret lines up however wide they are shown.
    indent = re.sub(r"[^\t]", " ", line[: position.column - 1])
    return f"{text}{line}\n{indent}^\n"


def flat(diagnostics: Iterable[Diagnostic]) -> Iterable[Diagnostic]:
    """Yield diagnostics and their notes, in order."""
    for diagnostic in diagnostics:
        yield diagnostic
        yield from flat(diagnostic.notes)
