"""Commands of Mirlo in the folder of the repository, and models of the benchmarks."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from mirlo.testing.commands import ENVIRONMENT as ENVIRONMENT
from mirlo.testing.commands import install as install
from mirlo.testing.commands import output_of as output_of
from mirlo.testing.commands import run_command, run_python
from mirlo.testing.commands import run_script as run_script_in
from mirlo.testing.commands import shell_commands as shell_commands
from mirlo.testing.commands import without_code as without_code

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / ".cache" / "models"
"""Where tests keep the filled models of `benchmarks/models`."""

mirlo = partial(run_command, cwd=ROOT)
python = partial(run_python, cwd=ROOT)
run_script = partial(run_script_in, cwd=ROOT)


@cache
def benchmark_model(name: str) -> Path:
    """Return a model of `benchmarks/models` with its weights."""
    return Path(output_of(run_script("-m", "benchmarks.models", name, "--cache", MODELS)).strip())


def require_tests(path: Path, whole: bool = False) -> None:
    """Run the tests of a file in a process of their own, in which they may register what others must not see.

    With `whole` they run whole, not a sample of them.
    """
    done = run_script("-m", "pytest", "-q", "-p", "no:cacheprovider", *(["--whole"] if whole else []), path)
    assert done.returncode == 0, done.stdout + done.stderr
