"""The examples of docs/hand-written-tir.md run, one after the other, in a file as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

from commands import ROOT, output_of, python

PAGE = ROOT / "docs" / "hand-written-tir.md"


def test_examples(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    output_of(python(tmp_path / "page.py", cwd=tmp_path))
