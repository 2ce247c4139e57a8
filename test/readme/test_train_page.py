"""The code of the page about training runs unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, output_of, run_script

pytest.importorskip("torch", reason="needs PyTorch: make test-doors")

TEXT = (ROOT / "docs" / "train-a-model.md").read_text(encoding="utf-8")


def test_page(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    text = "import warnings\nwarnings.filterwarnings('error', message='mirlo')\n" + block
    lines = output_of(run_script("-c", text + "\nprint(losses[0], losses[-1], float(accuracy))", cwd=tmp_path)).split()
    first, last, accuracy = map(float, lines[-3:])
    assert last < first / 10 and accuracy > 0.9
