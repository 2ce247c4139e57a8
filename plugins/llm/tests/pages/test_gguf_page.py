"""What the page about GGUF files shows works as it stands there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from mirlo_llm.generate.gguf.blocks import TYPES
from mirlo_llm.generate.gguf.keys import ARCHITECTURES
from repository import ROOT

from mirlo.testing.commands import output_of, run_script, shell_commands
from mirlo.testing.pages import code_block

for package in ("gguf", "tokenizers", "jinja2"):
    pytest.importorskip(package)

TEXT = (ROOT / "docs" / "run-a-gguf-file.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.sample(0)
def test_commands(folder: Path) -> None:
    environment = shell_commands(folder, "mirlo", "python")
    command = ["sh", "-ec", code_block(TEXT, "sh")]
    done = subprocess.run(
        command, input="hello\n", capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tokens/s)") == 4  # two lines of timing, of two rates each


@pytest.mark.sample(0)
def test_python(folder: Path) -> None:
    assert output_of(run_script("-c", code_block(TEXT, "python"), cwd=folder))


def test_lists_are_complete() -> None:
    _, _, table = TEXT.partition("| type |")
    first = " ".join(line.split("|")[1] for line in table.partition("\n\n")[0].splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", first)) == {kind.name for kind in TYPES.values()}
    section = TEXT.partition("## Architectures")[2].partition("##")[0]
    assert set(ARCHITECTURES) <= set(re.findall(r"`([a-z0-9]+)`", section))
    bits = {kind.name: 8 * kind.nbytes / kind.elements for kind in TYPES.values()}
    for line in table.partition("\n\n")[0].splitlines():
        if line.startswith("| `"):
            names, _, stated, _ = (cell.strip() for cell in line.strip("| ").split("|"))
            numbers = [float(each) for each in stated.split(", ")]
            each = re.findall(r"`(\w+)`", names)
            for name, number in zip(each, numbers * len(each), strict=False):
                assert abs(bits[name] - number) < 0.06, name
