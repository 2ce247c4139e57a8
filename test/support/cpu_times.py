"""Record the processor time of tests: `pytest --cpu-times=FILE`, which `python -m benchmarks.test_times FILE` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 1.0
"""Seconds, of which the times of other processes are multiples."""
PROCESSES = Path("/proc")


class CpuTimes:
    """Append a line to a file for each phase of a test: its name, the phase, and seconds of processor time.

    These are seconds of this process and of those that it started, however busy the machine is: where the system does
    not list processes that run, of those that have ended. What is no test's, as imports and the collection of tests,
    has the name of no test.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._recorded = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._record("", "collection", processor_time())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._measured(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._measured(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._measured(item, "teardown"))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._record("", "between tests", processor_time() - self._recorded)

    def _measured(self, item: pytest.Item, phase: str) -> Generator[None, object, object]:
        before = processor_time()
        try:
            return (yield)
        finally:
            self._record(item.nodeid, phase, processor_time() - before)

    def _record(self, name: str, phase: str, seconds: float) -> None:
        self._recorded += seconds
        self._file.write(json.dumps([name, phase, round(seconds, 4)]) + "\n")


def processor_time() -> float:
    """Return the seconds of processor time of this process and of all below it."""
    return sum(os.times()[:4]) + TICK * sum(_ticks(process) for process in _children(os.getpid()))


def _ticks(process: int) -> int:
    try:
        fields = (PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    return sum(map(int, fields[11:15])) + sum(map(_ticks, _children(process)))


def _children(process: int) -> Iterator[int]:
    try:
        threads = os.listdir(PROCESSES / str(process) / "task")
    except OSError:  # it has ended, or this system has no such folder
        return
    for thread in threads:
        try:
            yield from map(int, (PROCESSES / str(process) / "task" / thread / "children").read_text().split())
        except OSError:
            continue
