"""A command's process ends as any other does, only sooner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

START = "import atexit, sys, tempfile, threading, time\nfrom mirlo.runtime.processes import leave\n"


def _run(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *flags, "-c", START + code], capture_output=True, text=True)


def test_what_was_registered_runs_and_what_was_printed_is_there() -> None:
    done = _run("atexit.register(print, 'bye'); print('hello'); leave(3)")
    assert (done.stdout, done.stderr, done.returncode) == ("hello\nbye\n", "", 3)


def test_objects_are_left_alone() -> None:
    code = "class Slow:\n    def __del__(self): print('freed')\nkept = [Slow()]\nkept.append(kept)\n"
    assert _run(f"{code}leave(0)").stdout == ""
    assert _run(f"{code}sys.exit(0)").stdout == "freed\n"


def test_temporary_folders_go_away() -> None:
    done = _run("folder = tempfile.TemporaryDirectory(); print(folder.name); leave(0)")
    assert not Path(done.stdout.strip()).exists() and done.returncode == 0


def test_threads_are_waited_for() -> None:
    slow = "def slow():\n    time.sleep(0.2); print('done')\nthreading.Thread(target=slow).start(); leave(2)"
    done = _run(slow)
    assert (done.stdout, done.returncode) == ("done\n", 2)


@pytest.mark.sample(0)
def test_a_profiler_has_its_say() -> None:
    command = [sys.executable, "-m", "cProfile", "-m", "mirlo.tools.opt", "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "function calls" in done.stdout


def test_a_reader_that_has_gone() -> None:
    code = "import os; os.close(1); print('nobody reads'); leave(0)"
    done = _run(code)
    assert done.returncode != 0 and "Bad file descriptor" in done.stderr
