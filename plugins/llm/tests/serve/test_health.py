"""The port of health: answered by a process of its own, whatever the server and clients do."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package)

from mirlo_llm.serve import health_process  # noqa: E402
from mirlo_llm.serve.errors import ServeError  # noqa: E402
from mirlo_llm.serve.health import HealthPort  # noqa: E402
from mirlo_llm.serve.health_process import MOST_CONNECTIONS, NOT_READY, READY, Health  # noqa: E402
from served import ServerProcess, free_port, serving, write_language_model, write_tensor_model  # noqa: E402

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the system passes no sockets to processes")


def ask(port: int, path: str, method: str = "GET", seconds: float = 30) -> tuple[int, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


@pytest.fixture(scope="module")
def health_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(health_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    model = tmp_path_factory.mktemp("served") / "sum.onnx"
    write_tensor_model(model)
    with serving(model, "--health-port", health_port) as server:
        yield server


def test_endpoints(server: ServerProcess, health_port: int) -> None:
    assert ask(health_port, "/v2/health/live") == (200, {"live": True})
    while ask(health_port, "/v2/health/ready") != (200, {"ready": True}):
        time.sleep(0.1)
    assert ask(health_port, "/v2/health/live?x", "HEAD") == (200, None)
    assert ask(health_port, "/v2/health/live", "POST")[0] == 405
    assert ask(health_port, "/v1/models")[0] == 404
    assert ask(server.port, "/v2/health/live")[0] == 200


def test_answers_while_the_server_does_not(server: ServerProcess, health_port: int) -> None:
    server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            ask(server.port, "/v2/health/live", seconds=0.5)
        assert ask(health_port, "/v2/health/live") == (200, {"live": True})
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert ask(server.port, "/v2/health/live")[0] == 200


@pytest.mark.sample(2)
@pytest.mark.parametrize("mebibytes", [4, 15])
def test_answers_while_long_prompts_come(mebibytes: int, tmp_path: Path) -> None:
    """Prompts with more characters than the tokens that the server takes could have are refused before encoding."""
    pytest.importorskip("tokenizers")
    write_language_model(tmp_path / "tiny")
    port = free_port()
    texts = ["a" * (mebibytes << 20), "é" * (mebibytes << 19)]
    bodies = [json.dumps({"model": "tiny", "prompt": text}, ensure_ascii=False).encode() for text in texts]
    with serving(tmp_path / "tiny", "--health-port", port) as server:
        while ask(server.port, "/v2/health/ready")[0] != 200:
            time.sleep(0.1)
        answers: list[tuple[int, bytes]] = []
        sender = threading.Thread(target=lambda: answers.extend(post(server.port, body) for body in bodies))
        sender.start()
        seconds = []
        while sender.is_alive() or len(seconds) < 5:
            start = time.perf_counter()
            assert ask(port, "/v2/health/live") == (200, {"live": True})
            seconds.append(time.perf_counter() - start)
        assert [status for status, _ in answers] == [400, 400]
        assert all(b"the tokens that the server takes have up to" in content for _, content in answers)
        assert statistics.median(seconds) < 0.05
        assert ask(server.port, "/v2/health/live")[0] == 200


def post(port: int, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_connections_that_send_nothing_make_room(server: ServerProcess, health_port: int) -> None:
    opened = [socket.create_connection(("127.0.0.1", health_port)) for _ in range(4 * MOST_CONNECTIONS)]
    try:
        opened[-1].sendall(b"GET /v2/health/live")
        assert ask(health_port, "/v2/health/live")[0] == 200
        opened[-1].sendall(b"x" * (2 * health_process.MOST_BYTES))
        assert opened[-1].recv(100).startswith(b"HTTP/1.1 431 ")
        assert opened[0].recv(100) == b""
    finally:
        for each in opened:
            each.close()


def test_a_server_without_beats_counts_as_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    health = Health()
    health.beat(NOT_READY + READY)
    assert b'{"ready":true}' in health.answer(b"GET /v2/health/ready HTTP/1.1\r\n\r\n")
    health.beat(NOT_READY)
    assert health.answer(b"GET /v2/health/ready HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 503 ")
    assert health.answer(b"GET /v2/health/live HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    monkeypatch.setattr(health_process, "STALLED_SECONDS", 0.0)
    assert health.answer(b"GET /v2/health/live HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 503 ")


def test_the_process_ends_with_the_server(tmp_path: Path) -> None:
    port = HealthPort("127.0.0.1", 0)
    port.send(True)
    with pytest.raises(ServeError, match="the address for health cannot be used"):
        HealthPort("127.0.0.1", port.port)
    assert ask(port.port, "/v2/health/live")[0] == 200
    port.close()
    with pytest.raises(OSError):
        ask(port.port, "/v2/health/live", seconds=5)
