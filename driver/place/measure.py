"""Times of alternatives in one run: each after the other, round by round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mirlo.driver.loaded import CallableModel
from mirlo.runtime.executable import Executable
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    pass

ROUNDS = 9
MIN_ROUND_SECONDS = 0.02
"""What one alternative runs at least in one round."""
MAX_REPEATS = 100
GIVE_UP_RATIO = 4.0
"""What takes this many times longer than the fastest one is not timed again, if that takes time."""
CHEAP = 20_000.0
"""Microseconds that anything may take in every round."""
PAUSE = 0.005
"""After each turn: threads of a library may wait actively for a while, which the next one must not pay for."""
TOLERANCE = 0.02
"""How far results may be from those of the first one, of the largest value: what is fast and wrong is not taken."""


@dataclass(frozen=True)
class PlacementTiming:
    """The time of one alternative."""

    microseconds: float
    ratio: float
    """To the first one, the median of neighbouring rounds."""
    agrees: bool = True


def time_alternately(executables: Mapping[str, CallableModel]) -> dict[str, PlacementTiming]:
    """Time builds of the same model alternately; the first one is what others are compared with."""
    runs = list(executables.values())
    inputs = list(runs[0].random_inputs(0).values())
    results = [_results(run, inputs) for run in runs]
    agree = [_agrees(result, results[0]) for result in results]
    first = [min(_time(run, inputs, 1) for _ in range(2)) for run in runs]
    times: list[list[float]] = [[microseconds] for microseconds in first]
    quick = [i for i, microseconds in enumerate(first) if microseconds <= max(CHEAP, GIVE_UP_RATIO * min(first))]
    for number in range(ROUNDS):
        for i in quick if number % 2 == 0 else reversed(quick):
            times[i].append(_time(runs[i], inputs, _repeats(first[i])))
            time.sleep(PAUSE)
    for i in quick:
        del times[i][0]
    base = times[0]
    timings = {}
    for name, seconds, fits in zip(executables, times, agree, strict=True):
        ratios = [one / other for one, other in zip(seconds, base, strict=False)]
        timings[name] = PlacementTiming(statistics.median(seconds), statistics.median(ratios), fits)
    return timings


def _results(run: CallableModel, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    outputs = run(*inputs)
    return [np.array(array) for array in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _agrees(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    """Return whether floats are close; integers are not compared, as they may be indices of equal values."""
    for one, other in zip(results, wanted, strict=True):
        if one.shape != other.shape:
            return False
        if other.dtype.kind not in "fV":
            continue
        a, b = one.astype(np.float64), other.astype(np.float64)
        limit = TOLERANCE * max(1e-6, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
        if not np.allclose(a, b, rtol=TOLERANCE, atol=limit, equal_nan=True):
            return False
    return True


def _repeats(microseconds: float) -> int:
    return max(1, min(MAX_REPEATS, int(MIN_ROUND_SECONDS * 1e6 / max(microseconds, 1.0))))


def _time(run: CallableModel, inputs: Sequence[np.ndarray], repeats: int) -> float:
    """Return the microseconds of one call; on a device by its clock, without the copies that all alternatives make."""
    if isinstance(run, Executable):
        result = run.device_microseconds(*inputs, repeats=repeats)
        if result is not None:
            return result
    start = time.perf_counter()
    for _ in range(repeats):
        run(*inputs)
    return (time.perf_counter() - start) / repeats * 1e6
