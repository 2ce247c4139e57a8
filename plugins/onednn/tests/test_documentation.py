"""The examples of docs/onednn.md run unchanged, one after the other, in one file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mirlo_onednn.native.library import is_available
from mirlo_onednn.patterns import patterns

from mirlo.testing.commands import output_of, run_command, run_script

ROOT = Path(__file__).resolve().parents[3]

PAGE = ROOT / "docs" / "onednn.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.skipif(not is_available(), reason="needs onednn-cpu-gomp")
def test_examples(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    printed = output_of(run_script(tmp_path / "page.py", cwd=tmp_path))
    assert "['onednn.onednn_0', 'argmax']" in printed and "convolution" in printed
    assert "onednn.onednn_0" in output_of(run_command("run", tmp_path / "small.mirlo", "--profile"))


@pytest.mark.sample(0)
@pytest.mark.skipif(not is_available(), reason="needs onednn-cpu-gomp")
def test_benchmark(tmp_path: Path) -> None:
    flags = ("--threads", 1, "--repeat", 2, "--cache", tmp_path)
    header, row = output_of(run_script("-m", "mirlo.benchmarks.onednn", "lenet", *flags)).splitlines()
    assert row.split()[:3] == ["lenet", "1", "100.00"] and len(row.split()) == len(header.split("  "))


def test_composites_are_those_of_the_table() -> None:
    section = TEXT.partition("## What it takes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(name for name, _, _ in patterns())
