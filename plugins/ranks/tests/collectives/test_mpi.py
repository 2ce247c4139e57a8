"""Collectives by MPI, started by `mpirun`: results, and the end of a rank."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mirlo.testing.commands import ENVIRONMENT
from mirlo.testing.pages import code_blocks

ROOT = Path(__file__).resolve().parents[4]

PAGE = (ROOT / "plugins" / "ranks" / "README.md").read_text(encoding="utf-8")
TARGET = "collectives{transport=mpi},llvm"

pytest.importorskip("mpi4py", reason="the extra [mpi] is not installed")
if shutil.which("mpirun") is None:
    pytest.skip("there is no mpirun: Debian's is in openmpi-bin", allow_module_level=True)


def _mpirun(folder: Path, program: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    (folder / "product.mlir").write_text(code_blocks(PAGE, "mlir")[0])
    (folder / "program.py").write_text(program.replace('"collectives,llvm"', repr(TARGET)))
    allowed = {name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")}
    return subprocess.run(
        ["mpirun", "--oversubscribe", "-n", str(ranks), sys.executable, "program.py"],
        capture_output=True, text=True, cwd=folder, env={**ENVIRONMENT, **allowed, "TMPDIR": "/tmp"}, timeout=60,
    )  # fmt: skip


@pytest.mark.sample(0)
def test_a_sum_of_ranks(tmp_path: Path) -> None:
    program = next(code for code in code_blocks(PAGE, "python") if code.startswith("# file: product.py"))
    done = _mpirun(tmp_path, f"{program}\nimport os\nos.write(1, b'rank %d\\n' % place.rank)\n")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0", "rank 1"]


@pytest.mark.sample(0)
def test_the_end_of_a_rank(tmp_path: Path) -> None:
    program = next(code for code in code_blocks(PAGE, "python") if code.startswith("# file: product.py"))
    ending = "import os\nif place.rank == 1:\n    os.kill(os.getpid(), 9)\nmodel.run({'x': x[:, part], 'w': w[part]})\n"
    start = time.monotonic()
    done = _mpirun(tmp_path, program + ending)
    assert done.returncode != 0 and time.monotonic() - start < 30
    assert "process rank 1" in done.stderr and "signal 9" in done.stderr


@pytest.mark.sample(0)
def test_the_environment_must_agree(tmp_path: Path) -> None:
    program = next(code for code in code_blocks(PAGE, "python") if code.startswith("# file: product.py"))
    both_first = "import os\nos.environ.update(MIRLO_RANK='0', MIRLO_RANKS='2')\n"
    done = _mpirun(tmp_path, both_first + program)
    assert done.returncode != 0
    assert "MPI reports rank 1 of 2, the environment rank 0 of 2" in done.stderr
