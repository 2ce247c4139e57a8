"""Language models on ranks started by `torchrun` and `mpirun` generate the text of one process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mirlo.testing.commands import ENVIRONMENT, output_of, run_command, run_script

ROOT = Path(__file__).resolve().parents[4]

GENERATE = ["generate", "tiny", "the quick", "--max-new-tokens", "16", "--seed", "3", "--temperature", "0.8"]
ALLOWED = {name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")}


def _write_model(folder: Path) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    output_of(run_script("examples/tiny_language_model.py", "tiny", cwd=folder))


def _compare(folder: Path, starter: list[str], *options: str) -> None:
    """Compare the text of two ranks with that of one process."""
    _write_model(folder)
    expected = output_of(run_command(*GENERATE, cwd=folder))
    command = [*starter, sys.executable, "-m", "mirlo.tools.cli", *GENERATE, "--ranks", "2", *options]
    environment = {**ENVIRONMENT, **ALLOWED, "TMPDIR": "/tmp", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected


@pytest.mark.sample(0)
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torchrun(tmp_path: Path) -> None:
    _compare(tmp_path, [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"])


@pytest.mark.sample(0)
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun: Debian's is in openmpi-bin")
@pytest.mark.parametrize("transport", ["shared-memory", "mpi"])
def test_mpirun(transport: str, tmp_path: Path) -> None:
    if transport == "mpi":
        pytest.importorskip("mpi4py", reason="the extra [mpi] is not installed")
    target = f"collectives{{transport={transport}}},llvm"
    _compare(tmp_path, ["mpirun", "--oversubscribe", "-n", "2"], "--target", target)


@pytest.mark.sample(0)
@pytest.mark.parametrize("options", [["--prompts", "lines"], ["-"]])
def test_prompts_that_one_rank_would_read(options: list[str], tmp_path: Path) -> None:
    _write_model(tmp_path)
    (tmp_path / "lines").write_text('"a"\n')
    done = run_command("generate", "tiny", *options, "--ranks", "2", cwd=tmp_path)
    assert done.returncode == 1 and "--ranks: each rank needs the prompt: give PROMPT as text" in done.stderr
