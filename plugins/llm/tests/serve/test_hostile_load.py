"""A server that gets 10,000 requests, a third of which are hostile: it continues, and answers health checks."""

from __future__ import annotations

import http.client
import json
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

for package in ("starlette", "uvicorn", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)

from hostile_forms import draw  # noqa: E402
from mirlo_llm import generate  # noqa: E402
from served import ServerProcess, free_port, serving, write_language_model, write_tensor_model  # noqa: E402

pytestmark = [
    pytest.mark.sample(0),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not show memory of processes"),
]
REQUESTS = 10_000
SECONDS = 900
"""Time of all requests; those that are left then are not sent, which is a failure."""
HEALTH_SECONDS = 15.0
"""Time in which health must be answered on a machine whose cores others take, too; what it took is printed."""
MEMORY = 3 << 30
"""Bytes of the server and the processes that it started."""
TOKENS = 8
JSON_TYPE = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_language_model(folder / "tiny"), write_tensor_model(folder / "sum.onnx")
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[ServerProcess]:
    port = free_port()
    limits = ("--slots", 8, "--connections-each", 200, "--health-port", port)
    with serving(folder / "tiny", folder / "sum.onnx", *limits) as server:
        server.health_port = port
        yield server


HEALTH = """
import http.client, sys, time
while True:
    start = time.perf_counter()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), 60, source_address=("127.0.0.9", 0))
        connection.request("GET", "/v2/health/live")
        status = connection.getresponse().status
    except OSError as error:
        status = repr(error)
    connection.close()
    print(time.perf_counter() - start, status, flush=True)
    time.sleep(0.05)
"""


@contextmanager
def asking_for_health(port: int) -> Iterator[list[tuple[float, str]]]:
    """Ask in a process of its own whether the server lives, by a new connection each time; yield times and statuses."""
    answers: list[tuple[float, str]] = []

    def read(lines: Iterable[str]) -> None:
        for line in lines:
            seconds, _, status = line.strip().partition(" ")
            answers.append((float(seconds), status))

    process = subprocess.Popen([sys.executable, "-c", HEALTH, str(port)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    reader = threading.Thread(target=read, args=(process.stdout,))
    reader.start()
    try:
        yield answers
    finally:
        process.kill()
        process.wait()
        reader.join()


def ask(
    port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] = JSON_TYPE, source: str = "127.0.0.1"
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def completion(prompt: object, **more: object) -> bytes:
    return json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, **more}).encode()


def chat(content: object, **more: object) -> bytes:
    message = {"role": "user", "content": content}
    return json.dumps({"model": "tiny", "messages": [message], "max_tokens": 4, **more}).encode()


class Honest:
    """A client whose answers are known."""

    def __init__(self, port: int, expected: dict[str, str]) -> None:
        self._port, self._expected = port, expected

    def run(self, number: int) -> str | None:
        """Send a request; return what is wrong with the answer."""
        generator = random.Random(number)
        kind = generator.choice(["completion", "completion", "stream", "tensors", "form", "models", "chat"])
        prompt = generator.choice(list(self._expected))
        status, content = self._ask(kind, prompt, number)
        while status == 429:
            time.sleep(0.1)
            status, content = self._ask(kind, prompt, number)
        if status != 200:
            return f"{kind}: {status} {content[:300]!r}"
        if kind == "completion" and json.loads(content)["choices"][0]["text"] != self._expected[prompt]:
            return f"{prompt}: {content!r}"
        if kind == "tensors" and json.loads(content)["outputs"][0]["data"] != [3.0 * number, 3.0, 6.0]:
            return f"{number}: {content!r}"
        if kind == "form" and json.loads(content)["choices"][0]["message"]["content"] not in ("red", "blue"):
            return f"form: {content!r}"
        return f"stream: {content!r}" if kind == "stream" and not content.endswith(b"data: [DONE]\n\n") else None

    def _ask(self, kind: str, prompt: str, number: int) -> tuple[int, bytes]:
        if kind == "models":
            return ask(self._port, "GET", "/v1/models")
        if kind == "tensors":
            values = {"shape": [1, 3], "datatype": "FP32", "data": [number, 1, 2]}
            body = {"inputs": [{"name": name, **values} for name in ("x", "bias")]}
            return ask(self._port, "POST", "/v2/models/sum/infer", json.dumps(body).encode())
        if kind in ("form", "chat"):
            more: dict[str, Any] = {"regex": "(red|blue)", "max_tokens": 16} if kind == "form" else {}
            return ask(self._port, "POST", "/v1/chat/completions", chat(prompt, **more))
        return ask(self._port, "POST", "/v1/completions", completion(prompt, stream=kind == "stream"))


class Hostile:
    """A client that sends what ends, stops or fills servers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.statuses: Counter[str] = Counter()
        self._open: list[socket.socket] = []
        self._kinds: tuple[Callable[[random.Random], bytes | None], ...] = (
            self._form, self._form, self._form, self._long_prompt, self._large_json, self._nonsense, self._slow_head,
            self._slow_head, self._slow_body, self._leaving, self._tensors, self._parts, self._no_http,
        )  # fmt: skip

    def run(self, number: int) -> str | None:
        """Send a request; return what is wrong with the answer."""
        generator = random.Random(number)
        kind = generator.choice(self._kinds)
        try:
            answer = kind(generator)
        except OSError:  # such as a connection that the server ends
            answer = None
        name = kind.__name__
        status = "ended" if answer is None else answer[:40].decode("latin-1")
        self.statuses[f"{name} {status}"] += 1
        if answer is not None and (b"Traceback" in answer or answer.startswith(b"5") and b"503" not in answer[:3]):
            return f"{name}: {answer[:300]!r}"
        return None

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def _post(self, path: str, body: bytes, headers: dict[str, str] = JSON_TYPE) -> bytes:
        status, content = ask(self._port, "POST", path, body, headers, source="127.0.0.2")
        return str(status).encode() if status == 200 else f"{status} ".encode() + content

    def _connect(self, generator: random.Random) -> socket.socket:
        source = (f"127.0.1.{generator.randrange(1, 30)}", 0)
        return socket.create_connection(("127.0.0.1", self._port), timeout=60, source_address=source)

    def _form(self, generator: random.Random) -> bytes:
        form, text = draw(generator)
        if form == "json_schema":
            try:
                schema = json.loads(text)
            except ValueError:
                schema = {"pattern": text}
            schema = schema if isinstance(schema, dict) else {"const": schema}
            given: dict[str, Any] = {"type": "json_schema", "json_schema": {"schema": schema}}
            return self._post("/v1/chat/completions", chat("x", response_format=given))
        return self._post("/v1/chat/completions", chat("x", **{form: text[: 1 << 16]}))

    def _long_prompt(self, generator: random.Random) -> bytes:
        text = generator.choice(["a", "ab ", "é", "\n"]) * (1 << generator.randrange(10, 20))
        if generator.random() < 0.5:
            return self._post("/v1/completions", completion([text] * generator.choice([1, 4])))
        return self._post("/v1/chat/completions", chat(text))

    def _large_json(self, generator: random.Random) -> bytes:
        part = generator.choice([b"[],", b"1,", b'"",', b'{"a":1},', b"[[1,2],[3]],", b"1.5e300,", b'"\\u0061",'])
        body = b'{"model":"tiny","prompt":[' + part * (1 << generator.randrange(8, 19)) + b"1]}"
        return self._post("/v1/completions", body)

    def _nonsense(self, generator: random.Random) -> bytes:
        letters = bytearray(completion("the fox", stop=["a"]))
        for _ in range(generator.randint(1, 8)):
            letters[generator.randrange(len(letters))] = generator.randrange(256)
        return self._post("/v1/completions", bytes(letters))

    def _slow_head(self, generator: random.Random) -> None:
        """Begin requests, and send nothing more for as long as there are not too many."""
        for _ in range(8):
            connection = self._connect(generator)
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nx"[: generator.randrange(56)])
            self._open.append(connection)
        while len(self._open) > 1500:
            self._open.pop(0).close()

    def _slow_body(self, generator: random.Random) -> None:
        connection = self._connect(generator)
        head = (
            "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 9999"
        )
        connection.sendall(f"{head}\r\n\r\n{{".encode())
        self._open.append(connection)

    def _leaving(self, generator: random.Random) -> None:
        connection = self._connect(generator)
        body = completion("the fox", stream=True, max_tokens=400)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[: generator.randrange(len(body))])
        connection.close()

    def _tensors(self, generator: random.Random) -> bytes:
        count = 1 << generator.randrange(0, 18)
        data: Any = [generator.choice([1, 1e40, "x", None, True, [1]])] * count
        shape = generator.choice([[count // 3, 3], [1 << 62, 3], [-1, 3], [count], [0, 3]])
        inputs = [{"name": name, "shape": shape, "datatype": "FP32", "data": data} for name in ("x", "bias")]
        return self._post("/v2/models/sum/infer", json.dumps({"inputs": inputs}).encode())

    def _parts(self, generator: random.Random) -> bytes:
        lines = b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\ntiny\r\n' * generator.choice([1, 40])
        body = lines + b"--x\r\n" * (1 << generator.randrange(0, 16)) + generator.randbytes(1000) + b"\r\n--x--\r\n"
        return self._post("/v1/audio/transcriptions", body, {"content-type": "multipart/form-data; boundary=x"})

    def _no_http(self, generator: random.Random) -> bytes | None:
        connection = self._connect(generator)
        lines = [b"GET / HTTP/1.1\r\n", b"x: " + b"y" * 90_000, generator.randbytes(100), b"\r\n\r\n", b"\0" * 1000]
        connection.sendall(b"".join(generator.choice(lines) for _ in range(3)))
        connection.shutdown(socket.SHUT_WR)
        received = connection.recv(1 << 16)
        connection.close()
        return received.partition(b" ")[2] or None


def memory_of(process: int) -> int:
    """Return the bytes that a process and those that it started have now, without what they share."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
            except OSError:
                continue
    own, more = {process}, {process}
    while more:
        more = {each for each, parent in parents.items() if parent in more}
        own |= more
    total = 0
    for each in own:
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="loopback has one address")
def test_hostile_and_honest_requests(server: ServerProcess, folder: Path) -> None:
    model = generate.load(folder / "tiny")
    prompts = [f"the fox {number} jumps" for number in range(20)]
    expected = {p: "".join(model.generator(max_new_tokens=TOKENS).stream(p)) for p in prompts}
    honest, hostile, end = Honest(server.port, expected), Hostile(server.port), time.monotonic() + SECONDS
    most, skipped = 0, 0

    def run(number: int) -> str | None:
        nonlocal skipped
        if time.monotonic() > end:
            skipped += 1
            return None
        return (hostile if number % 3 == 0 else honest).run(number)

    def watch() -> None:
        nonlocal most
        while not is_done.wait(1):
            most = max(most, memory_of(server.process.pid))

    is_done, start = threading.Event(), time.monotonic()
    watching = threading.Thread(target=watch)
    watching.start()
    with asking_for_health(server.port) as health, asking_for_health(server.health_port) as beside:
        try:
            with ThreadPoolExecutor(12) as clients:
                problems = [problem for problem in clients.map(run, range(REQUESTS)) if problem is not None]
        finally:
            is_done.set()
            watching.join()
            hostile.close()
    print(f"{REQUESTS - skipped} requests in {time.monotonic() - start:.0f} s, {most >> 20} MiB at most")
    for name, answers in (("health", health), ("the port of health", beside)):
        seconds = sorted(each for each, _ in answers)
        print(f"{name}: {len(seconds)} times, median {1000 * statistics.median(seconds):.1f} ms")
        print("slowest:", " ".join(f"{1000 * each:.0f}" for each in seconds[-20:]), "ms")
    for status, count in sorted(hostile.statuses.items()):
        print(count, status)
    assert not skipped and not problems, problems[:5]
    assert {status for _, status in (*health, *beside)} == {"200"}
    assert max(seconds for seconds, _ in (*health, *beside)) < HEALTH_SECONDS
    assert most < MEMORY
    assert server.process.poll() is None, "".join(server.log)
    assert not any("Traceback" in line for line in server.log), "".join(server.log)
    assert all(honest.run(number) is None for number in range(20))
    assert server.end() == 0
