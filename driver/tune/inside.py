"""Comparison of tuned kernels inside of the model, where other kernels use the caches in between."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from mirlo.driver.build import build
from mirlo.driver.loaded import CallableModel, require_loaded
from mirlo.driver.request import CompileRequest
from mirlo.driver.tune.database import Database, TuningEntry
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    import onnx


ROUNDS = 9
REPEATS = 2


@dataclass(frozen=True)
class Inside:
    """Time with choices to time without, inside of a model."""

    whole: float
    """Of all kernels together."""
    kernels: dict[str, float]
    """By name, of those that both have."""
    shares: dict[str, float]
    """Of these, the part of the whole time that each takes without."""

    def with_only(self, names: Collection[str]) -> float:
        """Return the time of all kernels together if only these have their choices."""
        return 1.0 - sum(self.shares[name] * (1.0 - self.kernels[name]) for name in names if name in self.shares)


class Without(Database):
    """A database as it was before some entries were found."""

    def __init__(self, database: Database, keys: Sequence[str]) -> None:
        self.path = database.path
        self.entries: dict[str, TuningEntry] = {k: entry for k, entry in database.entries.items() if k not in set(keys)}


def time_inside(
    model: onnx.ModelProto, database: Database, keys: Sequence[str], *, target: str, threads: int,
    shapes: Mapping[str, Sequence[int | str] | None] | None, seconds: float,
) -> Inside:  # fmt: skip
    """Time the model with and without these entries alternately, at least three times each, even after the deadline."""

    def compiled(tuning: Database) -> CallableModel:
        result = build(CompileRequest(model, target, threads=threads, shapes=shapes, cache=False, tune=tuning))
        return require_loaded(result, "the model is measured")

    both = [compiled(Without(database, keys)), compiled(database)]
    inputs = both[0].random_inputs(0)
    deadline = time.monotonic() + seconds
    rounds: list[list[dict[str, float]]] = []
    while len(rounds) < 3 or (len(rounds) < ROUNDS and time.monotonic() < deadline):
        rounds.append([_times(executable, inputs) for executable in both])
    names = set(rounds[0][0]) & set(rounds[0][1])
    wholes = [sum(before.values()) for before, _ in rounds]
    return Inside(
        statistics.median(sum(after.values()) / sum(before.values()) for before, after in rounds),
        {name: statistics.median(after[name] / before[name] for before, after in rounds) for name in names},
        {
            name: statistics.median(before[name] / whole for (before, _), whole in zip(rounds, wholes, strict=True))
            for name in names
        },
    )


def _times(executable: CallableModel, inputs: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the microseconds of each kernel, summed over its calls."""
    times: dict[str, float] = defaultdict(float)
    for row in executable.profile(*inputs.values(), repeats=REPEATS):
        times[row.symbol] += max(row.microseconds, 1e-3)
    return dict(times)
