"""The least time that the kernels of a model take, from the processor's counter, on a machine that may be busy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.runtime.inputs import bind

_APART = 0.3
"""Seconds between the moments that give the length of a tick."""
_known: list[float] = []


def least_seconds(executable: Any, arrays: Sequence[np.ndarray], runs: int) -> float:
    """Return the least time of runs after a first one, from before the first kernel to after the last."""
    stamps = _stamps(executable, arrays, runs + 1)[1:]
    return int(np.min(stamps[:, -1] - stamps[:, 0])) * seconds_per_tick(executable, arrays)


def seconds_per_tick(executable: Any, arrays: Sequence[np.ndarray]) -> float:
    """Measured once in a process, between two calls that nothing interrupted."""
    if not _known:
        first = _moment(executable, arrays)
        time.sleep(_APART)
        last = _moment(executable, arrays)
        _known.append((last[0] - first[0]) / (last[1] - first[1]))
    return _known[0]


def _moment(executable: Any, arrays: Sequence[np.ndarray]) -> tuple[float, int]:
    """Return a time and the counter's value for the shortest of many calls."""
    samples = []
    for _ in range(50):
        before = time.perf_counter()
        stamp = int(_stamps(executable, arrays, 1)[0, -1])
        after = time.perf_counter()
        samples.append((after - before, (before + after) / 2, stamp))
    return min(samples)[1:]


def _stamps(executable: Any, arrays: Sequence[np.ndarray], runs: int) -> np.ndarray:
    stamps = np.zeros((runs, len(executable.artifact.kernels) + 1), np.uint64)
    values = bind(executable.inputs, arrays, {})
    # Results are written to the same memory in each run: new memory may have no pages yet.
    results = executable._execute(values, None)
    for row in stamps:
        executable._execute(values, results, row)
    return stamps.astype(np.int64)
