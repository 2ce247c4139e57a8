"""`--verify-diagnostics`: comments in the input declare the expected diagnostics, and no others may occur.

// expected-error @+1 {{'relax.add' op shapes do not match}}
// expected-note @below {{seen here}}
// expected-error-re @above {{expected {{[0-9]+}} operands}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mirlo.driver.diagnostics import AUTOMATIC_NOTE, Diagnostic, Diagnostics, flat
from mirlo.driver.source import Chunk
from mirlo.passes.files import FileError
from mirlo.passes.locations import SourcePosition
from mirlo.runtime.records import dataclass

EXPECTED = re.compile(
    r"expected-(?P<severity>error|warning|note|remark)(?P<regex>-re)?"
    r"[ \t]*(?P<at>@(?P<where>[+-]\d+|above|below|unknown))?[ \t]*\{\{(?P<text>.*)\}\}[ \t]*\r?$"
)
ATTEMPT = re.compile(r"//[ \t]*expected-(error|warning|note|remark)\b")


@dataclass
class Expectation:
    """One such comment."""

    written_at: int
    severity: str
    line: int | None
    text: str
    pattern: re.Pattern[str]
    met: bool = False

    def accepts(self, diagnostic: Diagnostic) -> bool:
        line = diagnostic.place.line or None if diagnostic.place else None
        return (
            not self.met
            and diagnostic.severity == self.severity
            and line == self.line
            and self.pattern.search(diagnostic.message) is not None
        )


def check_expected(chunk: Chunk, diagnostics: Diagnostics, only_expected: bool = False) -> bool:
    """Compare the diagnostics kept with the comments of the chunk, and print the differences.

    With `only_expected` there may be others.
    """
    expectations = list(_expectations(chunk))
    right = True
    for diagnostic in flat(diagnostics.kept):
        met = next((e for e in expectations if e.accepts(diagnostic)), None)
        if met is not None:
            met.met = True
        elif not only_expected and not diagnostic.message.startswith(AUTOMATIC_NOTE):
            right = False
            unexpected = f"unexpected {diagnostic.severity}: {diagnostic.message}"
            diagnostics.print(Diagnostic("error", unexpected, diagnostic.place, diagnostic.names))
    for e in expectations:
        if not e.met:
            right = False
            place = SourcePosition(chunk.source.name, e.written_at, 1)
            diagnostics.print(Diagnostic("error", f'expected {e.severity} "{e.text}" was not produced', place))
    return right


def _expectations(chunk: Chunk) -> Iterator[Expectation]:
    lines = chunk.with_line_numbers
    with_comment = {number for number, line in lines if ATTEMPT.search(line)}
    for number, line in lines:
        match = EXPECTED.search(line)
        if match is None:
            if number in with_comment:
                raise FileError(
                    f"{chunk.source.name}:{number}: this comment is not understood; write it as "
                    "'// expected-error @+1 {{text of the message}}', alone at the end of a line"
                )
            continue
        text = match["text"]
        pattern = _pattern(text) if match["regex"] else re.compile(re.escape(text))
        yield Expectation(number, match["severity"], _line(match["where"], number, with_comment), text, pattern)


def _line(where: str | None, number: int, with_comment: set[int]) -> int | None:
    """Return the line that a comment refers to; `above` and `below` skip other such comments."""
    if where is None:
        return number
    if where == "unknown":
        return None
    if where not in ("above", "below"):
        return number + int(where)
    step = 1 if where == "below" else -1
    number += step
    while number in with_comment:
        number += step
    return number


def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern for literal text in which `{{...}}` contains a regular expression."""
    pieces = re.split(r"\{\{(.*?)\}\}", text)
    try:
        return re.compile("".join(f"({p})" if i % 2 else re.escape(p) for i, p in enumerate(pieces)), re.DOTALL)
    except re.error as error:
        raise FileError(f"expected-...-re {{{{{text}}}}}: not a regular expression: {error}") from None
