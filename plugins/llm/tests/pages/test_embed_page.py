"""What the page about embeddings shows works as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from mirlo_llm.generate.checkpoints.encoder_options import ENCODERS
from mirlo_llm.generate.embedding.pooling import POOLINGS
from repository import ROOT

from mirlo.testing.commands import output_of, run_script, shell_commands
from mirlo.testing.pages import code_block

pytest.importorskip("tokenizers")

TEXT = (ROOT / "docs" / "embed-texts.md").read_text(encoding="utf-8")
FIRST, _, SECOND = TEXT.partition("## Over HTTP")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.sample(0)
def test_commands(folder: Path) -> None:
    environment = shell_commands(folder, "mirlo", "python")
    command = ["sh", "-ec", code_block(FIRST, "sh") + "mirlo embed encoder rain --dimensions 3 --prompt-name query\n"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    rows = np.load(folder / "rows.npy")
    assert rows.shape == (2, 24) and np.allclose(np.linalg.norm(rows, axis=1), 1)
    *ordered, last = done.stdout.splitlines()
    assert len(ordered) == 2 and all(re.match(r"0\.\d{4}  (a|the|rain)", line) for line in ordered)
    line = json.loads(last)
    assert line["text"] == "rain" and len(line["embedding"]) == 3


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("encoder", "there are no texts: give some, or --texts with a file of them"),
        ("encoder a --top 3", "--top: it needs --query"),
        ("encoder a --query b -o x.npy", "--output: with --query, scores are printed"),
        ("encoder a --prompt-name title", "the folder has no prompt 'title'; it has: query, document"),
        ("nothing a", "nothing: there is no such folder"),
    ],
)
def test_wrong_commands(folder: Path, arguments: str, text: str) -> None:
    environment = shell_commands(folder, "mirlo", "python")
    command = ["sh", "-ec", f"python examples/tiny_encoder.py encoder\nmirlo embed {arguments}\n"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 1 and text in done.stderr and "Traceback" not in done.stderr


@pytest.mark.sample(0)
def test_python(folder: Path) -> None:
    assert output_of(run_script("-c", code_block(FIRST, "python"), cwd=folder))


@pytest.mark.sample(0)
def test_http(folder: Path) -> None:
    for package in ("starlette", "uvicorn", "jinja2"):
        pytest.importorskip(package)
    from served import serving

    output_of(run_script("examples/tiny_encoder.py", "encoder", cwd=folder))
    with serving(folder / "encoder") as server:
        done = output_of(run_script("-c", f"address = {server.address!r}\n{code_block(SECOND, 'python')}", cwd=folder))
    assert done.split("\n")[0] == "2 8" and sorted(json.loads(done.split("\n")[1])) == [0, 1]


def test_lists_are_complete() -> None:
    table = TEXT.partition("| `model_type` |")[2].partition("\n\n")[0]
    assert set(ENCODERS) <= set(re.findall(r"`([a-z0-9-]+)`", table))
    assert set(POOLINGS) <= set(re.findall(r"`([a-z_]+)`", TEXT))
