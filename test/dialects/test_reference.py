"""The page of operators equals the one generated from the classes, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirlo.dialects.relax.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_page_is_current() -> None:
    assert PAGE.read_text() == reference(), "run: python -m mirlo.dialects.relax.reference > docs/operators.md"


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = re.findall(r"```python\n(.*?)```", reference(), re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out.strip() == example.rstrip().rpartition("# ")[2]
