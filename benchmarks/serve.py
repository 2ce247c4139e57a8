"""What a request over HTTP costs beside the engine, and the throughput of many clients beside the engine alone.

    python -m benchmarks.serve [--rounds 5] [--peer]

The server is a process of its own; a client keeps one connection and reads answers without decoding them. Calls of the
server and of an engine in this process take turns. The model has random weights.

With `--peer` clients ask llama.cpp's server (`pip install xllamacpp gguf`) and Mirlo's in turns, with the same GGUF
file, prompts and number of threads; each answer has the same number of tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CALLS = 300
"""Calls in a round of the first part."""
CLIENTS, REQUESTS, NEW_TOKENS = 16, 3, 64
"""Of the second part: each client has this many requests, one after the other."""
PROMPT = "the quick brown fox"
PEER_CLIENTS, LEAST, PEER_TOKENS = (1, 4, 16), 4, 32
"""Beside another server: numbers of clients, fewest requests of a round, and tokens of each answer."""
PEER = """
import sys, time
import xllamacpp
path, slots, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = xllamacpp.CommonParams()
options.model.path, options.n_parallel, options.n_ctx, options.port = path, slots, slots * 512, 0
options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(options)
print("ready at", server.listening_address, file=sys.stderr, flush=True)
time.sleep(1 << 20)
"""
"""A program that serves a GGUF file by llama.cpp."""
SMALL: dict[str, int] = {}
LARGE = {"layers": 8, "hidden": 1024, "inner": 2816, "heads": 16, "kv_heads": 4, "size": 64}
MEDIUM = {"layers": 6, "hidden": 512, "inner": 1408, "heads": 8, "kv_heads": 2, "size": 64}


def write_model(folder: Path, sizes: dict[str, int], bits: int = 4) -> Path:
    """Write the example's model in other sizes, with weights of this number of bits, 0 for f32."""
    module = runpy.run_path(str(ROOT / "examples" / "tiny_language_model.py"))
    module["CONFIG"].update(sizes)
    result: Path = module["write"](folder, bits=bits)
    return result


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Start a server; return its port and its process."""
    command = [sys.executable, "-m", "mirlo.tools.cli", "serve", f"m={folder}", "--port", "0", "--slots", str(CLIENTS)]
    with started([*command, *options]) as server:
        yield server


@contextmanager
def started(command: list[str]) -> Iterator[tuple[int, int]]:
    """Start a process that prints the address at which it serves; return its port and its number."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace")
    assert process.stderr is not None
    try:
        for line in process.stderr:
            match = re.search(r"(?:serving|ready) .*\bhttp://127\.0\.0\.1:(\d+)", line)
            if match:
                # What it prints later would fill the pipe.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield int(match[1]), process.pid
                return
        raise SystemExit("the server does not start")
    finally:
        process.terminate()
        process.wait(60)


class RawClient:
    """A connection that sends prepared requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: bytes) -> bytes:
        """Return the body of an answer."""
        self._socket.sendall(request)
        content = b""
        while b"\r\n\r\n" not in content:
            content += self._received()
        head, _, body = content.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        assert length is not None and head.startswith(b"HTTP/1.1 200"), content
        while len(body) < int(length[1]):
            body += self._received()
        return body

    def _received(self) -> bytes:
        content = self._socket.recv(65536)
        if not content:
            raise SystemExit("the server ended the connection")
        return content


def request(prompt: str, tokens: int, **options: object) -> bytes:
    """Return the bytes of a request."""
    body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, **options}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + body


def median(call: Callable[[], Any]) -> float:
    """Return the median time of a call, in microseconds."""
    seconds = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1e6


def processor_seconds(process: int) -> float:
    """Return the processor time of a process (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report_overhead(rounds: int, folder: Path) -> None:
    """Print the time of a one-token request compared with that of the engine alone."""
    from mirlo import generate

    engine = generate.load(write_model(folder, SMALL)).engine(CLIENTS)

    def alone() -> None:
        engine.add(PROMPT, max_new_tokens=1).result()

    with serving(folder) as (port, process):
        client, prepared = RawClient(port), request(PROMPT, 1)
        median(lambda: client.call(prepared)), median(alone)
        pairs, used = [], []
        for _ in range(rounds):
            before, own = processor_seconds(process), time.process_time()
            theirs = median(lambda: client.call(prepared))
            middle = processor_seconds(process) - before
            own = time.process_time()
            ours = median(alone)
            used.append((middle - (time.process_time() - own)) / CALLS * 1e6)
            pairs.append((theirs, ours))
            print(f"  a call {theirs:7.0f} us, the engine alone {ours:7.0f} us, difference {theirs - ours:6.0f} us")
    difference = statistics.median(theirs - ours for theirs, ours in pairs)
    print(
        f"overhead of a call: {difference:.0f} us (median), processor time {statistics.median(used):.0f} us", flush=True
    )


def report_throughput(rounds: int, folder: Path) -> None:
    """Print the tokens per second of many clients compared with those of the engine alone."""
    from mirlo import generate

    model = generate.load(write_model(folder, MEDIUM))
    prompts = [f"{PROMPT} {number}" for number in range(CLIENTS * REQUESTS)]

    def alone() -> float:
        model.prefixes.clear()
        engine = model.engine(CLIENTS)
        for prompt in prompts:
            engine.add(prompt, max_new_tokens=NEW_TOKENS)
        start = time.perf_counter()
        for _ in engine.run():
            pass
        return engine.counts.tokens / (time.perf_counter() - start)

    with serving(folder) as (port, _):
        clients = [RawClient(port) for _ in range(CLIENTS)]
        prepared = [request(prompt, NEW_TOKENS) for prompt in prompts]

        def together() -> float:
            return tokens_per_second(clients, prepared)

        together(), alone()
        ratios = []
        for number in range(rounds):
            first, second = (together, alone) if number % 2 else (alone, together)
            rates = {first: first(), second: second()}
            ratios.append(rates[together] / rates[alone])
            print(f"  {CLIENTS} clients {rates[together]:7.0f} tokens/s, the engine alone {rates[alone]:7.0f} tokens/s")
    print(f"throughput of {CLIENTS} clients: {statistics.median(ratios):.3f} of the engine alone", flush=True)


def tokens_per_second(clients: Sequence[RawClient], prepared: Sequence[bytes]) -> float:
    """Divide requests among clients, and return how many tokens of answers all of them get in a second."""
    counts: list[int] = []

    def run(number: int) -> None:
        for one in prepared[number :: len(clients)]:
            counts.append(json.loads(clients[number].call(one))["usage"]["completion_tokens"])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(clients))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def write_gguf(path: Path, kind: str) -> Path:
    """Write the example's model in a larger size, with matrices of a type, as a GGUF file."""
    example = runpy.run_path(str(ROOT / "examples" / "tiny_gguf.py"))
    tiny = runpy.run_path(str(ROOT / "examples" / "tiny_language_model.py"))
    tiny["CONFIG"].update(LARGE)
    result: Path = example["write"](path, kind, tiny)
    return result


def report_peer(rounds: int, path: Path, kind: str, threads: int, *own_options: str) -> None:
    """Print the tokens per second that clients get of llama.cpp's server and of Mirlo's."""
    write_gguf(path, kind)
    peer = [sys.executable, "-c", PEER, str(path), str(CLIENTS), str(threads)]
    with serving(path, "--threads", str(threads), *own_options) as (own, _), started(peer) as (other, _):
        for count in PEER_CLIENTS:
            rates: dict[int, list[float]] = {own: [], other: []}
            for number in range(rounds + 1):  # the first round warms both up
                prompts = [f"{number} {i} {PROMPT}" for i in range(max(count, LEAST))]
                prepared = [request(prompt, PEER_TOKENS, ignore_eos=True) for prompt in prompts]
                for port in (own, other) if number % 2 else (other, own):
                    clients = [RawClient(port) for _ in range(count)]
                    rates[port].append(tokens_per_second(clients, prepared))
            ratios = [mine / theirs for mine, theirs in zip(rates[own][1:], rates[other][1:], strict=True)]
            mine, theirs = (statistics.median(rates[port][1:]) for port in (own, other))
            print(
                f"{kind}, {count:2} clients: {mine:7.1f} tokens/s, llama.cpp {theirs:7.1f}, ratio "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `mirlo` does: its threads would spin
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="store_true", help="compare with llama.cpp's server instead")
    parser.add_argument("--type", default="Q8_0", help="the type of matrices beside --peer (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of both servers beside --peer (%(default)s)")
    parser.add_argument("--target", default="llvm", help="Mirlo's target beside --peer (%(default)s)")
    parser.add_argument("--activations", default="exact", help="of Mirlo's products beside --peer (%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.peer:
            path = Path(folder) / "model.gguf"
            own = ("--target", arguments.target, "--activations", arguments.activations)
            report_peer(arguments.rounds, path, arguments.type, arguments.threads, *own)
            return
        report_overhead(arguments.rounds, Path(folder) / "small")
        report_throughput(arguments.rounds, Path(folder) / "medium")


if __name__ == "__main__":
    main()
