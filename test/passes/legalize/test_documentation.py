"""The examples of docs/legalization.md run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = Path(__file__).parents[3].joinpath("docs", "legalization.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_examples_are_found() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize("example", EXAMPLES, ids=["blocks", "loops"])
def test_example(example: str) -> None:
    exec(compile(example, "docs/legalization.md", "exec"), {})
