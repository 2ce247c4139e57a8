"""Record the processor time of tests: `pytest --cpu-times=FILE`, which `python -m benchmarks.test_times FILE` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest


class CpuTimes:
    """Append a line to a file for each phase of a test: its name, the phase, and seconds of processor time.

    These are seconds of this process and of those that it started and waited for, however busy the machine is.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._measured(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._measured(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._measured(item, "teardown"))

    def _measured(self, item: pytest.Item, phase: str) -> Generator[None, object, object]:
        before = sum(os.times()[:4])
        try:
            return (yield)
        finally:
            self._file.write(json.dumps([item.nodeid, phase, round(sum(os.times()[:4]) - before, 4)]) + "\n")
