"""The examples of docs/programs.md run unchanged and print the documented output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = Path(__file__).parents[3].joinpath("docs", "programs.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) == 2
    exec(compile("".join(EXAMPLES), "docs/programs.md", "exec"), {"__name__": "example"})
    promised = [line.split("  # ")[1] for line in "".join(EXAMPLES).splitlines() if line.startswith("print(")]
    assert capsys.readouterr().out.splitlines() == promised
