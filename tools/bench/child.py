"""The process of one engine: it compiles one model and runs it on request.

Requests and responses are lines of JSON, arrays are numpy files. Only the standard library and numpy are imported,
so that an engine may be installed in a virtual environment without Mirlo.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.runtime import processes
from mirlo.runtime.errors import MirloError

if TYPE_CHECKING:
    from mirlo.tools.bench.kernels import RooflineTable


def main() -> None:
    """Respond to requests until the input ends."""
    processes.end_with_parent()  # which may be killed while this process is stopped
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what engines print is not a response
    child = Child()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"ok": True, **getattr(child, order.pop("do"))(**order)}
        except Exception as error:
            if isinstance(error, MirloError):
                facts = {"error": str(error), "error_code": error.error_code, "remedy": error.remedy}
            else:
                facts = {"error": f"{type(error).__name__}: {error}"}
            answer = {"ok": False, **facts, "error": facts["error"][:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Child:
    """The requests that the process handles."""

    model: Any

    def load(
        self, engine: str, model: str, threads: int, shapes: Mapping[str, list[int]], cache: str | None, **own: Any
    ) -> dict[str, float | str]:
        start = time.perf_counter()
        module = importlib.import_module(f"mirlo.tools.bench.engines.{engine}")
        imported = time.perf_counter() - start
        before = resident()
        start = time.perf_counter()
        self.model = module.load(model, threads, shapes, cache, **own)
        seconds = time.perf_counter() - start
        report = {"version": self.model.version, "seconds": seconds, "imported": imported}
        return {**report, "before": before, "peak": peak()}

    def make_inputs(self, seed: int, path: str, dims: Mapping[str, int]) -> dict[str, object]:
        executable = self.model.executable
        np.savez(path, **executable.random_inputs(seed, dims))
        memory = executable.memory
        from mirlo.runtime.regions import described_regions

        regions = [region.to_json() for region in described_regions(executable.artifact)]
        return {"weights": memory.weights_bytes, "arena": memory.arena_bytes, "regions": regions}

    def bind(self, inputs: str, outputs: str) -> dict[str, float]:
        """Run once; write the results to a file, and return the resources that another run takes."""
        self.model.bind(dict(np.load(inputs)))
        self.model.run()
        np.savez(outputs, **self.model.outputs())
        reset_peak()
        return {"seconds": min(self.run(3)["seconds"])}

    def run(self, count: int, gap: float = 0.0, cpu_time: bool = False) -> dict[str, list[float]]:
        """Return the times of this many runs, after one with the caches in the state that other processes leave.

        Before each of them nothing happens for `gap` seconds. CPU time is that of all threads.
        """
        if hasattr(self.model, "seconds"):  # of a model on a board
            return {"seconds": self.model.seconds(count, gap, cpu_time)}
        seconds = []
        run, clock = self.model.run, time.process_time if cpu_time else time.perf_counter
        run()
        for _ in range(count):
            if gap:
                time.sleep(gap)
            start = clock()
            run()
            seconds.append(clock() - start)
        return {"seconds": seconds}

    def memory(self) -> dict[str, int]:
        return {"peak": peak(children=False), "now": resident()}

    def kernels(self, threads: int, rounds: int) -> RooflineTable:
        """Measure Mirlo's kernels and the limits of the machine, interleaved; of a board, the kernels alone."""
        from mirlo.tools.bench.kernels import board_rows, kernel_rows

        if hasattr(self.model, "seconds"):
            return board_rows(self.model.executable, self.model.inputs, rounds)
        return kernel_rows(self.model.executable, self.model.inputs, threads, rounds)

    def code(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the code of Mirlo's kernels."""
        return {"kernels": self.model.code()}


def resident() -> int:
    """Return the resident memory of this process in bytes; 0 if the system does not report it."""
    return _status("VmRSS", os.getpid())


def peak(children: bool = True) -> int:
    """Return the peak memory in bytes, and what child processes have beside pages of files, which they share."""
    own = _status("VmHWM", os.getpid())
    return own + sum(_status("RssAnon", pid) for pid in _children()) if children else own


def reset_peak() -> None:
    """Reset the peak memory, if the system supports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _status(key: str, pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:")), 0)


def _children() -> list[int]:
    result = []
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            result += [int(pid) for pid in path.read_text().split()]
        except OSError:
            continue
    return result


if __name__ == "__main__":
    main()
