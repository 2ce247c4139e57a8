"""A sample of the combinations of operators, rules, places and tools; `make combinations` runs all of them."""

from __future__ import annotations

import pytest
from combinations import NOT_RUN, OPERATORS, PLACES, REASONS, RULES, TOOLS, Cell, NotUsed, cells, outcome, page, run
from commands import ROOT

FAST = ("compile", "save", "explain", "script")
SAMPLE = [cell for i, cell in enumerate(c for c in cells() if c.tool in FAST) if i % 7 == 0]
SAMPLE += [
    Cell("custom", "generator", "alone", "compile"),
    Cell("neg", "target", "region", "check-target"),
    Cell("plug-in", "target", "alone", "tune"),
]


@pytest.mark.parametrize("cell", SAMPLE, ids=str)
def test_a_combination_works_or_says_why(cell: Cell) -> None:
    found, error = outcome(cell)
    assert found != "FAILED", error


def test_the_sample_has_every_part() -> None:
    for part, known in (("operator", OPERATORS), ("rule", RULES), ("place", PLACES), ("tool", FAST)):
        assert {getattr(cell, part) for cell in SAMPLE} >= set(known)


def test_a_rule_that_is_not_used_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combinations.legalize", lambda *subjects, **options: lambda rule: rule)
    for tool in ("compile", "explain"):
        with pytest.raises(NotUsed):
            run(Cell("neg", "target", "alone", tool))


def test_the_page_is_of_all_combinations() -> None:
    text = (ROOT / "docs" / "combinations.md").read_text(encoding="utf-8")
    rows = [line for line in text.split("\n") if line.startswith("| ") and "place" not in line and "---" not in line]
    assert len(rows) == len(OPERATORS) * len(RULES) * len(PLACES)
    marks = [mark.strip() for row in rows for mark in row.strip("|").split("|")[2:]]
    assert len(marks) == len(rows) * len(TOOLS)
    reasons = {str(number) for number in range(1, len({reason.text for reason in REASONS}) + 1)}
    assert set(marks) <= {"ok", NOT_RUN} | reasons, "a combination fails without a documented reason"
    every = dict.fromkeys(cells(), "ok")
    assert page(every).split("\n")[:7] == text.split("\n")[:7]
