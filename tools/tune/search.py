"""The search: kernels by how much time they take, choices by how likely they are; what wins is measured twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirlo.tools.tune.database import Database, Entry
from mirlo.tools.tune.measure import Local, Measurer
from mirlo.tools.tune.tasks import Task, tasks_of

WORTH = 0.97
"""A choice is kept if it takes less than this part of the time, in both measurements."""
BATCH = 4
"""Choices that are measured together."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Tuned:
    """What became of one kernel."""

    function: str
    calls: int
    microseconds: float
    ratio: float
    values: dict[str, int]
    trials: int
    known: bool = False
    """It was measured before."""


@dataclass
class Report:
    """What became of a model."""

    kernels: int
    results: list[Tuned] = field(default_factory=list)
    left: int = 0
    """Kernels for which there was no time."""
    seconds: float = 0.0

    @property
    def before(self) -> float:
        """Microseconds of a run that the tuned kernels took."""
        return sum(result.microseconds * result.calls for result in self.results)

    @property
    def after(self) -> float:
        return sum(result.microseconds * result.calls * result.ratio for result in self.results)


def tune(
    model: Any,
    database: Database,
    *,
    target: str = "llvm",
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    seconds: float = 60.0,
    measurer: Measurer | None = None,
    tell: Tell = lambda text: None,
) -> Report:
    """Search for faster kernels within a time budget; what is found goes into the database.

    Kernels whose choices were measured before, for this model or another, are not measured again. A choice is kept only
    where it was faster in two separate measurements: a model is never slower for having been tuned.
    """
    start = time.monotonic()
    timer = measurer or Local()
    tell("finding kernels")
    tasks, count = tasks_of(model, target, threads, shapes)
    report = Report(count)
    waiting = []
    for task in tasks:
        if task.key in database:
            entry = database.entries[task.key]
            report.results.append(
                Tuned(task.function, task.calls, entry.microseconds, entry.ratio, entry.values, 0, known=True)
            )
            continue
        tell(f"timing @{task.function}")
        waiting.append((timer.ratios(task, (), target, threads).microseconds * task.calls, task))
        if time.monotonic() - start > seconds:
            break
    waiting.sort(key=lambda entry: -entry[0])
    whole = sum(cost for cost, _ in waiting) or 1.0
    deadline = start + seconds
    for position, (cost, task) in enumerate(waiting):
        left = deadline - time.monotonic()
        if left <= 0:
            report.left = len(waiting) - position
            break
        # Time in proportion to what a kernel costs, and what the ones before it did not need.
        share = left * max(cost / whole, 1.0 / (len(waiting) - position) / 2)
        whole -= cost
        result = _search(task, timer, target, threads, share, tell)
        report.results.append(result)
        database.add(task.key, Entry(result.values, result.ratio, result.microseconds, task.function, result.trials))
    report.left += len(tasks) - len(report.results) - report.left
    report.seconds = time.monotonic() - start
    return report


def _search(task: Task, timer: Measurer, target: str, threads: int, seconds: float, tell: Tell) -> Tuned:
    """The best choice for one kernel."""
    start, trials, base = time.monotonic(), 0, 0.0
    best: tuple[float, dict[str, int]] = (1.0, {})
    for at in range(0, len(task.choices), BATCH):
        if at and time.monotonic() - start > seconds:
            break
        batch = list(task.choices[at : at + BATCH])
        timing = timer.ratios(task, batch, target, threads)
        base, trials = timing.microseconds, trials + len(batch)
        for ratio, values in zip(timing.ratios, batch, strict=True):
            if ratio is not None and ratio < best[0]:
                best = (ratio, values)
        tell(f"@{task.function}: {trials} of {len(task.choices)} tried, the best takes {best[0]:.2f} of the time")
    if best[0] >= WORTH:
        return Tuned(task.function, task.calls, base, 1.0, {}, trials)
    again = timer.ratios(task, [best[1]], target, threads)
    ratio = again.ratios[0]
    if ratio is None or ratio >= WORTH:
        return Tuned(task.function, task.calls, base, 1.0, {}, trials)
    return Tuned(task.function, task.calls, again.microseconds, ratio, best[1], trials)
