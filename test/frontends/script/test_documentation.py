"""The examples of the pages about kernels by hand run unchanged, one after the other, in one file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, output_of, run_script


@pytest.mark.parametrize("page", ["hand-written-tir.md", "schedule-by-hand.md"])
def test_examples(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    output_of(run_script(tmp_path / "page.py", cwd=tmp_path))
