"""The runner in C: models that it runs, hosts that it refuses, and its messages for models that fail."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler, sanitizer_flags
from onnx_models import F32, make_model, node
from runners import TOKEN, StartedRunner, started

import mirlo
from mirlo.driver.build import build
from mirlo.driver.request import CompileRequest
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.errors import NotForThisMachine
from mirlo.runtime.model_runner import models_run_on
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.remote import wire
from mirlo.runtime.remote.board import Board
from mirlo.runtime.remote.model import RemoteModel
from mirlo.runtime.remote.wire import FrameKind, RemoteError, RunnerAddress, RunnerLost, parse_address
from mirlo.targets.c.compiler import find_compiler
from mirlo.targets.llvm.library.objects import pool_object
from mirlo.targets.llvm.library.runner import FLAGS, LIBRARIES, SOURCES, write_runner
from mirlo.targets.llvm.library.sources import RUN_TIME_FOLDER
from mirlo.targets.llvm.processor import host_processor
from mirlo.testing.oracle import exact_session

pytestmark = [
    needs_c_compiler,
    pytest.mark.skipif(sys.platform == "win32", reason="the runner is for POSIX"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runner(tmp_path_factory.mktemp("runner") / "runner", host_processor())[0]


@pytest.fixture(scope="module")
def runner(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedRunner]:
    with started([program], tmp_path_factory.mktemp("models"), "--seconds", "1", "--memory", "1") as each:
        yield each


@pytest.fixture
def board(runner: StartedRunner) -> Iterator[Board]:
    with runner.board() as each:
        yield each


def _model(rows: int | str = "n") -> onnx.ModelProto:
    weights = {"w": np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)}
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "y"), node("Softmax", "y", "z")]
    return make_model(nodes, {"x": (F32, (rows, 16))}, ["y", "z"], weights)


def _compiled(model: object, board: Board, target: str = "llvm", threads: int = 1) -> RemoteModel:
    with models_run_on(board):
        result = build(CompileRequest(model, target, threads=threads, jobs=1, cache=False))
    assert isinstance(result, RemoteModel)
    return result


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_onnxruntime(board: Board, threads: int) -> None:
    model = _model()
    compiled = _compiled(model, board, threads=threads)
    for rows in (3, 1, 0):
        x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
        expected = exact_session(model).run(None, {"x": x})
        for computed, array in zip(compiled(x), expected, strict=True):
            np.testing.assert_allclose(computed, array, rtol=1e-5, atol=1e-6)
        assert compiled.run({"x": x})["z"].shape == (rows, 8)


def test_threads_take_turns(board: Board) -> None:
    """Requests of several threads do not mix: each call gets the results for its own inputs."""
    models = [_compiled(_model(rows), board) for rows in (2, 5)]
    inputs = [(model, model.random_inputs(seed)) for seed in range(3) for model in models]
    expected = [model.run(own)["z"] for model, own in inputs]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda row: row[0].run(row[1])["z"], inputs * 40))
    for computed, array in zip(results, expected * 40, strict=True):
        np.testing.assert_array_equal(computed, array)


def test_times_and_profiles(board: Board) -> None:
    compiled = _compiled(_model(64), board)
    inputs = compiled.random_inputs()
    assert all(0 < seconds < 1 for seconds in compiled.seconds(inputs, 5))
    paused = compiled.seconds(inputs, 3, pause=0.01, cpu_time=True)
    assert len(paused) == 3 and max(paused) < 0.01
    profile = compiled.profile(*inputs.values(), repeats=4)
    assert [row.symbol for row in profile] == [kernel.symbol for kernel in compiled.artifact.kernels]
    assert 0 < profile.microseconds < 1e5 and profile.repeats == 4


def test_sizes_that_depend_on_data(board: Board) -> None:
    model = make_model([node("NonZero", "x", "y")], {"x": (F32, (4, 5))}, ["y"])
    compiled = _compiled(model, board)
    x = np.array([[0, 1, 0, 2, 0]] * 4, np.float32)
    for array in (x, np.zeros_like(x), x.T.reshape(4, 5)):
        np.testing.assert_array_equal(compiled(array), np.nonzero(array))


def test_models_are_freed(board: Board) -> None:
    first = _compiled(_model(2), board)
    kept = first._number
    del first
    assert [_compiled(_model(2), board)._number for _ in range(2)] == [kept, kept]


def test_a_model_on_a_board_is_saved(board: Board, tmp_path: Path) -> None:
    compiled = _compiled(_model(2), board)
    x = compiled.random_inputs()["x"]
    compiled.save(tmp_path / "model.mirlo")
    np.testing.assert_array_equal(mirlo.load(tmp_path / "model.mirlo")(x)[0], compiled(x)[0])


BROKEN = """
#include "mirlo.h"
#include <stdlib.h>
static void entry(void **tensors, void **params, void *arena, uint64_t *profile) { %s; }
static const mirlo_value values[] = {{"x", {kDLFloat, 32, 1}, 0, NULL, 0, 0}, {"y", {kDLFloat, 32, 1}, 0, NULL, 0, 0}};
const mirlo_code mirlo_model_model = {.abi = %s, .name = "broken", .triple = "", .features = "%s", .entry = entry,
  .inputs = 1, .outputs = 1, .threads = 1, .words = 4, .arena_word = 3, .values = values};
"""


def _broken(runner: StartedRunner, statement: str, abi: str = "MIRLO_ABI", features: str = "") -> RemoteModel:
    """Load a library in C in place of a model."""

    def link(artifact: Artifact, store: ParameterStore, path: Path, name: str, weights: str) -> list[Path]:
        path.with_suffix(".c").write_text(BROKEN % (statement, abi, features))
        command = [find_compiler(), "-shared", "-fPIC", f"-I{RUN_TIME_FOLDER}", str(path.with_suffix(".c"))]
        subprocess.run([*command, "-o", str(path)], check=True)
        return [path]

    model = make_model([node("Relu", "x", "y")], {"x": (F32, ())}, ["y"])
    return _compiled(model, runner.board(link))


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("*(volatile int *)8 = 1", "the process of the model was ended by signal 11, Segmentation fault"),
        ("exit(3)", "the process of the model ended with code 3"),
        ("for (volatile int i = 0;; ++i) continue", "longer than the 1 seconds of this runner: start it with larger"),
    ],
)
def test_a_model_that_fails_ends_alone(runner: StartedRunner, statement: str, problem: str) -> None:
    model = _broken(runner, statement)
    session = model._board
    assert isinstance(session, Board)
    with session as board:
        other = _compiled_by(board, _model(2))
        x = other.random_inputs()["x"]
        before = other(x)[0]
        with pytest.raises(RemoteError, match=f"on 127.0.0.1:[0-9]+: .*{problem}"):
            model(np.float32(1))
        np.testing.assert_array_equal(other(x)[0], before)
        with pytest.raises(RemoteError, match="this model is not on the runner any more"):
            model(np.float32(2))


def _compiled_by(board: Board, model: onnx.ModelProto) -> RemoteModel:
    from mirlo.targets.llvm.library.build import link_model

    board._link = link_model
    return _compiled(model, board)


def test_a_library_of_another_version(runner: StartedRunner) -> None:
    with pytest.raises(RemoteError, match=r"the model is of version 99, mirlo.c of \d+: build them together"):
        _broken(runner, "", abi="99")
    with pytest.raises(RemoteError, match="was compiled for a processor with no-such, which this one lacks"):
        _broken(runner, "", features="no-such" if host_processor().arch == "x86_64" else "sve256")


def test_a_model_for_another_machine(board: Board) -> None:
    other = "riscv64" if host_processor().arch == "aarch64" else "aarch64"
    cpu = {"riscv64": "generic-rv64", "aarch64": "generic"}[other]
    with pytest.raises(
        NotForThisMachine, match=rf"compiled for {other}-linux-gnu, and 127.0.0.1:\d+ is .*: compile it"
    ):
        _compiled(_model(2), board, f"llvm{{cpu={cpu} triple={other}-linux-gnu}}")
    with pytest.raises(RemoteError, match="a model for target 'spirv' is no machine code that the runner at"):
        _compiled(_model(2), board, "spirv")


def test_a_model_in_c(board: Board) -> None:
    compiled, own = _compiled(_model(2), board, "c"), mirlo.compile(_model(2), "c", cache=False)
    x = compiled.random_inputs()["x"]
    np.testing.assert_array_equal(compiled(x)[1], own(x)[1])
    assert len(compiled.profile(x)) == len(own.artifact.kernels)


def test_features_are_compared(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = list(host_processor().features)
    assert board.features(needed) == needed
    monkeypatch.setattr(board, "features", lambda names: [])
    with pytest.raises(
        NotForThisMachine, match=r"for a CPU with .*, which the one of 127.0.0.1:\d+ lacks: name its CPU"
    ):
        _compiled(_model(2), board)


def test_a_model_that_is_too_large(board: Board) -> None:
    weights = {"w": np.zeros((1024, 1024), np.float32)}
    large = make_model([node("MatMul", "x w", "y")], {"x": (F32, (1, 1024))}, ["y"], weights)
    with pytest.raises(RemoteError, match=r"\d+ bytes are more than the 1048576 of this runner, .* larger --memory"):
        _compiled(large, board)
    _compiled(_model(2), board)  # the session goes on
    relu = _compiled(make_model([node("Relu", "x", "y")], {"x": (F32, ("n",))}, ["y"]), board)
    with pytest.raises(RemoteError, match="larger --memory"):
        relu(np.zeros(1 << 20, np.float32))
    assert relu(np.ones(2, np.float32)).tolist() == [1, 1]


def test_hosts_that_are_refused(runner: StartedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "BUSY_SECONDS", 0.2)
    with pytest.raises(RunnerLost, match="it has another token: give the one that the runner was started with"):
        runner.board(token="another token, for tests")
    with pytest.raises(RunnerLost, match="expected a token of 16 to 256 bytes, found 5"):
        wire.check_token("short")
    with runner.board(), pytest.raises(RunnerLost, match="serves another host: wait until it has left"):
        runner.board()
    runner.board().close()


def _fake(greeting: bytes) -> RunnerAddress:
    """Listen once, and greet."""
    listener = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        with listener, listener.accept()[0] as peer:
            peer.sendall(greeting)

    threading.Thread(target=greet, daemon=True).start()
    return RunnerAddress(*listener.getsockname())


def test_what_is_no_runner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        free = RunnerAddress(*unused.getsockname())
    for address, problem in (
        (free, r"there is no runner at 127.0.0.1:\d+ \(Connection refused\): start it there"),
        (_fake(b"SSH-2.0-OpenSSH_9.9\r\n"), "what listens at 127.0.0.1:[0-9]+ is no runner of Mirlo"),
        (
            _fake(wire.GREETING.pack(wire.MAGIC, 99, 0, bytes(32))),
            "speaks version 99 of the protocol, .* build it again",
        ),
    ):
        with pytest.raises(RunnerLost, match=problem):
            wire.Connection(address, TOKEN.encode())


def test_addresses() -> None:
    assert parse_address("board") == RunnerAddress("board", wire.DEFAULT_PORT)
    assert parse_address("board:80") == RunnerAddress("board", 80)
    for text in ("[::1]:80", "board:80"):
        assert str(parse_address(text)) == text
    assert parse_address("[::1]") == RunnerAddress("::1", wire.DEFAULT_PORT)
    for wrong in ("", ":1", "board:", "board:x", "board:0", "board:65536", "[::1]80", "::1"):
        with pytest.raises(ValueError, match="expected HOST or HOST:PORT"):
            parse_address(wrong)


def test_a_runner_that_ends(program: Path, tmp_path: Path) -> None:
    with started([program], tmp_path) as own:
        board = own.board()
        model = _compiled(_model(2), board)
        own.process.terminate()
        own.process.wait(10)
        with pytest.raises(RunnerLost, match="it ended the session: was it stopped|Connection reset"):
            model(*model.random_inputs().values())


def test_options_of_the_runner(program: Path, tmp_path: Path) -> None:
    def output(*flags: str, token: str | None = TOKEN) -> str:
        environment = {} if token is None else {"MIRLO_REMOTE_TOKEN": token}
        done = subprocess.run(
            [program, *flags], capture_output=True, text=True, env=environment, check=False, timeout=20
        )
        assert done.returncode
        return done.stderr

    (tmp_path / "empty").touch()
    needs = "expected a token of 16 to 256 characters, in the file that --token-file names or in MIRLO_REMOTE_TOKEN"
    assert needs in output(token=None)
    assert needs in output("--token-file", str(tmp_path / "empty"))
    assert "the file of the token cannot be read" in output("--token-file", str(tmp_path / "missing"))
    assert "'--port x' is no option" in output("--port", "x")
    assert "'--listen ' is no option" in output("--listen")
    assert "cannot listen on 192.0.2.1, port 0: " in output("--listen", "192.0.2.1")


def _hostile_session(address: RunnerAddress, rng: random.Random) -> None:
    """Send what no host sends: noise, or frames with right tags, wrong kinds and wrong lengths."""
    if rng.random() < 0.4:
        start = wire.GREETING.pack(wire.MAGIC, wire.VERSION, 0, rng.randbytes(32)) if rng.random() < 0.5 else b""
        header = struct.pack("<II", rng.randrange(9), rng.choice((0, 7, 1 << 20, 1 << 31, (1 << 32) - 1)))
        with suppress(OSError), socket.create_connection((address.host, address.port), timeout=20) as peer:
            peer.sendall(start + header + rng.randbytes(rng.randrange(200)))
        return
    connection = wire.Connection(address, TOKEN.encode())
    try:
        for _ in range(rng.randrange(1, 12)):
            payload = _hostile_payload(rng)
            connection.send(rng.choice([*FrameKind]), payload)
            if rng.random() < 0.2:
                connection._send_bytes(rng.randbytes(rng.randrange(1, 60)))
    except RunnerLost:
        pass
    finally:
        connection.close()


def _hostile_payload(rng: random.Random) -> bytes:
    edges = (0, 1, 7, 100, 1 << 20, 1 << 31, (1 << 32) - 1)
    words = b"".join(struct.pack("<I", rng.choice(edges)) for _ in range(rng.randrange(8)))
    return rng.choice((words, rng.randbytes(rng.randrange(300)), struct.pack("<QQI", rng.choice(edges), 0, 1)))


@pytest.mark.sample(0)
def test_hostile_frames(tmp_path: Path) -> None:
    """Send random frames to a runner with sanitizers, which then serves the next host as before."""
    flags = sanitizer_flags(find_compiler(), "address,undefined", tmp_path / "probe")
    pool = tmp_path / "pool.o"
    pool.write_bytes(pool_object(host_processor()))
    sources = [str(RUN_TIME_FOLDER / name) for name in SOURCES]
    command = [find_compiler(), *FLAGS, "-O1", "-Werror", *flags, *sources, str(pool), "-o", str(tmp_path / "runner")]
    subprocess.run([*command, *LIBRARIES], check=True)
    (tmp_path / "models").mkdir()
    with started([tmp_path / "runner"], tmp_path / "models", "--memory", "1", "--seconds", "5") as own:
        rng = random.Random(0)
        for _ in range(150):
            _hostile_session(own.address, rng)
        with own.board() as board:
            for size in range(1, 200, 3):  # digests of all kinds of lengths
                assert board.features(["y" * size]) == []
            model = _compiled(_model(2), board)
            assert model(*model.random_inputs().values())[0].shape == (2, 8)
    assert "Sanitizer" not in own.errors and "runtime error" not in own.errors, own.errors
