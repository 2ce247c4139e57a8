"""The index of a document: its problems, its names with definitions and types, its functions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TextSpan:
    """Characters of a line, both counted from 0."""

    line: int
    start: int
    end: int

    def holds(self, line: int, character: int) -> bool:
        """Return whether the span contains a position, or ends there."""
        return line == self.line and self.start <= character <= self.end


@dataclass(frozen=True)
class TextProblem:
    """A diagnostic of the parser or of a verifier."""

    severity: str
    message: str
    span: TextSpan
    notes: tuple[tuple[str, TextSpan], ...] = ()


@dataclass
class Name:
    """A name in the text: of a value, a block, a function, an operation, or a rule."""

    span: TextSpan
    kind: str
    text: str
    definition: TextSpan | None = None
    """The span of the definition, if that is in this document."""
    type: str | None = None


@dataclass(frozen=True)
class Function:
    """A function in the document."""

    name: str
    span: TextSpan
    """Its name."""
    last_line: int


@dataclass
class Index:
    """The data for answers about a document."""

    problems: list[TextProblem] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    operations: list[tuple[int, int]] = field(default_factory=list)
    """The line and column of each operation, counted from 1 as in IR."""

    def name_at(self, line: int, character: int) -> Name | None:
        """Return the name at a position; between two adjacent names, the second one."""
        names = [name for name in self.names if name.span.holds(line, character)]
        return names[-1] if names else None

    def function_at(self, line: int) -> Function | None:
        """Return the innermost function around a line."""
        around = [each for each in self.functions if each.span.line <= line <= each.last_line]
        return max(around, key=lambda each: each.span.line) if around else None
