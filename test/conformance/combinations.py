"""Operators, rules, places in a model, and tools, in every combination.

python test/conformance/combinations.py > docs/combinations.md     # all of them
python test/conformance/combinations.py neg/target/loop            # some, by parts of their names, with errors in full
python test/conformance/combinations.py --today                    # a quarter, another one each day, against the page

An operator multiplies by a number, and each rule by another one, so the result says which rule was used. A cell is
what a tool makes of one operator, with one rule, at one place: it works, or its error is the one that `REASONS`
documents. A rule that is not used, without an error, is a failure.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path

from combination_cells import OPERATORS, PLACES, REASONS, TOOLS, Cell, cells, rules_of
from combination_tools import outcome

JOBS = os.cpu_count() or 1
"""Processes that run combinations."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "combinations.md"
SHARES = 4
"""The days in which `--today` runs all."""


TEXTS = list(dict.fromkeys(reason.text for reason in REASONS))
SHOWN = {"ok": "ok", "FAILED": "**failed**"}
Row = tuple[str, str, str]
"""An operator, a rule and a place."""


def page(found: dict[Cell, str]) -> str:
    """Return the page of the documentation."""
    lines = [
        "# Combinations", "",
        "Written by `make combinations`; do not edit. `make test` runs a sample, `make nightly` a quarter, "
        "another one each day.", "",
        "What works together: an operator (of Mirlo, of a plug-in with a class, or of an ONNX domain with an attached "
        "prim function; or several, of floats or of bytes, that one pattern takes), a kind of rule for it, a place in "
        "a model, and a tool. The rule of a cell computes something else than the operator means, so the result says "
        "whether it was used, `mirlo bisect` must find it, and `check-target` must call it wrong. A number is a reason "
        "below; the tool gives an error that says it.", "",
        "- *default*: no rule; *target*: `@legalize`; *compilation*: `mirlo.compile(legalize=)`; *hand-written*: a "
        "rule with `b.call_prim_func`, or `mirlo.onnx_operator`; *tensorized*: `mirlo.compile(schedules=)` with "
        "`tensorize` to a C function; *generator*: a code generator takes the node.",
        "- *library*: in a program in C without Python, as `--emit library` and `mirlo link` make it.",
        "- *alone*: in the graph; *region*: an external module whose code Mirlo makes; *several*: a code generator "
        "takes the next node; *dynamic*: a dynamic dim; *loop*: in the body of an ONNX Loop; *helper*: in a "
        "public function of a module of IR, which `@main` calls.", "",
    ]  # fmt: skip
    for operator in OPERATORS:
        lines += [
            f"## {operator}",
            "",
            f"| rule | place | {' | '.join(TOOLS)} |",
            f"| --- | --- |{' --- |' * len(TOOLS)}",
        ]
        lines += [_row(found, operator, *each) for each in itertools.product(rules_of(operator), PLACES)]
        lines.append("")
    lines += ["## Reasons", "", *(f"{number}. {text}" for number, text in enumerate(TEXTS, 1))]
    return "\n".join(lines)


def _row(found: Mapping[Cell, str], operator: str, rule: str, place: str) -> str:
    marks = [found[Cell(operator, rule, place, tool)] for tool in TOOLS]
    shown = [SHOWN.get(mark) or str(TEXTS.index(REASONS[int(mark) - 1].text) + 1) for mark in marks]
    return f"| {rule} | {place} | {' | '.join(shown)} |"


def rows_of_day(day: int) -> list[Row]:
    """Return the rows of the page that are of this day."""
    rows = dict.fromkeys((cell.operator, cell.rule, cell.place) for cell in cells())
    return [row for number, row in enumerate(rows) if number % SHARES == day % SHARES]


def other_rows(found: Mapping[Cell, str], rows: Iterable[Row], text: str) -> list[str]:
    """Return the rows that are not the same on the page."""
    sections = {part.partition("\n")[0]: part.split("\n") for part in text.split("\n## ")[1:]}
    made = [(operator, _row(found, operator, rule, place)) for operator, rule, place in rows]
    return [f"{operator}: {row}" for operator, row in made if row not in sections.get(operator, ())]


def outcomes(chosen: Iterable[Cell], jobs: int = JOBS) -> Iterator[tuple[Cell, str, str]]:
    """Yield the outcome and the error of each cell; the cells of one model share a process and its caches."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in chosen:
        groups.setdefault((cell.operator, cell.rule, cell.place), []).append(cell)
    with ProcessPoolExecutor(jobs) as pool:
        for group in pool.map(_outcomes, groups.values()):
            yield from group


def _outcomes(group: list[Cell]) -> list[tuple[Cell, str, str]]:
    return [(cell, *outcome(cell)) for cell in group]


def main(words: list[str]) -> int:
    """Run the chosen combinations; print the page of all."""
    of_day = rows_of_day(date.today().toordinal()) if words == ["--today"] else []
    chosen = [cell for cell in cells() if not words or any(word in str(cell) for word in words)]
    chosen = [Cell(*row, tool) for row in of_day for tool in TOOLS] or chosen
    found: dict[Cell, str] = {}
    start = time.monotonic()
    for cell, mark, text in outcomes(chosen):
        found[cell] = mark
        if words and not of_day or mark == "FAILED":
            print(f"{cell}: {mark} {text[:600]}", file=sys.stderr, flush=True)
    if not words:
        print(page(found))
    others = other_rows(found, of_day, PAGE.read_text(encoding="utf-8")) if of_day else []
    for row in others:
        print(f"not on docs/{PAGE.name}: make combinations: {row}", file=sys.stderr)
    failed = [cell for cell, mark in found.items() if mark == "FAILED"]
    seconds = time.monotonic() - start
    print(f"{len(found)} combinations in {seconds:.0f} s, {len(failed)} failed", file=sys.stderr)
    return 1 if failed or others else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
