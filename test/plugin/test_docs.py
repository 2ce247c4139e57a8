"""The code of docs/rules.md and docs/targets.md runs unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT, ROOT, output_of, python, run_script

RULES = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
TARGETS = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.sample(0)
def test_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("\n".join(_blocks(RULES, "python")))
    output_of(run_script("rules.py", cwd=tmp_path))


def test_snippets_are_short() -> None:
    """A legalization in less than 10 lines, an intrinsic in less than 5, an operator on a node in less than 15."""
    blocks = _blocks(RULES, "python")
    limits = {"@legalize": 10, "@intrinsic": 5, "@mirlo.prim_func": 15}
    for word, limit in limits.items():
        block = next(b for b in blocks if word in b)
        rule = block[block.index(word) :].strip()
        assert len([line for line in rule.splitlines() if line.strip()]) < limit


@pytest.mark.sample(0)
def test_targets(tmp_path: Path) -> None:
    source, site, commands = (tmp_path / name for name in ("source", "site", "bin"))
    for folder in (source, site, commands):
        folder.mkdir()
    for block in [*_blocks(TARGETS, "toml"), *_blocks(TARGETS, "python")]:
        name = re.match(r"# file: (\S+)\n", block)
        assert name is not None
        (source / name.group(1)).write_text(block)
    install = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", site, source]
    output_of(python("-m", *install))
    (commands / "mirlo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mirlo.tools.cli "$@"\n')
    (commands / "mirlo").chmod(0o755)
    environment = {
        **ENVIRONMENT,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{site}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}",
    }
    done = subprocess.run(
        ["sh", "-ec", _blocks(TARGETS, "sh")[0]], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^mydsp +mydsp → llvm → default +the CPU with a small unit$", done.stdout, re.MULTILINE)
    assert "1.  matmul  [mydsp]" in done.stdout and "Products in tiles of 8." in done.stdout
    assert done.stdout.splitlines()[-1].endswith("ok, 0 declined, 0 wrong, 0 failed")
