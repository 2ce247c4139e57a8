"""Executables that take turns, and a process for each row of a table."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PAUSE = 0.05
"""Seconds before each run, in which the threads of the one before fall asleep."""


@dataclass(frozen=True)
class Turns:
    """What was timed side by side: the seconds of each turn, for each of them."""

    seconds: list[list[float]]

    @property
    def milliseconds(self) -> list[float]:
        return [1000 * statistics.median(runs) for runs in self.seconds]

    def ratio(self, ours: int, theirs: int) -> float:
        """Return the median ratio over the rounds: other load on the machine affects both alike."""
        pairs = zip(self.seconds[ours], self.seconds[theirs], strict=True)
        return statistics.median(mine / other for mine, other in pairs)


def take_turns(functions: Sequence[Callable[[], Any]], repeat: int) -> Turns:
    """Time all functions in turns, forwards and backwards, so that none always runs after the same other one."""
    seconds: list[list[float]] = [[] for _ in functions]
    for number in range(repeat):
        order = range(len(functions)) if number % 2 == 0 else reversed(range(len(functions)))
        for i in order:
            time.sleep(PAUSE)
            start = time.perf_counter()
            functions[i]()
            seconds[i].append(time.perf_counter() - start)
    return Turns(seconds)


def onnxruntime_session(model: str | bytes, threads: int) -> Any:
    """Return a session on the CPU with this many threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def bound_runner(model: bytes, arrays: dict[str, np.ndarray]) -> tuple[Callable[[], float], np.ndarray]:
    """ONNX Runtime on one thread, into memory bound once: a call that returns its seconds, and the array it writes."""
    session = onnxruntime_session(model, threads=1)
    (out,) = session.run(None, arrays)
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output(session.get_outputs()[0].name, "cpu", 0, out.dtype, out.shape, out.ctypes.data)

    def run() -> float:
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        return time.perf_counter() - start

    run()
    return run, out


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference of two arrays, relative to the largest element that is expected."""
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def largest_error(outputs: dict[str, np.ndarray], session: Any, inputs: dict[str, np.ndarray]) -> float:
    """Return the largest error of results relative to a session's, by the largest value of each."""
    expected = dict(zip(outputs, session.run(list(outputs), inputs), strict=True))
    return max(relative_error(outputs[name], expected[name]) for name in outputs)


def model_arguments(prog: str, about: str | None, models: Sequence[str], repeat: int) -> argparse.ArgumentParser:
    """Return the flags that tables of models by threads have in common."""
    from .models import all_names

    parser = argparse.ArgumentParser(prog=prog, description=about)
    known = f"some of {', '.join(all_names())} (default: {', '.join(models)})"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=known)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="threads of all (default: 1 2)")
    parser.add_argument("--repeat", type=int, default=repeat, help=f"runs of each (default: {repeat})")
    parser.add_argument("--cache", help="folder of the models (default: ~/.cache/mirlo/models)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser


def row_elsewhere(module: str, words: Sequence[Any]) -> list[Any]:
    """Return the row that `python -m MODULE WORDS --here` prints as JSON, measured in another process."""
    done = subprocess.run([sys.executable, "-m", module, *map(str, words), "--here"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return list(json.loads(done.stdout.splitlines()[-1]))


def print_row(columns: Sequence[tuple[str, str]], row: Sequence[Any]) -> None:
    """Print cells as wide as the titles of their columns."""
    cells = (form.format(value).rjust(len(title)) for (title, form), value in zip(columns, row, strict=True))
    print("  ".join(cells), flush=True)
