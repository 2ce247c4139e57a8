"""A sample of the combinations of operators, rules, places and tools; `make nightly` runs all of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from c_compiler import needs_c_compiler
from combination_cells import OPERATORS, PLACES, REASONS, RULES, TOOLS, Cell, cells, rules_of
from combination_tools import NotUsed, outcome, run
from combinations import SHARES, other_rows, page, rows_of_day
from commands import ROOT

SLOW = ("bisect",)
"""Tools that take seconds: one cell, instead of one for each place and each rule."""
Pair = tuple[str, str]


def _pairs(cell: Cell) -> set[Pair]:
    """Return what a cell shows together."""
    if cell.tool in SLOW:
        return {(cell.tool, "")}
    return {(cell.tool, cell.place), (cell.tool, cell.rule), (cell.rule, cell.place)}


def _sample() -> list[Cell]:
    """Return few cells that have each tool at each place, each rule with each tool, and each rule at each place."""
    works = [cell for cell in cells() if not any(reason.covers(cell) for reason in REASONS)]
    missing = set[Pair]().union(*map(_pairs, works))
    chosen: list[Cell] = []
    while missing:
        used = {name: sum(cell.operator == name for cell in chosen) for name in OPERATORS}
        best = max(works, key=lambda cell: (len(_pairs(cell) & missing), -used[cell.operator], cell.rule != "default"))
        chosen.append(best)
        missing -= _pairs(best)
    return chosen


SAMPLE = _sample()


def _shown(cell: Cell) -> Any:
    """Return a cell as a parameter; programs in C need a compiler."""
    return pytest.param(cell, marks=needs_c_compiler if cell.tool == "library" else (), id=str(cell))


@pytest.mark.sample(8)
@pytest.mark.parametrize("cell", map(_shown, SAMPLE))
def test_a_combination_works(cell: Cell) -> None:
    assert outcome(cell) == ("ok", "")


@pytest.mark.parametrize("number", range(1, len(REASONS) + 1))
def test_what_does_not_work_says_why(number: int) -> None:
    cell = next(cell for cell in cells() if REASONS[number - 1].covers(cell))
    assert outcome(cell)[0] == str(number)


def test_the_sample_has_every_part() -> None:
    shown = {(cell.tool, cell.place) for cell in SAMPLE if cell.tool not in SLOW}
    assert shown == set(itertools.product(set(TOOLS) - set(SLOW), PLACES))
    for part, known in (("operator", OPERATORS), ("rule", RULES), ("place", PLACES), ("tool", TOOLS)):
        assert {getattr(cell, part) for cell in SAMPLE} == set(known)


def test_a_rule_that_is_not_used_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combination_models.legalize", lambda *subjects, **options: lambda rule: rule)
    for tool in ("compile", "explain"):
        with pytest.raises(NotUsed):
            run(Cell("neg", "target", "alone", tool))


def test_the_page_is_of_all_combinations() -> None:
    text = (ROOT / "docs" / "combinations.md").read_text(encoding="utf-8")
    rows = [line for line in text.split("\n") if line.startswith("| ") and "place" not in line and "---" not in line]
    assert len(rows) == sum(len(rules_of(operator)) for operator in OPERATORS) * len(PLACES)
    marks = [mark.strip() for row in rows for mark in row.strip("|").split("|")[2:]]
    assert len(marks) == len(rows) * len(TOOLS)
    reasons = {str(number) for number in range(1, len({reason.text for reason in REASONS}) + 1)}
    assert set(marks) <= {"ok"} | reasons, "a combination fails without a documented reason"
    every = dict.fromkeys(cells(), "ok")
    assert page(every).split("\n")[:8] == text.split("\n")[:8]


def test_days_have_all_rows_of_the_page() -> None:
    """What a day finds is compared with the page, in the section of its operator."""
    days = [rows_of_day(day) for day in range(SHARES)]
    assert sorted(row for rows in days for row in rows) == sorted({(c.operator, c.rule, c.place) for c in cells()})
    every = dict.fromkeys(cells(), "ok")
    text = page(every)
    assert not any(other_rows(every, rows, text) for rows in days)
    changed = every | {Cell(*days[1][0], TOOLS[0]): "FAILED"}
    assert other_rows(changed, days[0], text) == [] and len(other_rows(changed, days[1], text)) == 1
