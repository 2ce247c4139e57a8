"""The commands and programs of the page about ranks run unchanged."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from mirlo_ranks.testing import run_ranks

from mirlo import load
from mirlo.testing.commands import output_of, run_command, run_script, shell_commands
from mirlo.testing.pages import code_block, code_blocks

ROOT = Path(__file__).resolve().parents[3]

TEXT = (ROOT / "plugins" / "ranks" / "README.md").read_text(encoding="utf-8")


def _run(folder: Path, commands: str, *names: str) -> str:
    environment = {**shell_commands(folder, *names), "MIRLO_RANKS_FOLDER": str(folder / "meet")}
    commands = f"{commands.strip()}\nstatus=$?\nwait $! && exit $status\n"
    done = subprocess.run(
        ["sh", "-c", commands], capture_output=True, text=True, cwd=folder, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.sample(0)
def test_a_language_model(tmp_path: Path) -> None:
    section = TEXT.partition("## Split a language model")[2].partition("\n## ")[0]
    write, alone, together = code_blocks(section, "sh")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    output_of(run_script(*write.split()[1:], cwd=tmp_path))
    expected = output_of(run_command(*shlex.split(alone)[1:], cwd=tmp_path))
    assert _run(tmp_path, together, "mirlo") == expected
    section = TEXT.partition("## See what is divided")[2].partition("\n## ")[0]
    explained = output_of(run_command(*code_blocks(section, "sh")[0].split()[1:], cwd=tmp_path))
    for line in code_blocks(section, "text")[0].strip().splitlines():
        assert line.split() in [each.split() for each in explained.splitlines()]
    explained = output_of(run_command(*code_blocks(section, "sh")[1].split()[1:], cwd=tmp_path))
    assert "the plan replicates it" in explained


@pytest.mark.sample(0)
def test_files_of_ranks(tmp_path: Path) -> None:
    section = TEXT.partition("## Split a model into files")[2].partition("\n## ")[0]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    output_of(run_script("examples/tiny_language_model.py", "tiny", cwd=tmp_path))
    (tmp_path / "model.onnx").symlink_to(tmp_path / "tiny" / "model.onnx")
    for command in code_block(section, "sh").strip().splitlines():
        output_of(run_command(*command.split()[1:], cwd=tmp_path))
    assert (tmp_path / "model.rank1.mirlo").stat().st_size > 0


@pytest.mark.sample(0)
def test_a_module_with_collectives(tmp_path: Path) -> None:
    section = TEXT.partition("## Write a module")[2].partition("\n## ")[0]
    (tmp_path / "product.mlir").write_text(code_block(section, "mlir"))
    (tmp_path / "product.py").write_text(code_block(section, "python"))
    _run(tmp_path, code_block(section, "sh"), "python")


@pytest.mark.sample(0)
def test_a_program_with_collectives(tmp_path: Path) -> None:
    section = TEXT.partition("## Compile a program")[2].partition("\n## ")[0]
    (tmp_path / "mean.mlir").write_text(code_block(section, "mlir"))
    output_of(run_command(*code_block(section, "sh").split()[1:], cwd=tmp_path))
    xs = [np.arange(4, dtype=np.float32), np.full(4, 3, np.float32)]

    def call(rank: int) -> np.ndarray:
        (y,) = load(tmp_path / "mean.mirlo").run({"arg0": xs[rank]}).values()
        return y

    for result in run_ranks(call, 2):
        assert np.array_equal(result, (xs[0] + xs[1]) / 2)


def test_a_sharded_program(tmp_path: Path) -> None:
    """The program of JAX itself runs in `make test-doors`."""
    section = TEXT.partition("## Compile a sharded program of JAX")[2].partition("\n## ")[0]
    (tmp_path / "sharded.mlir").write_text(code_block(section, "mlir"))
    imported, explained = (
        output_of(run_command(*command.split()[1:], cwd=tmp_path))
        for command in code_blocks(section, "sh")[1].strip().splitlines()
    )
    assert "relax.from_parts" in imported
    for line in code_blocks(section, "text")[0].strip().splitlines():
        assert line.split() in [each.split() for each in explained.splitlines()]
