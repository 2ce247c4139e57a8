"""The profile of a session: a file of events, in the form that ONNX Runtime and Chromium's tracing have."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TypeAlias

from mirlo.runtime.artifact import KernelInfo
from mirlo.runtime.files import write_regular
from mirlo.runtime.profile import TimedRun, tick_length

_MOST_EVENTS = 1_000_000
"""Events that a session keeps, as in ONNX Runtime; later ones are left out."""

Event: TypeAlias = "dict[str, object]"


class SessionProfile:
    """The times of a session's opening and of its runs."""

    def __init__(self, prefix: str, provider: str) -> None:
        self.path = f"{prefix}_{datetime.now():%Y-%m-%d_%H-%M-%S}_{os.getpid()}_{id(self):x}.json"
        """The file that `write` makes."""
        self.start_ns = time.perf_counter_ns()
        self._provider = provider
        self._events: list[Event] = []
        self._runs: list[tuple[int, TimedRun]] = []
        self._kernels = 0
        self._is_open = True

    def add_opening(self, seconds: float) -> None:
        """Add the time from the start until now as the time of opening the model."""
        self._events.append(self._event("Session", "session_initialization", time.perf_counter() - seconds, seconds))

    def add_run(self, run: TimedRun) -> None:
        """Add a call."""
        self._kernels += len(run.kernels) + 1
        if self._kernels <= _MOST_EVENTS:
            self._runs.append((threading.get_ident(), run))

    def write(self) -> str:
        """Write the file and return its name; "" if it is written already."""
        if not self._is_open:
            return ""
        self._is_open = False
        write_regular(self.path, "[\n" + ",\n".join(json.dumps(event) for event in self._all_events()) + "\n]\n")
        return self.path

    def _all_events(self) -> Iterator[Event]:
        yield from self._events
        rate = _seconds_per_tick([run for _, run in self._runs])
        for thread, run in self._runs:
            ticks = run.seconds_per_tick or rate
            stamps = [] if run.stamps is None else run.stamps.tolist()
            for i, kernel in enumerate(run.kernels):
                start, seconds = run.end - (stamps[-1] - stamps[i]) * ticks, (stamps[i + 1] - stamps[i]) * ticks
                yield self._event(
                    "Node", f"{kernel.symbol}_kernel_time", start, seconds, thread, self._about(i, kernel)
                )
            yield self._event("Session", "model_run", run.start, run.end - run.start, thread)

    def _about(self, index: int, kernel: KernelInfo) -> dict[str, str]:
        return {
            "op_name": kernel.kind,
            "provider": self._provider,
            "node_index": str(index),
            "nodes": kernel.source,
            "flops": str(kernel.flops),
            "bytes": str(kernel.bytes),
        }

    def _event(
        self, kind: str, name: str, start: float, seconds: float, thread: int = 0, about: dict[str, str] | None = None
    ) -> Event:
        return {
            "cat": kind,
            "pid": os.getpid(),
            "tid": thread or threading.get_ident(),
            "dur": round(seconds * 1e6),
            "ts": round(start * 1e6 - self.start_ns / 1e3),
            "ph": "X",
            "name": name,
            "args": about or {},
        }


def _seconds_per_tick(runs: list[TimedRun]) -> float:
    """Return the seconds of a tick of the CPU's counter, from the ends of the first and the last run with kernels.

    The kernels of a single run fill its time.
    """
    ends = [
        sample for run in runs if run.stamps is not None and run.seconds_per_tick is None
        for sample in ((run.start, int(run.stamps[0])), (run.end, int(run.stamps[-1])))
    ]  # fmt: skip
    if not ends:
        return 0.0
    return tick_length(ends[0 if len(ends) == 2 else 1], ends[-1])
