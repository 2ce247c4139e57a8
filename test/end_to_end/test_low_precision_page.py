"""The example of docs/low-precision.md runs unchanged, and the benchmark that it names measures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, output_of, run_script

TEXT = (ROOT / "docs" / "low-precision.md").read_text(encoding="utf-8")


@pytest.mark.sample(0)
def test_example(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.py").write_text(block, encoding="utf-8")
    memory, error = output_of(run_script(tmp_path / "page.py", cwd=tmp_path)).splitlines()
    assert memory.startswith("weights 4.0 MiB") and "| weights 2.0 MiB" in memory
    assert 0 < float(error) < 0.02


@pytest.mark.sample(0)
def test_benchmark() -> None:
    out = output_of(run_script("-m", "benchmarks.low_precision", "--seconds", 0, "--size", 64)).splitlines()
    assert [line.split()[0] for line in out[1:]] == ["matmul"] * 5 + ["network"] * 5
    # Without VNNI, ONNX Runtime's sums of two products saturate.
    assert all(float(line.split()[-1]) < 0.1 for line in out[1:] if "onnxruntime bytes" not in line)
