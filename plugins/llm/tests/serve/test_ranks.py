"""A served model on several ranks: answers as of one rank, and errors at once when a rank ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from mirlo_llm.serve.errors import ServeError
from mirlo_llm.serve.options import ServeOptions, parse_models
from served import free_port, serving, write_language_model, write_tensor_model

from mirlo.testing.commands import ENVIRONMENT

PROMPTS = ["the quick brown fox", "the quick brown dog jumps", "a lazy dog"]


def ask(address: str, path: str, body: object = None) -> tuple[int, str]:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}{path}", content, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def texts(address: str) -> list[str]:
    """Return the answers to prompts that are asked for together, drawn and not."""
    results = [""] * len(PROMPTS)

    def complete(i: int) -> None:
        body = {"model": "m", "prompt": PROMPTS[i], "max_tokens": 20, "temperature": i % 2, "seed": 3}
        status, answer = ask(address, "/v1/completions", body)
        assert status == 200, answer
        results[i] = json.loads(answer)["choices"][0]["text"]

    threads = [threading.Thread(target=complete, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.sample(0)
@pytest.mark.parametrize("ranks", [2, 3])
def test_answers_and_the_end_of_a_rank(ranks: int, tmp_path: Path) -> None:
    folder = write_language_model(tmp_path / "m")
    with serving(folder) as alone:
        expected = texts(alone.address)
    with serving(folder, "--ranks", ranks) as server:
        address = server.address
        assert texts(address) == expected
        answers: list[tuple[int, str]] = []
        long = {"model": "m", "prompt": "the", "max_tokens": 4000, "temperature": 0}
        asking = threading.Thread(target=lambda: answers.append(ask(address, "/v1/completions", long)))
        asking.start()
        time.sleep(0.3)
        processes = rank_processes(server.process.pid)
        assert len(processes) == ranks - 1
        os.kill(processes[-1], signal.SIGKILL)
        asking.join(10)
        (status, message), *_ = answers
        assert status == 503 and "of the model has ended by signal 9" in message, message
        assert ask(address, "/v2/health/ready")[0] == 503 and ask(address, "/v2/health/live")[0] == 200
        status, message = ask(address, "/v1/completions", long)
        assert status == 503 and "start the server again" in message
        assert server.end() == 0


@pytest.mark.sample(0)
@pytest.mark.parametrize("is_idle", [False, True])
def test_a_rank_that_is_stopped(is_idle: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that runs gets an error; a server without requests is no longer ready."""
    monkeypatch.setitem(ENVIRONMENT, "MIRLO_RANKS_HEARTBEAT", "2")
    long = {"model": "m", "prompt": "the", "max_tokens": 4000, "temperature": 0}
    with serving(write_language_model(tmp_path / "m"), "--ranks", 2) as server:
        answers: list[tuple[int, str]] = []
        asking = threading.Thread(target=lambda: answers.append(ask(server.address, "/v1/completions", long)))
        if not is_idle:
            asking.start()
            time.sleep(0.3)
        (process,) = rank_processes(server.process.pid)
        os.kill(process, signal.SIGSTOP)
        start = time.monotonic()
        while ask(server.address, "/v2/health/ready")[0] == 200:
            assert time.monotonic() - start < 10
            time.sleep(0.1)
        if not is_idle:
            asking.join(10)
            assert answers[0][0] == 503 and "rank 1 has shown no sign of life for 2 s" in answers[0][1]
        status, message = ask(server.address, "/v1/completions", long)
        assert status == 503 and "it was ended; start the server again" in message
        assert ask(server.address, "/v2/health/live")[0] == 200
        assert server.end() == 0


def rank_processes(server: int) -> list[int]:
    command = ["pgrep", "-P", str(server), "-f", "rank_process"]
    return [int(each) for each in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def test_what_ranks_cannot_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mirlo_llm.serve.application import Server

    sources = parse_models([f"a={write_tensor_model(tmp_path / 'a.onnx')}", f"b={tmp_path / 'a.onnx'}"])
    options = ServeOptions(port=free_port())
    with pytest.raises(ServeError, match="has one model, found 2"):
        Server(sources, options, {"ranks": 2})
    server = Server(sources[:1], options, {"ranks": 2})
    with pytest.raises(ServeError, match="--ranks is for language models"):
        server.state.pool._load(sources[0])
    monkeypatch.setenv("RANK", "0"), monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ServeError, match="start it alone"):
        Server(sources[:1], options, {"ranks": 2})
