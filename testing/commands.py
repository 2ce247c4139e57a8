"""Commands of Mirlo in processes of their own, for tests.

done = run_command("compile", "model.onnx", "--target", "npu", cwd=tmp_path)
assert "wrote" in output_of(done)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
"""The environment of a process that imports the same packages as this one, whatever is installed."""


def run_command(*arguments: object, cwd: str | os.PathLike[str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `mirlo` with these arguments; return its exit code and what it wrote."""
    command = [sys.executable, "-m", "mirlo.tools.cli", *map(str, arguments)]
    folder = None if cwd is None else Path(cwd)
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=ENVIRONMENT, check=False)


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the standard output of a command that must have succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout
