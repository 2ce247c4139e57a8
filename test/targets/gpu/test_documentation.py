"""The Python of docs/gpu.md runs unchanged in one file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, output_of, run_script
from devices import needs_vulkan

pytestmark = needs_vulkan()


@pytest.mark.sample(0)
def test_examples(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    file = tmp_path / "examples.py"
    file.write_text("\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)))
    assert "kernel calls" in output_of(run_script(file))
