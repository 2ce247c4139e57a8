"""The program of the page about ranks runs on two ranks, unchanged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mirlo.testing.commands import ENVIRONMENT, shell_commands
from mirlo.testing.pages import code_blocks

ROOT = Path(__file__).resolve().parents[4]

pytest.importorskip("jax", reason="needs jax: make test-stablehlo")


def test_a_sharded_program(tmp_path: Path) -> None:
    text = (ROOT / "plugins" / "ranks" / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Compile a sharded program of JAX")[2].partition("\n## ")[0]
    (tmp_path / "sharded.py").write_text(code_blocks(section, "python")[0])
    commands = f"{code_blocks(section, 'sh')[0].strip()}\nstatus=$?\nwait $! && exit $status\n"
    variables = {**ENVIRONMENT, **shell_commands(tmp_path, "python"), "MIRLO_RANKS_FOLDER": str(tmp_path / "meet")}
    done = subprocess.run(
        ["sh", "-c", commands], capture_output=True, text=True, cwd=tmp_path, env=variables, timeout=120
    )
    assert done.returncode == 0, done.stderr
