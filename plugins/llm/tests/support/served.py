"""Models for a server, and servers in processes of their own."""

from __future__ import annotations

import gc
import importlib.util
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from repository import ROOT

from mirlo.testing.commands import ENVIRONMENT

TOOL_TEMPLATE = """\
{{ bos_token }}{% for tool in tools or [] %}{{ tool.function.name }};{% endfor %}{% for message in messages %}\
{{ '<|user|>' if message.role == 'user' else '<|model|>' }}{{ message.content }}\
{% for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}\
{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|model|>{% endif %}"""
START_SECONDS = 120
LOAD_SECONDS = 60
"""Processor time in which models of tests are loaded."""
END_SECONDS = 600
"""Time after which what has not ended never will."""
SERVER_THREADS = "mirlo serve"
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Lets Ray use 127.0.0.1, as it does on systems with a permission dialog for networks; disables usage statistics."""
START_RAY = """
import ray
from ray import serve
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
serve.start(proxy_location="HeadOnly", http_options={{"host": "127.0.0.1", "port": {port}}})
"""
"""A node of Ray in this process' machine, whose requests come over loopback."""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def write_language_model(folder: Path, with_tools: bool = True, paged: bool = False) -> Path:
    """Write the example's model with random weights in f32, with caches in pages if it is `paged`."""
    spec = importlib.util.spec_from_file_location("tiny_language_model", ROOT / "examples" / "tiny_language_model.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path: Path = module.write(folder, paged=paged)
    if with_tools:
        config = path / "tokenizer_config.json"
        given = json.loads(config.read_text())
        config.write_text(json.dumps({**given, "chat_template": TOOL_TEMPLATE}))
    return path


def write_tensor_model(path: Path, mixes_rows: bool = False) -> Path:
    """Write y = 2x + bias of [batch, 3], and the text of z as it came; rows depend on each other if it `mixes_rows`."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Add", ["twice", "bias"], ["y" if not mixes_rows else "sum"]),
    ]
    if mixes_rows:
        nodes.append(helper.make_node("Softmax", ["sum"], ["y"], axis=0))
    shape = ["batch", 3]
    inputs = [info("x", TensorProto.FLOAT, shape), info("bias", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, shape)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def write_text_model(path: Path) -> Path:
    """Write a model of texts: y = x followed by an exclamation mark."""
    info = helper.make_tensor_value_info
    mark = helper.make_tensor("mark", TensorProto.STRING, [1], [b"!"])
    node = helper.make_node("StringConcat", ["x", "mark"], ["y"])
    graph = helper.make_graph(
        [node], "g", [info("x", TensorProto.STRING, ["n"])], [info("y", TensorProto.STRING, ["n"])], [mark]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


class ServerProcess:
    """A server in a process of its own."""

    health_port = 0
    """The port of `--health-port`, if the server has one."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "mirlo.tools.cli", "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT)
        self.log: list[str] = []
        self._is_ready = threading.Event()
        self.address = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._is_ready.wait(START_SECONDS) or not self.address:
            self.process.kill()
            raise AssertionError("".join(self.log))

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"serving .* at (http://\S+)", line)
            if found:
                self.address = found[1]
                self._is_ready.set()
        self._is_ready.set()

    def end(self, how: int = signal.SIGTERM, seconds: float = 60) -> int:
        """Send a signal, and return how the process ended."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(seconds)


@contextmanager
def serving(*arguments: object) -> Iterator[ServerProcess]:
    server = ServerProcess(*arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait(30)


@contextmanager
def ready_client(server: Any) -> Iterator[Any]:
    """Yield a client of a server in this process whose models have answered a first call."""
    from starlette.testclient import TestClient

    with TestClient(server, raise_server_exceptions=True) as client:
        wait_until_ready(client)
        yield client


def shared_threads() -> set[threading.Thread]:
    """Return the threads of the process that read bodies for all servers: they compile nothing, and never end."""
    from mirlo_llm.serve.threads import _threads

    return _threads._threads


@contextmanager
def usual_interpreter() -> Iterator[None]:
    """Restore the settings of the interpreter after the block, once servers that began in it compile no more.

    A server that a test leaves while it loads goes on in its threads, with other thresholds of the garbage collector.
    """
    before, threads = (gc.get_threshold(), sys.getswitchinterval()), set(threading.enumerate())
    try:
        yield
    finally:
        others = threads | shared_threads()
        left = [each for each in threading.enumerate() if each not in others and each.name.startswith(SERVER_THREADS)]
        for thread in left:
            thread.join(END_SECONDS)
        gc.set_threshold(*before[0])
        sys.setswitchinterval(before[1])
        assert not any(each.is_alive() for each in left), f"servers still run: {[each.name for each in left]}"


def load_failure(server: Any) -> str:
    """Return why the models of a server in this process cannot be loaded; requests are answered all the same."""
    from starlette.testclient import TestClient

    with TestClient(server, raise_server_exceptions=True) as client:
        for _ in _waiting():
            if server.state.failure is not None:
                assert client.get("/v2/health/ready").status_code == 503
                return str(server.state.failure)
            assert not server.is_ready, "the models can be loaded"
    raise AssertionError("the models are neither loaded nor refused")


def wait_until_ready(client: Any) -> None:
    """Wait until each model has answered a first call."""
    for _ in _waiting():
        if client.get("/v2/health/ready").status_code == 200:
            return
        if client.app.state.failure is not None:
            raise client.app.state.failure
    raise AssertionError("the models do not become ready")


def _waiting() -> Iterator[None]:
    """Yield until this process has computed for a while, however much of the processor other work takes."""
    computed, started = time.process_time(), time.monotonic()
    while time.process_time() - computed < LOAD_SECONDS and time.monotonic() - started < END_SECONDS:
        yield
        time.sleep(0.05)
