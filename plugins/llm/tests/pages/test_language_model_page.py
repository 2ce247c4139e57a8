"""What the page about language models shows works as it stands there."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from mirlo_llm.generate import SearchOptions
from repository import ROOT

from mirlo.testing.commands import output_of, run_script, shell_commands
from mirlo.testing.pages import code_blocks

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
pytest.importorskip("llguidance")

TEXT = (ROOT / "docs" / "run-a-language-model.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.sample(0)
def test_commands(folder: Path) -> None:
    (block,) = code_blocks(TEXT, "sh")
    environment = shell_commands(folder, "mirlo", "python")
    done = subprocess.run(
        ["sh", "-ec", block], input="hello\n", capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tokens/s)") == 4  # two lines of timing, of two rates each


@pytest.mark.sample(0)
def test_python(folder: Path) -> None:
    blocks = code_blocks(TEXT, "python")
    assert len(blocks) == 9
    out = output_of(run_script("-c", "\n".join(blocks), cwd=folder))
    assert re.search(r"prompt: 5 tokens in .* then 19 tokens in", out)
    assert re.search(r"tokens, \d\d? of them reused, in", out)


def test_options_are_those_of_a_search() -> None:
    _, _, table = TEXT.partition("| option | effect |")
    first = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)", " ".join(first)))
    assert named == {field.name for field in fields(SearchOptions)}
