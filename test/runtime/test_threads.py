"""The thread pool: every chunk runs once, from any thread, also after sleeping and after a fork."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mirlo.runtime import threads
from mirlo.runtime.object_loader import compile_llvm, define_symbol
from mirlo.runtime.system import available_cores

pytestmark = pytest.mark.skipif(not threads.supported(), reason="no POSIX threads here")

TASK = """
declare void @mirlo_parallel(ptr, ptr, i32, i32)
define void @task(ptr %counts, i32 %chunk, i32 %chunks) {
  %place = getelementptr i32, ptr %counts, i32 %chunk
  %count = load i32, ptr %place
  %more = add i32 %count, 1
  store i32 %more, ptr %place
  ret void
}
define void @regions(ptr %counts, i32 %chunks, i32 %threads, i32 %repeats) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  call void @mirlo_parallel(ptr @task, ptr %counts, i32 %chunks, i32 %threads)
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, %repeats
  br i1 %again, label %loop, label %out
out:
  ret void
}
define void @slow(ptr %counts, i32 %chunk, i32 %chunks) {
entry:
  call void @task(ptr %counts, i32 %chunk, i32 %chunks)
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %kept = load volatile i32, ptr %counts
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, 1000
  br i1 %again, label %loop, label %out
out:
  ret void
}
define void @mixed(ptr %counts, i32 %few, i32 %many, i32 %threads, i32 %repeats) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  call void @mirlo_parallel(ptr @slow, ptr %counts, i32 %few, i32 %threads)
  call void @mirlo_parallel(ptr @slow, ptr %counts, i32 %many, i32 %threads)
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, %repeats
  br i1 %again, label %loop, label %out
out:
  ret void
}
"""


def _leave_team() -> None:
    """Have the pool's own workers again, whatever tests of PyTorch did before."""
    with threads._lock:
        threads._get_pool().join_team(None, None)
        threads._has_team = False


@pytest.fixture(scope="module")
def code():
    _leave_team()
    threads.ensure(4)
    return compile_llvm(TASK)


@pytest.fixture
def regions(code):
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int32] * 3)
    return kind(code.address("regions"))


@pytest.fixture
def mixed(code):
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int32] * 4)
    return kind(code.address("mixed"))


def _run(regions, chunks: int, repeats: int, count: int = 4) -> list[int]:
    counts = (ctypes.c_int32 * chunks)()
    regions(counts, chunks, count, repeats)
    return list(counts)


@pytest.mark.parametrize("chunks", [1, 2, 3, 16, 100])
def test_every_chunk_runs_once_a_region(regions, chunks: int) -> None:
    assert _run(regions, chunks, 500) == [500] * chunks


def test_more_chunks_than_claims_have_room_for(regions) -> None:
    assert set(_run(regions, (1 << 20) + 3, 2)) == {2}
    assert set(_run(regions, (1 << 20) - 2, 2)) == {2}


def test_regions_of_different_sizes_one_right_after_the_other(mixed) -> None:
    # A worker that saw the state of the small region and the total of the large one must not claim a chunk of either.
    counts = (ctypes.c_int32 * 8)()
    caller = threading.Thread(target=mixed, args=(counts, 2, 8, 2, 60000), daemon=True)
    caller.start()
    caller.join(timeout=60)
    assert not caller.is_alive(), "a region never ended"
    assert list(counts) == [120000] * 2 + [60000] * 6


def test_workers_wake_up(regions) -> None:
    for _ in range(5):
        time.sleep(0.02)
        assert _run(regions, 8, 1) == [1] * 8


def test_callers_at_the_same_time(regions) -> None:
    results: list[list[int]] = []
    callers = [threading.Thread(target=lambda: results.append(_run(regions, 8, 2000))) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [[2000] * 8] * 6


def test_child_of_a_fork(regions) -> None:
    child = os.fork()
    if child == 0:
        threads.revive(4)
        os._exit(0 if _run(regions, 8, 50) == [50] * 8 else 1)
    assert os.waitpid(child, 0)[1] == 0


class _Team:
    """A library with an OpenMP team, made of Python's threads, which is larger than jobs need."""

    SIZE = 5

    def __init__(self) -> None:
        self.regions: list[list[int]] = []
        self._local = threading.local()
        task, number = ctypes.CFUNCTYPE(None, ctypes.c_void_p), ctypes.c_int32
        kind = ctypes.CFUNCTYPE(None, task, ctypes.c_void_p, number, number)
        self.GOMP_parallel = kind(self._run_region)
        self.omp_get_thread_num = ctypes.CFUNCTYPE(number)(lambda: self._local.number)

    def _run_region(self, task: Any, data: int, size: int, flags: int) -> None:
        def run(number: int) -> None:
            self._local.number = number
            task(data)

        self.regions.append([size, flags])
        others = [threading.Thread(target=run, args=(number,)) for number in range(1, self.SIZE)]
        for thread in others:
            thread.start()
        run(0)
        for thread in others:
            thread.join()


@pytest.fixture
def team(code) -> Iterator[_Team]:
    library = _Team()
    assert threads.join_openmp(library)  # type: ignore[arg-type]
    yield library
    _leave_team()


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_team_of_openmp_runs_the_jobs(team, regions, count: int) -> None:
    assert _run(regions, 16, 20, count) == [20] * 16
    assert team.regions == [[0, 0]] * 20  # a region of another size would end threads of the team


def test_no_more_of_a_team_help_than_a_job_asks_for(team) -> None:
    who, both = set(), threading.Barrier(2)

    def chunk(arguments: int, index: int, chunks: int) -> None:
        who.add(threading.get_ident())
        if index in (0, chunks - 1):
            both.wait(10)
        time.sleep(0.001)

    task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
    parallel = ctypes.CFUNCTYPE(None, task, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(threads._pool.address)
    parallel(task(chunk), None, 40, 2)
    assert len(who) == 2


def test_jobs_of_one_thread_need_no_team(team, regions) -> None:
    assert _run(regions, 1, 5) == [5] and _run(regions, 8, 5, 1) == [5] * 8
    assert team.regions == []


def test_child_of_a_fork_has_workers_of_its_own(team, regions) -> None:
    child = os.fork()
    if child == 0:
        threads.revive(4)
        joins = threads.join_openmp(team)  # as one more graph that the child compiles does
        right = not joins and _run(regions, 8, 50) == [50] * 8 and team.regions == []
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert _run(regions, 8, 5) == [5] * 8 and len(team.regions) == 5


def test_a_library_without_openmp_leaves_the_workers(code) -> None:
    assert not threads.join_openmp(SimpleNamespace())  # type: ignore[arg-type]
    assert not threads._has_team


_PLACED = """
import ctypes, os, sys, threading, time
from mirlo.runtime import threads
from mirlo.runtime.system import available_cores

threads.ensure(2)
task = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
run = ctypes.CFUNCTYPE(None, task, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(threads._pool.address)
here = threading.get_native_id()

def region(seconds=0.0, wait=0.001):
    # Two chunks, the first of which waits for a worker to begin the second one: who ran them, and where the caller was.
    who, begun = [], threading.Event()
    def chunk(arguments, index, chunks):
        who.append(threading.get_native_id())
        if who[-1] == here:
            begun.wait(wait)
        else:
            begun.set()
            time.sleep(seconds)
    run(task(chunk), None, 2, 2)
    return who

def worker():
    while True:
        others = set(region(wait=2.0)) - {here}
        if others:
            return others.pop()
        time.sleep(0.05)
"""


def _in_a_process(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", _PLACED + text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


needs_cores = pytest.mark.skipif(
    not sys.platform.startswith("linux") or available_cores() < 2, reason="needs Linux and two cores"
)


@needs_cores
@pytest.mark.sample(0)
def test_a_woken_worker_is_not_on_the_core_of_its_caller() -> None:
    _in_a_process("""
cores = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, {cores[0]})
tid = worker()
for core in cores * 3:
    os.sched_setaffinity(0, {core})
    limit = time.monotonic() + 20
    while core in os.sched_getaffinity(tid):  # on a busy machine it may take a while until it sleeps
        assert time.monotonic() < limit, (core, os.sched_getaffinity(tid))
        time.sleep(0.05)
        worker()
""")


class _Placement:
    """The pool with a system made up: the core of the caller, and the masks of threads by their handles."""

    def __init__(self, cores: list[int], threads_of_pool: int = 1) -> None:
        self.core, self.refuses = cores[0], False
        self.masks = {100 + i: set(cores) for i in range(threads_of_pool)}
        text = threads.pool_text(platform.machine().lower(), "linux")
        number, handle, mask = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
        self._functions = {
            "sched_getcpu": ctypes.CFUNCTYPE(number)(lambda: self.core),
            "pthread_getaffinity_np": ctypes.CFUNCTYPE(number, handle, handle, mask)(self._get),
            "pthread_setaffinity_np": ctypes.CFUNCTYPE(number, handle, handle, mask)(self._set),
        }
        for name, function in self._functions.items():
            text = text.replace(f"@{name}(", f"@test_{name}(")
            define_symbol(f"test_{name}", ctypes.cast(function, ctypes.c_void_p).value or 0)
        self._code = compile_llvm(text)
        address = self._code.address
        self._place = ctypes.CFUNCTYPE(None, number)(address("mirlo_pool_place"))
        ctypes.CFUNCTYPE(None, mask, number)(address("mirlo_pool_cores"))((number * len(cores))(*cores), len(cores))
        started = ctypes.CFUNCTYPE(None, number, handle)(address("mirlo_pool_started"))
        for i, thread in enumerate(self.masks):
            started(i, thread)

    def wake(self, core: int) -> list[set[int]]:
        """Wake the workers from a core; return their masks."""
        self.core = core
        self._place(len(self.masks))
        return list(self.masks.values())

    def _get(self, thread: int, size: int, mask: int) -> int:
        ctypes.memmove(mask, sum(1 << core for core in self.masks[thread]).to_bytes(size, "little"), size)
        return 0

    def _set(self, thread: int, size: int, mask: int) -> int:
        bits = int.from_bytes(ctypes.string_at(mask, size), "little")
        if not self.refuses:
            self.masks[thread] = {core for core in range(8 * size) if bits >> core & 1}
        return int(self.refuses)


def test_workers_get_the_cores_that_their_caller_leaves() -> None:
    one = _Placement([0, 1])
    assert [one.wake(core) for core in (0, 1, 1, 0)] == [[{1}], [{0}], [{0}], [{1}]]
    several = _Placement([0, 2, 1, 3], 2)
    assert several.wake(0) == [{2, 3}, {1}]
    assert several.wake(1) == [{3, 2}, {0}]
    full = _Placement([0, 9], 2)  # as many workers as cores: there is none to leave to the caller
    assert full.wake(0) == full.wake(9) == [{0, 9}, {0, 9}]
    assert one.wake(7) == [{1}]  # of a caller on a core that the process did not have


def test_a_worker_that_was_placed_by_somebody_else_stays_there() -> None:
    pool = _Placement([0, 1, 2], 2)
    assert pool.wake(0) == [{1}, {2}]
    pool.masks[101] = {0}
    for core in (1, 2, 0, 1):
        assert pool.masks[101] == {0} and pool.wake(core)[1] == {0}
    refused = _Placement([0, 1])
    refused.refuses = True
    assert refused.wake(0) == [{0, 1}]
    refused.refuses = False
    assert refused.wake(1) == [{0, 1}]  # a system that refuses is not asked again


@needs_cores
def test_a_process_with_one_core_starts_no_worker() -> None:
    _in_a_process("""
pid = os.fork()
if pid == 0:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    here = threading.get_native_id()
    threads.revive(2)
    os._exit(0 if set(region()) == {here} and len(os.listdir("/proc/self/task")) == 1 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")


@needs_cores
@pytest.mark.sample(0)
def test_a_worker_that_loses_its_core_is_left_alone_for_a_while() -> None:
    _in_a_process("""
worker()
time.sleep(0.5)
while True:
    if len(set(region(0.1, 2.0))) == 2:  # the worker took a tenth of a second for what took its caller nothing
        break
    time.sleep(0.5)
for _ in range(20):
    assert set(region()) == {here}
limit = time.monotonic() + 30
while len(set(region(wait=2.0))) == 1:  # and then it is asked again
    assert time.monotonic() < limit
    time.sleep(0.05)
""")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "wasm32"])
def test_a_poll_takes_time(machine: str) -> None:
    """Polls that take no time end after a few microseconds: workers would sleep between the kernels of a call."""
    pause = r"call void @llvm\.(x86\.sse2\.pause\(|aarch64\.hint\(i32 1)\)|fence seq_cst"
    loops = re.findall(pause, threads.pool_text(machine, ""))
    assert len(loops) == 2  # of a worker without work, and of a caller that waits


def test_logical_cores_of_one_physical_core_are_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 6, 7}, raising=False)
    monkeypatch.setattr(threads, "_siblings", lambda core: [core & ~1, core | 1])
    assert threads._cores_in_order() == [0, 2, 6, 1, 3, 7]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5000}, raising=False)
    assert threads._cores_in_order() == []
