"""Measures one model beside ONNX Runtime, on the same inputs, run by run in turns; prints the numbers as JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .models import path

LOAD = """
import time
start = time.perf_counter()
import mirlo
mirlo.load({file!r})
print(time.perf_counter() - start)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--cache")
    arguments = parser.parse_args()
    print(json.dumps(measure(path(arguments.model, arguments.cache), arguments.threads, arguments.repeat)))


def measure(model: Path, threads: int, repeat: int) -> list[float]:
    """Seconds to compile and to load, MiB of weights, milliseconds of both, their ratio, the largest error."""
    import numpy as np

    import mirlo

    start = time.perf_counter()
    exe = mirlo.compile(model, threads=threads)
    compiling = time.perf_counter() - start
    loading = _loading(exe)
    session = _session(model, threads)
    inputs = exe.random_inputs(seed=0)
    ours = exe.run(inputs)
    theirs = dict(zip(ours, session.run(list(ours), inputs), strict=True))
    error = max(float(np.abs(ours[name] - theirs[name]).max() / np.abs(theirs[name]).max()) for name in ours)
    seconds = _in_turns([lambda: exe.run(inputs), lambda: session.run(None, inputs)], repeat)
    milliseconds = [1000 * statistics.median(times) for times in seconds]
    weights = exe.memory.weights_bytes / 2**20
    return [compiling, loading, weights, *milliseconds, milliseconds[0] / milliseconds[1], error]


def _in_turns(functions: list[Callable[[], Any]], repeat: int) -> list[list[float]]:
    """Times of each function; what else the machine does then slows all of them."""
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(repeat):
        for function, times in zip(functions, seconds, strict=True):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    return seconds


def _loading(exe: Any) -> float:
    """Seconds that a new process takes to import Mirlo and load the compiled model."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.mirlo")
        exe.save(file)
        code = LOAD.format(file=file)
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def _session(model: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
