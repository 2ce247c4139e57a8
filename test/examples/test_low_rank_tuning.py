"""The example of fine-tuning: adapters are trained on top of 4-bit weights."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, output_of, run_script

pytest.importorskip("torch", reason="needs PyTorch: make test-doors")


@pytest.mark.sample(0)
def test_adapters_learn(tmp_path: Path) -> None:
    text = output_of(run_script(str(ROOT / "examples" / "low_rank_tuning.py"), "--steps", "60", cwd=tmp_path))
    (first, last) = map(float, re.findall(r"loss (\S+) -> (\S+); the weights are as they were", text)[0])
    assert last < 0.8 * first
