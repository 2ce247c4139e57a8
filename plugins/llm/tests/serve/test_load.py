"""A server under load: many clients, some of which leave, read slowly or send nonsense; and processes that end."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

for package in ("starlette", "uvicorn", "tokenizers", "jinja2"):
    pytest.importorskip(package)

from mirlo_llm import generate  # noqa: E402
from served import ServerProcess, serving, write_language_model, write_tensor_model  # noqa: E402

pytestmark = [
    pytest.mark.sample(0),
    pytest.mark.skipif(sys.platform == "win32", reason="servers end by signals"),
]
CLIENTS, TOKENS = 64, 24
SECONDS = 60.0
"""Time in which any answer must come on a busy machine."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_language_model(folder / "tiny"), write_tensor_model(folder / "sum.onnx")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with serving(folder / "tiny", folder / "sum.onnx", "--slots", 8, "--queue", 128) as server:
        yield server


@pytest.fixture(scope="module")
def alone(folder: Path) -> Callable[[str], str]:
    model = generate.load(folder / "tiny")

    def answer(prompt: str) -> str:
        return "".join(model.generator(max_new_tokens=TOKENS).stream(prompt))

    return answer


def body_of(prompt: str, **more: Any) -> bytes:
    given = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
    return json.dumps({**given, **more}).encode()


def post(port: int, path: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
    finally:
        connection.close()


def figure(port: int, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def raw(port: int, path: str, body: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    connection.sendall(f"{head}\r\n\r\n".encode() + body)
    return connection


def test_no_request_is_lost_or_mixed_up(server: ServerProcess, alone: Callable[[str], str]) -> None:
    """Each of 64 clients gets what its prompt gets alone, whatever the others do."""
    port = server.port

    def run(number: int) -> str | None:
        generator = random.Random(number)
        for k in range(3):
            prompt = f"the fox {number % 16} {k}"
            kind = generator.choice(["whole", "stream", "leave", "nonsense", "tensors"])
            if kind == "leave":
                connection = raw(port, "/v1/completions", body_of(prompt, stream=True, max_tokens=400))
                time.sleep(generator.random() / 10)
                connection.close()
            elif kind == "nonsense":
                status, content, _ = post(port, "/v1/completions", generator.randbytes(50))
                if status != 400 or b"error" not in content:
                    return f"{status}: {content!r}"
            elif kind == "tensors":
                inputs = [
                    {"name": name, "shape": [1, 3], "datatype": "FP32", "data": [number, k, 1]}
                    for name in ("x", "bias")
                ]
                status, content, _ = post(port, "/v2/models/sum/infer", json.dumps({"inputs": inputs}).encode())
                if status != 200 or json.loads(content)["outputs"][0]["data"] != [3.0 * number, 3.0 * k, 3.0]:
                    return f"{status}: {content!r}"
            else:
                status, content, _ = post(port, "/v1/completions", body_of(prompt, stream=kind == "stream"))
                text = content.decode()
                if status != 200:
                    return f"{status}: {text}"
                if kind == "stream":
                    lines = text.split("\n\n")
                    if lines[-2] != "data: [DONE]":
                        return text
                    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
                    found = "".join(event["choices"][0]["text"] for event in events)
                else:
                    found = json.loads(text)["choices"][0]["text"]
                if found != expected[prompt]:
                    return f"{prompt}: {found!r}, expected {expected[prompt]!r}"
        return None

    expected = {f"the fox {number} {k}": alone(f"the fox {number} {k}") for number in range(16) for k in range(3)}
    with ThreadPoolExecutor(CLIENTS) as executor:
        problems = [problem for problem in executor.map(run, range(CLIENTS)) if problem is not None]
    assert not problems, problems[:3]
    wait_for(lambda: figure(port, "mirlo_pending_requests") == 0)
    assert figure(port, "mirlo_active_sequences") == figure(port, "mirlo_waiting_sequences") == 0
    assert figure(port, "mirlo_engine_failures_total") == 0
    assert not any("Traceback" in line or "Error" in line for line in server.log), server.log


def test_clients_that_leave_free_their_slots(server: ServerProcess) -> None:
    port = server.port
    left = figure(port, "mirlo_cancelled_requests_total")
    for is_streamed in (True, False):
        connections = [
            raw(port, "/v1/completions", body_of("the fox", stream=is_streamed, max_tokens=2000, n=1)) for _ in range(8)
        ]
        wait_for(lambda: figure(port, "mirlo_active_sequences") > 0)
        for connection in connections:
            connection.close()
        wait_for(lambda: figure(port, "mirlo_pending_requests") == 0)
    assert figure(port, "mirlo_cancelled_requests_total") >= left + 8


def test_slow_readers_hold_up_no_one(server: ServerProcess, alone: Callable[[str], str]) -> None:
    port = server.port
    slow = [raw(port, "/v1/completions", body_of("a token", stream=True, max_tokens=200)) for _ in range(16)]
    status, content, _ = post(port, "/v1/completions", body_of("the quick fox"))
    assert status == 200 and json.loads(content)["choices"][0]["text"] == alone("the quick fox")
    for connection in slow:
        text = b""
        while b"[DONE]" not in text:
            part = connection.recv(64)
            assert part
            text += part
        connection.close()


def test_requests_beyond_the_queue_are_refused(folder: Path) -> None:
    with serving(folder / "tiny", "--slots", 1, "--queue", 2) as server:
        statuses: list[int] = []
        waits: list[str] = []

        def run() -> None:
            status, content, headers = post(server.port, "/v1/completions", body_of("the fox", max_tokens=300))
            statuses.append(status)
            if status == 429:
                waits.append(headers["retry-after"])
                assert json.loads(content)["error"]["code"] == "rate_limit_exceeded"

        threads = [threading.Thread(target=run) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert set(statuses) == {200, 429} and len(statuses) == 12 and statuses.count(200) >= 3
        assert all(1 <= int(wait) <= 60 for wait in waits)
        assert figure(server.port, "mirlo_refused_requests_total") == statuses.count(429)


def test_a_signal_lets_requests_finish(folder: Path, alone: Callable[[str], str]) -> None:
    with serving(folder / "tiny") as server:
        answers: list[tuple[int, bytes, dict[str, str]]] = []
        body = body_of("the lazy dog", max_tokens=TOKENS, n=4)
        thread = threading.Thread(target=lambda: answers.append(post(server.port, "/v1/completions", body)))
        thread.start()
        wait_for(lambda: figure(server.port, "mirlo_pending_requests") > 0 or bool(answers))
        assert server.end(signal.SIGTERM) == 0
        thread.join(SECONDS)
        ((status, content, _),) = answers
        assert status == 200
        assert [c["text"] for c in json.loads(content)["choices"]] == [alone("the lazy dog")] * 4


def test_what_does_not_finish_in_time_gets_an_error(folder: Path) -> None:
    with serving(folder / "tiny", "--grace", 0) as server:
        connection = raw(server.port, "/v1/completions", body_of("the fox", stream=True, max_tokens=2000))
        assert connection.recv(16)
        start = time.monotonic()
        assert server.end(signal.SIGINT) == 0 and time.monotonic() - start < 30
        text = b""
        while part := connection.recv(65536):
            text += part
        assert b"the server is stopping" in text or b"[DONE]" in text


def test_a_killed_server_lets_clients_go(folder: Path) -> None:
    with serving(folder / "tiny") as server:
        connections = [
            raw(server.port, "/v1/completions", body_of("the fox", stream=True, max_tokens=2000)) for _ in range(8)
        ]
        assert connections[0].recv(16)
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
        for connection in connections:
            try:
                while connection.recv(65536):
                    pass
            except ConnectionResetError:
                pass


def test_a_killed_process_of_a_template_is_replaced(folder: Path) -> None:
    with serving(folder / "tiny") as server:
        given = {"model": "tiny", "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 4}
        body = json.dumps(given).encode()
        assert post(server.port, "/v1/chat/completions", body)[0] == 200
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        if not children.exists():
            pytest.skip("the system does not list the children of a process")
        threads = Path(f"/proc/{server.process.pid}/task").iterdir()
        for child in {int(each) for thread in threads for each in (thread / "children").read_text().split()}:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.2)
        assert post(server.port, "/v1/chat/completions", body)[0] == 200


@pytest.mark.parametrize(
    "content",
    [
        b"GARBAGE\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
        b"GET /%00%ff%0d%0a HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    ],
    ids=lambda content: content[:12].decode("latin-1"),
)
def test_what_is_not_http_ends_with_an_error(server: ServerProcess, content: bytes) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
    text = b""
    try:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65536):
            text += part
    except TimeoutError:
        raise
    except OSError:  # the server closes a connection without reading the rest of it
        pass
    connection.close()
    assert b" 200 " not in text.partition(b"\r\n")[0] and b"Traceback" not in text
    assert post(server.port, "/v1/completions", body_of("a", max_tokens=1))[0] == 200
