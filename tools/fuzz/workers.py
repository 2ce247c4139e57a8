"""Many small jobs in processes that may crash: a crash is attributed to the job that caused it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from mirlo.runtime import processes
from mirlo.runtime.records import dataclass
from mirlo.tools.fuzz.verdict import SeedVerdict

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

BATCH = 100
"""Jobs of one process, before a new one takes over: what leaks does not add up."""
WAITING = 10
"""How many times its processor time a job may take on a busy machine, or where it waits, before it is stopped."""


@dataclass(frozen=True)
class JobOutcome:
    """The outcome of a job."""

    seed: int
    result: SeedVerdict | None
    crash: str | None = None
    """How the process ended, where the job brought it down."""
    seconds: float = 0.0


def run_jobs(
    job: Callable[[int], SeedVerdict],
    seeds: Iterable[int],
    processes: int,
    timeout: float,
    memory: int | None = None,
    seconds: float | None = None,
) -> Generator[JobOutcome, None, None]:
    """Yield the outcome of each job in order of completion; `memory` limits the address space of a process.

    A job has `timeout` seconds of processor time, with those that it starts. After `seconds` no job is started, and
    running ones are stopped: there may be any number of seeds.
    """
    workers: list[_Worker] = []
    try:
        yield from _outcomes(workers, job, seeds, processes, timeout, memory, seconds)
    finally:
        for worker in workers:
            worker.give_up()


def _outcomes(
    workers: list[_Worker],
    job: Callable[[int], SeedVerdict],
    seeds: Iterable[int],
    processes: int,
    timeout: float,
    memory: int | None,
    seconds: float | None,
) -> Iterator[JobOutcome]:
    coming, returned = iter(seeds), list[int]()
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        is_over = end is not None and time.monotonic() >= end
        while not is_over and len(workers) < processes:
            batch = returned[:BATCH] or list(islice(coming, BATCH))
            if not batch:
                break
            del returned[: len(batch)]
            workers.append(_Worker(job, batch, timeout, memory))
        if is_over or not workers:
            return
        late = min([worker.deadline for worker in workers] + ([] if end is None else [end]))
        ready = wait([worker.pipe for worker in workers], max(0.0, late - time.monotonic()))
        for worker in list(workers):
            if worker.pipe in ready:
                outcome = worker.receive()
                if outcome is not None:
                    yield outcome
            elif (why := worker.why_late()) is not None:
                yield worker.stop(why)
            if worker.is_done:
                returned = worker.left + returned
                workers.remove(worker)


class _Worker:
    """A process, with those that its jobs start: no daemon, which could start none, and a group of its own."""

    def __init__(self, job: Callable[[int], SeedVerdict], seeds: list[int], timeout: float, memory: int | None) -> None:
        context = processes.process_context()
        self.left = seeds
        self.timeout = timeout
        self.pipe, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(job, list(seeds), sender, memory))
        self.process.start()
        sender.close()
        self.is_done = False
        self._start_clock()

    def _start_clock(self) -> None:
        """Note when a job starts, and the processor time that those before it took."""
        self.started = time.monotonic()
        self.deadline = self.started + self.timeout
        self.used_before = self._used() or 0.0

    def _used(self) -> float | None:
        return None if self.process.pid is None else processes.group_seconds(self.process.pid)

    def why_late(self) -> str | None:
        """Return why the job is stopped, or None and set the time at which to look again."""
        now = time.monotonic()
        if now < self.deadline:
            return None
        used = self._used()
        if used is None:
            return f"no result after {self.timeout:g} s"
        left, end = self.timeout - (used - self.used_before), self.started + WAITING * self.timeout
        if left <= 0:
            return f"no result after {self.timeout:g} s of processor time"
        if now >= end:
            return f"no result after {WAITING * self.timeout:g} s"
        self.deadline = min(now + max(left, 1.0), end)
        return None

    def receive(self) -> JobOutcome | None:
        try:
            result, seconds = self.pipe.recv()
        except EOFError:
            if self.left:
                return self.stop(None)
            self._finish()
            return None
        self._start_clock()
        return JobOutcome(self.left.pop(0), result, None, seconds)

    def stop(self, why: str | None) -> JobOutcome:
        """End the process, or reap one that has ended."""
        if why is not None:
            self._kill()
        self._finish()
        return JobOutcome(self.left.pop(0), None, why or _death(self.process.exitcode))

    def give_up(self) -> None:
        """End the process and those that it started, whatever they do."""
        self._kill()
        self._finish()

    def _kill(self) -> None:
        if self.process.pid is not None:
            processes.end_group(self.process.pid)
        self.process.kill()

    def _finish(self) -> None:
        self.process.join()
        self.pipe.close()
        self.is_done = True


def _work(job: Callable[[int], SeedVerdict], seeds: list[int], sender: Connection, memory: int | None) -> None:
    processes.lead_group()
    processes.silence(2)
    if memory is not None:
        processes.limit_memory(memory)
    for seed in seeds:
        start = time.perf_counter()
        result = job(seed)
        sender.send((result, time.perf_counter() - start))
    sender.close()


def _death(code: int | None) -> str:
    return f"killed by {processes.signal_name(-code)}" if code is not None and code < 0 else f"exit code {code}"
