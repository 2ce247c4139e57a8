"""The page of passes says what the passes say."""

from __future__ import annotations

from pathlib import Path

from mirlo.passes.reference import reference
from mirlo.passes.registry import load_all

PAGE = Path(__file__).parents[2] / "docs" / "passes.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "run: python -m mirlo.passes.reference > docs/passes.md"


def test_every_pass_is_there() -> None:
    own = {name for name, cls in load_all().items() if cls.__module__.startswith("mirlo.")}
    assert {"fold-constant", "plan-memory"} <= own
    titles = {line[3:] for line in PAGE.read_text().splitlines() if line.startswith("## ")}
    assert own <= titles
