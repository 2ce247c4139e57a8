"""`python -m benchmarks.client_commands`: how each command ended on a model, with its table."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import parser

from mirlo.benchmarks.client_commands import COMMANDS, CommandRun, is_internal_error, problems, run_models, table
from mirlo.benchmarks.clients import PackagedModel
from mirlo.tools import cli

MODEL = """
  <ir_version: 9, opset_import: ["": 20]>
  g (float[3] x) => (float[3] y) { y = Exp(x) }"""


def end(arguments: object) -> int:
    os._exit(3)


def wait(arguments: object) -> int:
    time.sleep(60)
    return 0


def raise_error(arguments: object) -> int:
    print("mirlo: internal error: ValueError: nothing", file=sys.stderr)
    return 1


def run_into_an_exception(arguments: object) -> int:
    raise ValueError("nothing")


def refuse(arguments: object) -> int:
    print("a note\nmirlo: error[MIR0001]: m.onnx: it has 3 inputs", file=sys.stderr)
    return 1


ENDS: dict[str, tuple[Callable[[object], int], str]] = {
    "process": (end, "failed: exit code 3"),
    "time": (wait, "late: no result after 2 s"),
    "internal error": (raise_error, "failed: mirlo: internal error: ValueError: nothing\n"),
    "exception": (run_into_an_exception, "failed: exit code 1"),
    "error": (refuse, "refused: mirlo: error[MIR0001]: m.onnx: it has 3 inputs"),
    "result": (lambda arguments: 0, "accepted"),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the commands are replaced in this process")
@pytest.mark.parametrize("kind", ENDS)
def test_how_commands_end(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.tools.fuzz.workers.WAITING", 1)
    monkeypatch.setattr("mirlo.benchmarks.client_commands.COMMANDS", {"info": (), "run": ()})
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    function, expected = ENDS[kind]
    monkeypatch.setattr(cli, "main", function)
    (run,) = run_models([PackagedModel("package", path, "folder/m.onnx")], 2, tmp_path)
    assert run.model == "package/folder/m.onnx" and run.outcomes == {"info": expected, "run": expected}
    assert problems([run]) == (
        [f"info package/folder/m.onnx, run package/folder/m.onnx: {expected}"] * expected.startswith("failed")
    )


def test_internal_errors() -> None:
    assert not is_internal_error(0, "") and not is_internal_error(1, "mirlo: error[MIR0701]: no")
    assert is_internal_error(-11, "") and is_internal_error(1, "mirlo: internal error: ") and is_internal_error(2, "")


def test_table() -> None:
    runs = [
        CommandRun(
            "a/m.onnx", 1 << 20, "c0", "2026-01-01", {"info": 1.0}, {"info": "accepted", "run": "late: no result"}
        ),
        CommandRun(
            "b/n.onnx", 5 << 20, "c1", "2026-01-02", {}, {"run": "refused: mirlo: error[MIR0701]: n.onnx: 3 'x'"}
        ),
    ]
    lines = table(runs).splitlines()
    assert len(lines) == len(COMMANDS) + 4
    assert (
        "| `info` | 1 | 0 | 0 | 0 | 1 s |  |" in lines and "| `run` | 0 | 1 | 1 | 0 | 0 s | 1 times: N '...' |" in lines
    )
    assert lines[-1] == "2 models of 2 packages, up to 5 MiB; 2026-01-01 to 2026-01-02, at c0, c1."
