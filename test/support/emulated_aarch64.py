"""An emulated AArch64: models for it run on its runner, which qemu executes.

python test/support/emulated_aarch64.py [OPERATOR ...]     # mirlo check-target, there
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from runners import started

from mirlo.runtime.model_runner import models_run_on
from mirlo.targets.llvm.library.runner import write_runner
from mirlo.targets.llvm.options import parse_options

OPTIONS = "cpu=neoverse-n1 triple=aarch64-linux-gnu"
TARGET = f"llvm{{{OPTIONS}}}"
COMPILER, EMULATOR, SYSTEM = "aarch64-linux-gnu-gcc", "qemu-aarch64-static", "/usr/aarch64-linux-gnu"


def missing() -> str:
    """Return why there is no emulated AArch64 here; empty where there is one."""
    lacked = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    return (
        f"there is no {' and no '.join(lacked)}: install qemu-user-static and gcc-aarch64-linux-gnu" if lacked else ""
    )


@contextmanager
def models_run_emulated() -> Iterator[None]:
    """Run models that are compiled inside of the block on an emulated AArch64."""
    with tempfile.TemporaryDirectory(prefix="mirlo-models-") as name:
        command = [EMULATOR, "-L", SYSTEM, _runner()]
        with started(command, Path(name)) as runner, runner.board() as board, models_run_on(board):
            yield


@cache
def _runner() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="mirlo-aarch64-")
    _KEPT.append(folder)
    return write_runner(Path(folder.name) / "runner", parse_options(OPTIONS).processor)[0]


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def main(operators: list[str]) -> int:
    """Check operators, or all of them; return the number of checks that failed."""
    from mirlo.tools.conformance.check import FAILED, WRONG, check_target
    from mirlo.tools.conformance.matrix import text_lines

    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    with models_run_emulated():
        matrix = check_target(TARGET, operators or None, lambda step: print(step, file=sys.stderr))
    print("\n".join(text_lines(matrix)))
    return min(matrix.count(WRONG) + matrix.count(FAILED), 100)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(sys.argv[1:]))
