"""This checkout and this machine, which records of runs name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache" / "nightly"
"""The folder of what nightly runs record and print."""


def commit() -> str:
    """Return the commit that is checked out, with `+` if files differ from it."""
    name = _git("rev-parse", "--short=8", "HEAD")
    return f"{name}+" if name and _git("status", "--porcelain", "--untracked-files=no") else name


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def processor() -> str:
    """Return the processor of this machine: its name, what LLVM calls it, and its instructions."""
    from mirlo.targets.llvm.cpus import features_text
    from mirlo.targets.llvm.processor import host_processor

    host = host_processor()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return f"{name[1] if name else host.arch} ({host.cpu}): {features_text(host.arch, host.features)}"
