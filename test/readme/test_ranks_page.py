"""What the page about ranks shows works as it stands there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from commands import ROOT, shell_commands
from pages import code_block

TEXT = (ROOT / "docs" / "ranks.md").read_text(encoding="utf-8")


def test_a_module_with_collectives(tmp_path: Path) -> None:
    section = TEXT.partition("## Write a module")[2].partition("\n## ")[0]
    (tmp_path / "product.mlir").write_text(code_block(section, "mlir"))
    (tmp_path / "product.py").write_text(code_block(section, "python"))
    environment = {**shell_commands(tmp_path, "python"), "MIRLO_RANKS_FOLDER": str(tmp_path / "meet")}
    commands = f"{code_block(section, 'sh').strip()}\nstatus=$?\nwait $! && exit $status\n"
    done = subprocess.run(
        ["sh", "-c", commands], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
