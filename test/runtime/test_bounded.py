"""Bounded processes: whatever a function does there, this process gets an error, and the next call is answered."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirlo.runtime.bounded import BoundedFailure, BoundedRefusal, BoundedWorker, Bounds
from mirlo.runtime.processes import can_fork, run_forked

MODULE = "bounded_functions"
BOUNDS = Bounds(seconds=30, memory=1 << 28, growth=1 << 26)
FAILURES = {
    "fail": "it cannot be",
    "end": "its process ended with exit code 3",
    "sleep": "it takes longer than [12] s",
    "compute": "it takes longer than [12] s( of processor time)?",
}
if sys.platform != "win32":
    FAILURES |= {
        "crash": "its process ended by signal SIGSEGV",
        "recurse": "its process ended by signal (SIGSEGV|SIGBUS)",
        "grow": "it takes too much memory",
    }


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BoundedWorker]:
    monkeypatch.setattr("mirlo.runtime.bounded._origins", [])  # one that knows this folder
    yield BoundedWorker(MODULE, bounds=BOUNDS)


def process_of(worker: BoundedWorker) -> int:
    process: int = worker.call("echo").value["process"]
    return process


@pytest.mark.parametrize("name", FAILURES)
def test_failures(worker: BoundedWorker, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 1 if name in ("sleep", "compute") else 30
    if seconds == 1:
        monkeypatch.setattr("mirlo.runtime.bounded.WAITING", 2)
    for new in (worker.process, lambda: worker.process().fork()):
        with pytest.raises(BoundedFailure, match=f"^({FAILURES[name]})$"):
            new().call(name, seconds=seconds)
        assert worker.call("echo", b"content", value=[1]).content == b"content"


@pytest.mark.sample(0)
@pytest.mark.skipif(sys.platform == "win32", reason="the system does not limit processor time")
def test_time_that_others_have_the_processor_is_not_counted(
    worker: BoundedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that the system does not run for longer than its limit answers, and one that computes ends."""
    monkeypatch.setattr("mirlo.runtime.bounded.WAITING", 1000)
    process = BoundedWorker(MODULE, bounds=Bounds(seconds=30, is_background=False)).process()
    number = process.call("echo").value["process"]
    os.kill(number, signal.SIGSTOP)
    goes_on = threading.Timer(2.5, os.kill, (number, signal.SIGCONT))
    goes_on.start()
    assert process.call("echo", b"content", seconds=1).content == b"content"
    goes_on.join()
    with pytest.raises(BoundedFailure, match="^it takes longer than 1 s of processor time$"):
        process.call("compute", seconds=1)


@pytest.mark.skipif(sys.platform == "win32", reason="priorities of processes are not read there")
@pytest.mark.parametrize("is_background", [True, False])
def test_only_background_processes_have_a_lower_priority(worker: BoundedWorker, is_background: bool) -> None:
    found = BoundedWorker(MODULE, bounds=Bounds(seconds=30, is_background=is_background))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for process in (found.process(), found.process().fork()):
        number = process.call("echo").value["process"]
        assert os.getpriority(os.PRIO_PROCESS, number) == (min(19, own + 10) if is_background else own)
        process.end()


def test_failures_of_opening(worker: BoundedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.runtime.bounded.WAITING", 2)
    for name in ("fail", "end", "sleep"):
        with pytest.raises(BoundedFailure, match=f"^({FAILURES[name]})$"):
            BoundedWorker(MODULE, b"", {"problem": name}, Bounds(seconds=1)).process()
    with pytest.raises(BoundedFailure, match="No module named 'mirlo.runtime.nothing'"):
        BoundedWorker("mirlo.runtime.nothing").process()
    assert worker.call("echo").value["value"] is None


def test_a_copy_takes_nothing_from_the_others(worker: BoundedWorker) -> None:
    """What ends a copy ends no other one, and a call in one waits for none in another."""
    shared, process = process_of(worker), worker.process()
    first, second = process.fork(), process.fork()
    numbers = {shared, *(each.call("echo").value["process"] for each in (first, second))}
    assert len(numbers) == 3 and os.getpid() not in numbers or not can_fork()
    slow = threading.Thread(target=lambda: pytest.raises(BoundedFailure, first.call, "sleep", seconds=1))
    slow.start()
    assert second.call("echo", b"x" * (1 << 22)).content == b"x" * (1 << 22) and slow.is_alive()
    slow.join()
    assert not first.is_usable and second.is_usable and process_of(worker) == shared
    with pytest.raises(BoundedFailure, match="its process has ended"):
        first.call("echo")
    second.end()


def test_without_forks(worker: BoundedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process is started separately, and opens the module with the same content."""
    monkeypatch.setattr("mirlo.runtime.bounded.can_fork", lambda: False)
    process = worker.process().fork()
    assert process.call("echo").value["process"] != process_of(worker)
    with pytest.raises(BoundedFailure, match=f"^{FAILURES['end']}$"):
        process.call("end")
    assert worker.call_alone("echo", b"content").content == b"content"
    process.end()


ANYWHERE = ("fail", "end", "sleep", "compute")
"""Failures that end without a limit of the system, but that of time."""


@pytest.mark.parametrize("name", ANYWHERE)
def test_as_on_windows(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without forks, limits and descriptors, each process is started separately and limited in time."""

    def refuse(*descriptor: object) -> None:
        pytest.fail("a descriptor was passed")

    monkeypatch.setattr("mirlo.runtime.bounded.can_fork", lambda: False)
    monkeypatch.setattr(socket, "send_fds", refuse)
    without = BoundedWorker("functions_without_limits", bounds=BOUNDS)
    for new in (without.process, lambda: without.process().fork()):
        with pytest.raises(BoundedFailure, match=f"^({FAILURES[name]})$"):
            new().call(name, seconds=1 if name in ("sleep", "compute") else 30)
        content = bytes(3 << 20)
        assert without.call("echo", content, value=[1]) == ({"value": [1], "process": process_of(without)}, content)
    with pytest.raises(BoundedRefusal, match="^these arguments are wrong$"):
        without.call("refuse")


def test_refusals_and_threads(worker: BoundedWorker) -> None:
    with pytest.raises(BoundedRefusal, match="^these arguments are wrong$"):
        worker.call("refuse")
    with ThreadPoolExecutor(8) as threads:
        values = list(threads.map(lambda i: worker.call_alone("echo", b"x" * i, value=i), range(40)))
    assert [(result.value["value"], len(result.content)) for result in values] == [(i, i) for i in range(40)]


@pytest.mark.skipif(not can_fork(), reason="the system has no forks")
def test_a_call_alone_leaves_no_process(worker: BoundedWorker) -> None:
    copy = worker.call_alone("echo").value["process"]
    assert copy != process_of(worker)
    for _ in range(600):
        if not Path(f"/proc/{copy}").exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"process {copy} runs a minute after its call")


@pytest.mark.skipif(not can_fork(), reason="the system has no forks")
def test_a_fork_of_this_process_has_others(worker: BoundedWorker) -> None:
    process = process_of(worker)
    done = run_forked(lambda: str(process_of(worker)).encode())
    assert int(done.content) != process and process_of(worker) == process


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not list processes")
def test_no_process_is_left(worker: BoundedWorker) -> None:
    """A process ends once nothing refers to it, and with this process: its socket is closed."""
    copies = [worker.process().fork() for _ in range(3)]
    numbers = [process_of(worker), *(each.call("echo").value["process"] for each in copies)]
    copies[0].end()
    del copies, worker
    gc.collect()
    other = BoundedWorker(MODULE, bounds=BOUNDS)
    end = time.monotonic() + 20
    while any(_runs(number) for number in numbers[1:]) and time.monotonic() < end:
        process_of(other)
        time.sleep(0.05)
    assert not any(_runs(number) for number in numbers[1:])


def _runs(process: int) -> bool:
    """Return whether a process runs; an ended one may wait for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
