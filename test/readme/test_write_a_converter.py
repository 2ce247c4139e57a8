"""The page of converters is one program: it runs in a process of its own, which it registers operators in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, output_of, run_script

PAGE = ROOT / "docs" / "write-a-converter.md"


@pytest.mark.sample(0)
def test_page(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: make test-doors")
    pytest.importorskip("mirlo_torch", reason="needs the package: make test-torch")
    pytest.importorskip("mirlo_stablehlo", reason="needs the package: make test-stablehlo")
    pytest.importorskip("mirlo_tflite", reason="needs the package: make test-tflite")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    output_of(run_script("-c", "\n".join(blocks), cwd=tmp_path))
