"""The examples of docs/placement.md run unchanged, one after the other."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from commands import ROOT, mirlo, output_of, run_script

TEXT = (ROOT / "docs" / "placement.md").read_text(encoding="utf-8")


@pytest.mark.sample(0)
def test_examples(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model, *rest = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "model.py").write_text(model, encoding="utf-8")
    output_of(run_script(tmp_path / "model.py", cwd=tmp_path))
    lines = re.findall(r"^mirlo (partition .*)$", TEXT, re.MULTILINE)
    report, node, wrote, same = (output_of(mirlo(*shlex.split(line), cwd=tmp_path)) for line in lines[:4])
    titles = re.findall(r"^\| ([a-zA-Z, ]+) \| ", TEXT.partition("## The HTML report")[0], re.MULTILINE)[1:]
    assert len(titles) == 6
    for title in titles:
        assert all(word in report.splitlines()[0] for word in title.split(", "))
    assert 'onnx.conv: relax.conv "conv"' in report
    assert "onnx.argmax: matched, 1 deep" in node and "relax.conv" not in node
    assert "wrote placement.json\nwrote placement.txt\nwrote placement.html" in wrote
    assert "as placement.json says" in same
    pinned = json.loads((tmp_path / "placement.json").read_text(encoding="utf-8"))
    assert pinned["totals"]["targets"]["onnx"]["share_of_flops"] == 1.0
    (tmp_path / "survey.py").write_text("\n".join(rest), encoding="utf-8")
    assert output_of(run_script(tmp_path / "survey.py", cwd=tmp_path)) == "5 of 5\nonnx\n"
    assert all(f"`{name}" in TEXT for name in ("Figures", "CodeGenerator.fingerprint", "placement.json"))
