"""Write the tables of `docs/intrinsics.md`: `python -m mirlo.test.conformance.table [meanings] [errors] [targets]`.

Measures every intrinsic on many more samples than the test does, so that it takes a few minutes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.lower.formats import FORMATS
from mirlo.test.conformance.harness import Compiled
from mirlo.test.conformance.precise import TARGETS, measure_targets
from mirlo.tools.conformance.errors import ulp_errors
from mirlo.tools.conformance.meanings import FLOAT, WIDE
from mirlo.tools.conformance.samples import operands

PAGE = Path(__file__).parents[2] / "docs" / "intrinsics.md"
KINDS = ("f32", "f64", "f16", "bf16")
COUNT = 1 << 20


def measure(name: str, kind: str, count: int) -> float:
    """Largest error found, in units in the last place."""
    meaning, arity = FLOAT[name], INTRINSICS[name].arity
    arguments = operands(kind, arity, min(count, 1 << 16) if FORMATS[kind].bits == 16 else count, meaning)
    got = Compiled(name, [kind] * arity, len(arguments[0]))(*arguments)
    with np.errstate(all="ignore"):
        reference = meaning.function(*(a.astype(WIDE) for a in arguments))
    return float(ulp_errors(got, reference, kind, meaning.least).max())


def meanings() -> str:
    """Return the table of all intrinsics."""
    letters = ("x", "y", "z")
    lines = ["| intrinsic | operands | meaning |", "| --- | --- | --- |"]
    for row in INTRINSICS.values():
        names = ", ".join(f"{n}: {k}" for n, k in zip(letters, row.operand_kinds, strict=False))
        lines.append(f"| `tir.{row.name}` | {names} | {row.doc} |")
    return "\n".join(lines)


def errors() -> str:
    """Return the table of the errors of the floating-point intrinsics on target llvm."""
    lines = ["| intrinsic | " + " | ".join(KINDS) + " |", "| --- |" + " --- |" * len(KINDS)]
    for name in FLOAT:
        if INTRINSICS[name].result == "bool":
            continue
        cells = []
        for kind in KINDS:
            worst = measure(name, kind, COUNT)
            cells.append("exact" if worst == 0 else f"{worst:.2f}")
            print(name, kind, cells[-1], file=sys.stderr, flush=True)
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
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


def documented_by_target(page: str) -> dict[tuple[str, str, str], float]:
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


def documented(page: str) -> dict[tuple[str, str], float]:
    """Return the errors that the page claims, by intrinsic and format."""
    found = {}
    for line in page[_section(page, "errors")].splitlines()[2:]:
        name, *cells = (cell.strip(" `") for cell in line.strip("|").split("|"))
        for kind, cell in zip(KINDS, cells, strict=True):
            found[name, kind] = 0.0 if cell == "exact" else float(cell)
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
    tables = {"meanings": meanings, "errors": errors, "targets": targets}
    chosen = {name: tables[name] for name in sys.argv[1:] or tables}
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), **chosen), encoding="utf-8")
