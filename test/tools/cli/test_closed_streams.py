"""Commands whose standard streams are closed, or on a full device: their exit codes and messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from commands import ENVIRONMENT

from mirlo.tools.cli import COMMANDS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="descriptors are closed in forks")

LINES = [
    *(["mirlo", name, "--help"] for name in COMMANDS),
    ["mirlo"], ["mirlo", "--version"], ["mirlo", "targets"], ["mirlo", "compile", "nothing.onnx"], ["mirlo", "run"],
    ["mirlo-opt", "--version"], ["mirlo-opt", "--help"], ["mirlo-opt"], ["mirlo-opt", "nothing.mlir"],
]  # fmt: skip

# Each line runs in a fork that ends as the installed command does: (exit code, standard error).
PROGRAM = """
import json, os, sys, tempfile
from mirlo.tools import cli, opt

def run(line, closed, full):
    errors = tempfile.TemporaryFile()
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        return code, errors.read().decode()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = os.devnull if number not in full else "/dev/full"
        file = os.open(stream, os.O_RDWR) if number != 2 or number in full else os.dup(errors.fileno())
        os.dup2(file, number)
        os.close(file)
        if number in closed:
            os.close(number)
        setattr(sys, name, None if number in closed else os.fdopen(number, "w" if number else "r", closefd=False))
    sys.argv = line
    code = 70
    try:
        (cli if line[0] == "mirlo" else opt).command()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        import traceback
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass
    os._exit(code)

lines, closed, full = json.loads(sys.argv[1])
print(json.dumps([run(line, closed, full) for line in lines]))
"""


@cache
def endings(closed: tuple[int, ...] = (), full: tuple[int, ...] = ()) -> list[tuple[int, str]]:
    """Return the exit code and standard error of each line, with these descriptors closed or on a full device."""
    arguments = [sys.executable, "-c", PROGRAM, json.dumps([LINES, closed, full])]
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return [tuple(ending) for ending in json.loads(done.stdout)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_closed_streams_change_no_exit_code(closed: tuple[int, ...]) -> None:
    for line, (code, errors), (expected, _) in zip(LINES, endings(closed), endings(), strict=True):
        assert code == expected, (line, errors)
        assert "Traceback" not in errors, line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
def test_a_full_device_is_an_error_in_one_line() -> None:
    for line, (code, errors) in zip(LINES, endings(full=(1,)), strict=True):
        assert code in (0, 1, 2), (line, errors)
        assert "Traceback" not in errors, line
        if line[-1] == "--version":
            assert code == 1
            assert errors.endswith("No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
def test_a_full_device_and_programs_for_onnxruntime() -> None:
    with open("/dev/full", "w") as full:
        arguments = [sys.executable, "-m", "mirlo.as_onnxruntime", "--help"]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "python -m mirlo.as_onnxruntime: error: cannot write the usage: No space left on device"
    ]
