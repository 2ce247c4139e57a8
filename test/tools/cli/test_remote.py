"""`mirlo remote`, and the commands that run models on a board: a runner on this machine."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler
from commands import mirlo
from onnx_models import F32, make_model, node
from runners import TOKEN, StartedRunner, started

from mirlo.driver.tune.measure import time_choices
from mirlo.driver.tune.tasks import tasks_of
from mirlo.runtime.model_runner import models_run_on
from mirlo.runtime.remote.model import RemoteModel
from mirlo.runtime.remote.wire import RemoteError
from mirlo.tools.cli import main

pytestmark = [
    needs_c_compiler,
    pytest.mark.skipif(sys.platform == "win32", reason="the runner is for POSIX"),
]

WRONG_RULE = """
from mirlo.dialects.tir.compute import exp
from mirlo.extend.rules import legalize

@legalize("relax.relu", target="llvm", priority=10)
def wrong(op, b):
    return b.call_prim(lambda p, x: p.compute(x.shape, lambda *i: exp(x[i]), name="wrong"), op.x)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a runner, its token and a model."""
    folder = tmp_path_factory.mktemp("board")
    assert main(["remote", "-o", str(folder / "runner")]) == 0
    (folder / "token").write_text(f"{TOKEN}\n")
    (folder / "models").mkdir()
    weights = {"w": np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)}
    onnx.save(_model(weights), folder / "m.onnx")
    return folder


def _model(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Softmax", "b", "y")]
    return make_model(nodes, {"x": (F32, (32, 64))}, ["y"], weights)


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[StartedRunner]:
    with started([folder / "runner"], folder / "models") as each:
        yield each


@pytest.fixture
def board(folder: Path, runner: StartedRunner) -> list[str]:
    """Return the flags of commands."""
    return ["--remote", str(runner.address), "--token-file", str(folder / "token")]


@pytest.mark.sample(0)
def test_what_a_board_is(board: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["remote", board[1], *board[2:]]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{board[1]}: ") and "takes models up to 2048 MiB, and calls up to 300 s" in printed
    assert "features: " in printed


def test_what_the_command_line_cannot_mean(
    board: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MIRLO_REMOTE_TOKEN", raising=False)
    model = str(folder / "m.onnx")
    for line, problem in (
        (["tune", model, "--token-file", "token"], "'--token-file' is the token of a runner: name that with --remote"),
        (["tune", model, "--ray", "local", *board], "leave out --remote or --ray"),
        (["bench", model, "--against", "tvm", *board], "leave out --against, --spinner and --pressure"),
        (["bench", model, "--report", "x.html", *board], "limits of a board are not measured, which 'x.html' is to"),
        (["remote", *board, "-o", "x"], "leave out HOST to write the runner"),
        (["remote", "--target", "c"], "the runner is for a processor of target 'llvm', found --target 'c'"),
        (["remote", "--target", "llvm{cpu=generic triple=wasm32-unknown-unknown}"], "there is no runner for wasm32"),
        (["remote", board[1]], f"the runner at {board[1]} needs its token: name its file with --token-file, or set"),
        (["remote", board[1], "--token-file", "missing"], "cannot read the token 'missing'"),
    ):
        assert main(line[:1] + line[2:] if line[:2] == ["remote", "--remote"] else line) == 1
        assert problem in capsys.readouterr().err


def test_choices_are_timed_on_the_board(folder: Path, runner: StartedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose process ends on the board is a choice that is not taken."""
    tasks, _ = tasks_of(onnx.load(folder / "m.onnx"), "llvm", 1)
    task = next(task for task in tasks if len(task.choices) > 1)
    calls = []
    run = RemoteModel.run

    def run_first(model: RemoteModel, inputs: object, out: object = None) -> dict[str, np.ndarray]:
        calls.append(model)
        if len(calls) == 2:
            raise RemoteError("the process of the model was ended by signal 11")
        return run(model, inputs, out)  # type: ignore[arg-type]

    monkeypatch.setattr(RemoteModel, "run", run_first)
    with runner.board() as session, models_run_on(session):
        timing = time_choices(task, task.choices[:2], "llvm", 1)
    assert timing.microseconds > 0 and timing.ratios[0] is None
    assert timing.ratios[1] is not None and 0 < timing.ratios[1] < 100
    assert len(calls) == 3 and all(model._board is session for model in calls)


def test_run(board: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Models and compiled files run on the board: the same results, timed by its clock, with times of kernels."""
    model, compiled = str(folder / "m.onnx"), str(folder / "m.mirlo")
    assert main(["compile", model, "-o", compiled]) == 0
    results = []
    for place, line in (("here", [compiled]), ("file", [compiled, *board]), ("model", [model, *board])):
        capsys.readouterr()
        assert main(["run", *line, "--repeat", "3", "--profile", "--output-dir", str(folder / place)]) == 0
        printed = capsys.readouterr().out
        assert (f" ms by the clock of {board[1]} (median of 3 runs, " in printed) == (place != "here")
        assert "2 kernel calls, " in printed
        results.append(np.load(folder / place / "y.npy"))
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])
    assert main(["run", model, "--target", "llvm{cpu=generic triple=aarch64-linux-gnu}", *board]) == 1
    assert f"the model was compiled for aarch64-linux-gnu, and {board[1]} is " in capsys.readouterr().err


def test_ipv6(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    (folder / "ipv6").mkdir()
    with started([folder / "runner"], folder / "ipv6", "--listen", "::1") as own:
        address = str(own.address)
        assert address.startswith("[::1]:")
        assert main(["remote", address, "--token-file", str(folder / "token")]) == 0
    assert capsys.readouterr().out.startswith(f"{address}: ")


@pytest.mark.sample(0)
def test_bench_and_tune(board: list[str], folder: Path) -> None:
    measured = mirlo("bench", folder / "m.onnx", "--seconds", "0.2", "--json", "--gap", "0,1", *board)
    assert measured.returncode == 0, measured.stderr
    results = json.loads(measured.stdout)
    assert results["machine"].startswith(board[1])
    assert all(0 < row["engines"][0]["milliseconds"] < 100 for row in results["models"])
    tuned = mirlo("tune", folder / "m.onnx", "--seconds", "4", "--database", folder / "db.json", *board)
    assert "kernels and operators with choices: " in tuned.stdout, tuned.stderr


@pytest.mark.sample(0)
def test_bisect(board: list[str], folder: Path) -> None:
    (folder / "plugin.py").write_text(WRONG_RULE)
    done = mirlo("bisect", "m.onnx", "--plugin", "plugin.py", *board, cwd=folder)
    assert done.returncode == 1
    assert "first node that departs: 'Relu_1' (Relu), node 2 of 3" in done.stdout, done.stdout + done.stderr
    assert "by the rule relax.relu: wrong (plugin.py:5)" in done.stdout
    replay = json.loads((folder / "m-bisect" / "report.json").read_text())["replay"]
    assert f"--remote {board[1]} --token-file" in replay
    again = mirlo(*shlex.split(replay)[1:], cwd=folder / "m-bisect")
    assert "node 1 of 1" in again.stdout, again.stderr
    board[1] = "127.0.0.1:1"
    lost = mirlo("bisect", "m.onnx", *board, cwd=folder)
    assert (lost.returncode, "there is no runner at 127.0.0.1:1 (" in lost.stderr) == (1, True)


@pytest.mark.sample(0)
def test_the_source_is_compiled_on_a_board(folder: Path) -> None:
    assert main(["remote", "--emit", "source", "-o", str(folder / "source")]) == 0
    subprocess.run(["sh", str(folder / "source" / "build.sh")], check=True)
    with started([folder / "source" / "runner"], folder / "models") as own, own.board() as session:
        assert session.facts.cores > 0
