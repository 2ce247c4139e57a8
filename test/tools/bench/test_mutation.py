"""What mutation testing starts ends with it, and is limited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import ENVIRONMENT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc are those of Linux")

TOOL = """
import sys
from pathlib import Path
from mirlo.benchmarks import mutation
mutation.ROOT = Path(sys.argv[1])
mutation.WORK = mutation.ROOT / "work"
sys.exit(mutation.main(["--folder", "part", "--map", "--jobs", "1"]))
"""
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--cpu-times")
def pytest_unconfigure(config):
    open(config.getoption("--cpu-times"), "a").close()
"""
ENDLESS = """
import os, subprocess, sys, time
from mirlo.part.code import one
def test_one():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        bytearray(9 << 30)  # of which no page is written
        limit = "no limit"
    except MemoryError:
        limit = "8 GiB"
    with open({started!r}, "w") as file:
        file.write(f"{{os.getpid()}} {{child.pid}} {{limit}}\\n")
    time.sleep(60 * one())
"""


def _start(root: Path, test: str) -> subprocess.Popen[bytes]:
    """Begin to measure a project with one function and one test."""
    files = {
        "part/code.py": "def one():\n    return 1\n",
        "test/part/test_code.py": test,
        "test/conftest.py": CONFTEST,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return subprocess.Popen([sys.executable, "-c", TOOL, str(root)], env=ENVIRONMENT, stderr=subprocess.DEVNULL)


def _is_running(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.sample(0)
def test_tests_end_with_the_tool_and_have_a_limit_of_memory(tmp_path: Path) -> None:
    started = tmp_path / "started"
    with _start(tmp_path, ENDLESS.format(started=str(started))) as tool:
        try:
            assert _wait_until(lambda: started.exists() and started.read_text(encoding="ascii").endswith("\n"))
        finally:
            tool.send_signal(signal.SIGTERM)
        assert tool.wait() == -signal.SIGTERM
    *words, limit, unit = started.read_text(encoding="ascii").split()
    processes = [int(word) for word in words]
    try:
        assert _wait_until(lambda: not any(map(_is_running, processes)))
    finally:
        for process in filter(_is_running, processes):
            os.kill(process, signal.SIGKILL)
    assert (limit, unit) == ("8", "GiB")
