"""Write the tables of `docs/intrinsics.md`: `python -m mirlo.test.conformance.table [meanings] [targets] [arguments]`.

The second and the third table take some minutes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.test.conformance.precise import KINDS, TARGETS, functions, largest_error_of_many, measure_targets

PAGE = Path(__file__).parents[2] / "docs" / "intrinsics.md"


def meanings() -> str:
    """Return the table of all intrinsics."""
    letters = ("x", "y", "z")
    lines = ["| intrinsic | operands | meaning |", "| --- | --- | --- |"]
    for row in INTRINSICS.values():
        names = ", ".join(f"{n}: {k}" for n, k in zip(letters, row.operand_kinds, strict=False))
        lines.append(f"| `tir.{row.name}` | {names} | {row.doc} |")
    return "\n".join(lines)


def targets() -> str:
    """Return the table of the errors on each target, measured with a multiple-precision oracle."""
    columns = [(kind, target) for kind in KINDS for target in TARGETS]
    found: dict[str, dict[tuple[str, str], str]] = {}
    for name, kind, target, worst in measure_targets():
        found.setdefault(name, {})[kind, target] = "" if worst is None else f"{worst:.2f}"
        print(name, kind, target, worst, file=sys.stderr, flush=True)
    lines = ["| operator | " + " | ".join(f"{kind} {target}" for kind, target in columns) + " |"]
    lines.append("| --- |" + " --- |" * len(columns))
    for name, cells in found.items():
        lines.append(f"| `{name}` | " + " | ".join(cells.get(column, "") for column in columns) + " |")
    return "\n".join(lines)


def arguments() -> str:
    """Return the table of the largest errors of f32 on `llvm` over many arguments."""
    lines = ["| operator | largest error | at |", "| --- | --- | --- |"]
    for name, function in functions().items():
        if function.operands == 1:
            worst, place = largest_error_of_many(name)
            print(name, worst, place, file=sys.stderr, flush=True)
            lines.append(f"| `{name}` | {worst:.2f} | {place:.9g} |")
    return "\n".join(lines)


def documented_maxima(page: str) -> dict[str, tuple[float, float]]:
    """Return the largest errors of f32 on `llvm` that the page claims, and their arguments, by operator."""
    _, _, *rows = page[_section(page, "arguments")].splitlines()
    cells = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]
    return {name: (float(worst), float(place)) for name, worst, place in cells}


def documented(page: str) -> dict[tuple[str, str, str], float]:
    """Return the errors that the page claims, by operator, format and target."""
    head, _, *rows = page[_section(page, "targets")].splitlines()
    columns = [cell.split() for cell in head.strip("|").split("|")[1:]]
    found = {}
    for row in rows:
        name, *cells = (cell.strip(" `") for cell in row.strip("|").split("|"))
        for (kind, target), cell in zip(columns, cells, strict=True):
            if cell:
                found[name, kind, target] = float(cell)
    return found


def _section(page: str, name: str) -> slice:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    if found is None:
        raise ValueError(f"{PAGE} has no section between '<!-- {name} -->' and '<!-- end -->'")
    return slice(*found.span(1))


def rewritten(page: str, **sections: Callable[[], str]) -> str:
    """Return the page with these sections made anew."""
    for name, make in sections.items():
        place = _section(page, name)
        page = page[: place.start] + make() + page[place.stop :]
    return page


if __name__ == "__main__":
    tables = {"meanings": meanings, "targets": targets, "arguments": arguments}
    chosen = {name: tables[name] for name in sys.argv[1:] or tables}
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), **chosen), encoding="utf-8")
