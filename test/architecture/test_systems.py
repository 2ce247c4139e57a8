"""What differs between operating systems is in two modules of `runtime`; the code is typed for each of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT

SHIPPED = ("dialects", "frontends", "passes", "targets", "runtime", "driver", "tools")
MODULES = (ROOT / "runtime" / "system.py", ROOT / "runtime" / "processes.py")
OF_THE_SYSTEM = re.compile(
    r"^\s*import (fcntl|msvcrt|resource|mmap|signal|pwd|grp|termios|winreg|_winapi)\b"
    r"|\bos\.(fork|register_at_fork|wait\w*|W[A-Z]\w+|kill\w*|set(sid|pgid|pgrp)|sched_\w+|get(e?[ug]id|login)|pread|preadv|mkfifo"
    r"|uname|name)\b|\b(hasattr|getattr)\(os\b|\bsys\.(platform|getwindowsversion)\b|_ctypes\b",
    re.MULTILINE,
)
# Where a system is a fact of something else than this process.
EXCEPT = {
    "runtime/files.py": "flags of `open`, which systems have or have not",
    "runtime/threads.py": "the pool's code for a system by name",
}


def test_the_system_is_called_in_two_modules() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): OF_THE_SYSTEM.findall(path.read_text(encoding="utf-8"))
        for folder in SHIPPED
        for path in (ROOT / folder).rglob("*.py")
        if path not in MODULES
    }
    assert {name for name, uses in found.items() if uses} == set(EXCEPT)


@pytest.mark.skipif(
    np.__version__.startswith("1."), reason="the code is typed with numpy 2, whose types have other parameters"
)
@pytest.mark.sample(2)
@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_types_on_other_systems(platform: str, whole: bool, tmp_path: Path) -> None:
    """Check the two modules, which import nothing of Mirlo; all code in `make nightly`."""
    command = [sys.executable, "-m", "mypy", "--platform", platform, "--cache-dir", str(tmp_path)]
    modules = [part for path in MODULES for part in ("-m", f"mirlo.runtime.{path.stem}")]
    done = subprocess.run(
        [*command, *([] if whole else ["--follow-imports=skip", *modules])],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
