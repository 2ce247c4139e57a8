"""What the page about images shows works as it stands there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from repository import ROOT

from mirlo.testing.commands import output_of, run_script, shell_commands
from mirlo.testing.pages import code_block

for package in ("tokenizers", "jinja2", "PIL"):
    pytest.importorskip(package)

TEXT = (ROOT / "docs" / "prompts-with-images.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.sample(0)
def test_commands(folder: Path) -> None:
    environment = shell_commands(folder, "mirlo", "python")
    commands = f"{code_block(TEXT, 'sh')}\nmirlo generate pictures w1 --image none.png"
    done = subprocess.run(
        ["sh", "-c", commands], capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all(line.split()[0].startswith("w") for line in lines), done.stderr
    assert done.returncode == 1 and "none.png: No such file" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.sample(0)
def test_python(folder: Path) -> None:
    assert output_of(run_script("-c", code_block(TEXT, "python"), cwd=folder))
