"""The figures of pages, and what they were measured with: a command, a commit, a processor and a date.

python -m benchmarks.claims           # list figures without, and tables that are old
python -m benchmarks.claims --mark    # write into the pages which are old

A section with figures, or a table of them, has a line before or after them:

    Measured: `python -m benchmarks.calls`; 1a2b3c4d; AMD EPYC (Zen 4), two cores; 2026-11-23.

The commit is that at which the figures were measured, or written down. What is no measurement, such as a limit, says so
in a comment of the section: `<!-- not measured: limits of the format -->`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "SECURITY.md", "docs/performance.md", "docs/gpu.md", "docs/measurements.md")
DAYS, COMMITS = 60, 1000
"""Age beyond which figures are marked as old."""
OLD = " *Old: measure it again.*"
"""The mark, at the end of a line."""
SOURCE = re.compile(
    r"^Measured: (?P<command>`[^`]+`.*?); (?P<commit>[0-9a-f]{7,12}); (?P<processor>.+); (?P<date>\d{4}-\d\d-\d\d)\."
    rf"(?P<old>{re.escape(OLD)})?$"
)
NOT_MEASURED = re.compile(r"^<!-- not measured: .+ -->$")
UNIT = r"(?:ns|µs|us|ms|s|kB|KB|MB|MiB|GB|GiB|GB/s|GFLOP/s|TFLOP/s|GOP/s|tokens/s|%)"
FIGURE = re.compile(
    rf"(?<![\w.`])\d[\d,]*(?:\.\d+)? ?{UNIT}(?![\w/])|(?<![\w.`])\d+\.\d+ (?:of|times|to \d+\.\d+)(?!\w)", re.ASCII
)
"""A time, a size, a rate or a ratio in a sentence."""
CELL = re.compile(r"^\d[\d,]*(?:\.\d+)?(?: ?[µ%\w/]+)?(?: \([\d.,]+\))?$")
CELLS = 3
"""Cells with numbers that make a table one of figures."""


@dataclass(frozen=True)
class Source:
    """What figures were measured with."""

    command: str
    commit: str
    processor: str
    date: date
    line: int
    is_marked: bool


@dataclass
class Section:
    """What is below one heading of a page, without the sections within it."""

    page: str
    heading: str
    line: int
    figures: list[int] = field(default_factory=list)
    """The lines with figures, and the first ones of tables of figures."""
    sources: list[Source] = field(default_factory=list)
    excuses: int = 0
    malformed: list[int] = field(default_factory=list)
    """The lines that begin as a source, and are none."""

    @property
    def place(self) -> str:
        """Return the page and the heading."""
        return f"{self.page}:{self.line} {self.heading}"


def sections_of(page: str, text: str) -> list[Section]:
    """Return the sections of a page, with their figures and sources."""
    sections = [Section(page, "", 1)]
    is_code, table = False, 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        if is_code:
            continue
        if line.startswith("#"):
            sections.append(Section(page, line.lstrip("# "), number))
            continue
        own = sections[-1]
        if not line.startswith("|"):
            table = 0
        if match := SOURCE.match(line):
            day = date.fromisoformat(match["date"])
            source = Source(match["command"], match["commit"], match["processor"], day, number, bool(match["old"]))
            own.sources.append(source)
        elif line.startswith("Measured:"):
            own.malformed.append(number)
        elif NOT_MEASURED.match(line):
            own.excuses += 1
        elif line.startswith("|"):
            before, table = table, table + sum(bool(CELL.match(cell.strip())) for cell in line.strip("|").split("|"))
            if before < CELLS <= table:
                own.figures.append(number)
        elif FIGURE.search(re.sub("`[^`]*`", "", line)):
            own.figures.append(number)
    return sections


def without_source(sections: Sequence[Section]) -> Iterator[str]:
    """Yield the sections whose figures come from nowhere."""
    for section in sections:
        yield from (f"{section.page}:{line} no line of the form of `Measured:`" for line in section.malformed)
        if section.figures and not section.sources and not section.excuses:
            lines = ", ".join(map(str, section.figures[:5]))
            yield f"{section.place}: lines {lines} have figures without command, commit, processor and date"


def read_pages() -> list[Section]:
    """Return the sections of all pages."""
    return [each for page in PAGES for each in sections_of(page, (ROOT / page).read_text(encoding="utf-8"))]


def is_old(source: Source) -> bool:
    """Return whether the checked-out commit is so much later than what figures were measured at."""
    today = date.fromisoformat(_git("log", "-1", "--format=%cs"))
    return (today - source.date).days > DAYS or int(_git("rev-list", "--count", f"{source.commit}..HEAD")) > COMMITS


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def mark() -> None:
    """Write which figures are old into the pages, and take the mark from those that are not."""
    for page in PAGES:
        path = ROOT / page
        lines = path.read_text(encoding="utf-8").splitlines()
        for section in sections_of(page, path.read_text(encoding="utf-8")):
            for source in section.sources:
                line = lines[source.line - 1].removesuffix(OLD)
                lines[source.line - 1] = line + OLD if is_old(source) else line
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mark", action="store_true", help="write into the pages which figures are old")
    options = parser.parse_args(arguments)
    if options.mark:
        mark()
    sections = read_pages()
    missing = list(without_source(sections))
    old = [f"{section.place}: {source.date}" for section in sections for source in section.sources if is_old(source)]
    print("\n".join([*missing, *(f"old: {each}" for each in old)]))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
