"""The search: first operators that can be computed in several ways, then kernels by how much time they take.

Of the choices for each those are measured that its target expects to be fast, the likeliest first. The winner is
measured again, and once more inside of the model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from mirlo.driver.request import CompileRequest, default_database
from mirlo.driver.tune.database import Database, TuningEntry
from mirlo.driver.tune.inside import time_inside
from mirlo.driver.tune.measure import Local, Measurer
from mirlo.driver.tune.ranking import least_expected, order_predicted, promising
from mirlo.driver.tune.regions import RegionTask, has_tunables, region_tasks
from mirlo.driver.tune.tasks import TuningTask, points_of, tasks_of
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.schedule.tuned import rejected_values
from mirlo.passes.targets import CompileOptions, TargetError
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import onnx

MAX_TIME_RATIO = 0.97
"""A choice is kept if it takes less than this part of the time, in both measurements."""
INSIDE = 0.99
"""And less than this part inside of the model."""
BATCH = 8
"""Choices that are measured together."""
OPERATORS = 0.3
"""Part of the time for choices among ways to compute operators."""
REGIONS = 0.5
"""Part of the time for parts of regions, where the other operators' target has choices, too."""
CHECKING = 0.15
"""Part of the time that is kept for measuring inside of the model."""

ReportProgress = Callable[[str], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Tuned:
    """The result of tuning one kernel, or one operator."""

    function: str
    calls: int
    microseconds: float
    ratio: float
    values: dict[str, int]
    trials: int
    known: bool = False
    """It was measured before."""
    skipped: int = 0
    """Choices that were not tried as they are expected to take more than `PROMISING` of the time."""
    foreseen: float | None = None
    """How well the target foresaw the order of the choices that were measured: 1 is perfectly, 0 not at all."""
    operator: bool = False
    region: bool = False
    """It is a part of a region of a code generator."""


@dataclass
class TuningReport:
    """The result of tuning a model."""

    kernels: int
    results: list[Tuned] = field(default_factory=list)
    left: int = 0
    """Kernels for which there was no time."""
    seconds: float = 0.0
    inside: float | None = None
    """The time of all kernels with what was found now to that without, inside of the model; None where not measured."""
    forecast: float | None = None
    """The part of the kernels' time that the target expected to remain, before the search; None where it cannot say."""

    @property
    def before(self) -> float:
        """Return the microseconds of a run that the tuned kernels took before tuning."""
        return sum(result.microseconds * result.calls for result in self.results if not result.operator)

    @property
    def after(self) -> float:
        return sum(result.microseconds * result.calls * result.ratio for result in self.results if not result.operator)

    @property
    def foreseen(self) -> float | None:
        """Return how well the order of candidates was predicted, on average over the kernels with several."""
        estimates = [result.foreseen for result in self.results if result.foreseen is not None]
        return sum(estimates) / len(estimates) if estimates else None


def tune(
    model: onnx.ModelProto,
    database: Database,
    *,
    target: str = "llvm",
    threads: int = 1,
    shapes: Mapping[str, Sequence[int | str] | None] | None = None,
    seconds: float = 60.0,
    measurer: Measurer | None = None,
    progress: ReportProgress = lambda text: None,
    kernels: Collection[str] = (),
) -> TuningReport:
    """Search for faster kernels within a time budget; results go into the database.

    Choices that were measured before, for this model or another, are not measured again, unless no rule allows them any
    more. A choice is kept only where it was faster in two separate measurements and, when kernels are timed on this
    machine, inside of the model too: a model is never slower for having been tuned. With `kernels`, only those of these
    names are searched, and no operators.
    """
    names = tuple(kernels)
    work = _Search(
        model, database, target, threads, shapes, measurer or Local(), progress, time.monotonic(), seconds, names
    )
    has_kernels = work.has_kernels()
    if names:
        work.run(operators=False, share=1.0)
        work.report.seconds = time.monotonic() - work.start
        return work.report
    work.run_regions(share=REGIONS if has_kernels else 1.0)
    if has_kernels:
        work.run(operators=True, share=OPERATORS)
        work.run(operators=False, share=1.0)
    work.report.seconds = time.monotonic() - work.start
    return work.report


def tuned_request(request: CompileRequest) -> CompileRequest:
    """Search for the time that a request gives; the request with what the usual database then holds."""
    assert request.tune_seconds is not None
    target = str(Targets.parse(request.target))
    database = Database(default_database())
    tune(
        request.model, database, target=target, threads=request.threads, shapes=request.shapes,
        seconds=request.tune_seconds, progress=lambda _: request.report("tune"),
    )  # fmt: skip
    return replace(request, tune=database)


@dataclass
class _Search:
    model: onnx.ModelProto
    database: Database
    target: str
    threads: int
    shapes: Mapping[str, Sequence[int | str] | None] | None
    timer: Measurer
    progress: ReportProgress
    start: float
    seconds: float
    names: tuple[str, ...] = ()
    """The kernels to search; empty for all."""
    report: TuningReport = field(default_factory=lambda: TuningReport(0))
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while threads that wait for measurements report, or keep what they found."""

    def __post_init__(self) -> None:
        report = self.progress

        def progress(text: str) -> None:
            with self._lock:
                report(text)

        self.progress = progress

    @property
    def host(self) -> str:
        """Return the target that makes the kernels, with its options."""
        return str(Targets.parse(self.target).host)

    def has_kernels(self) -> bool:
        """Return whether the target of the rest offers choices; it must, unless there are regions to tune."""
        targets = Targets.parse(self.target)
        try:
            points_of(targets, CompileOptions(targets.host_target.name, self.threads))
        except TargetError:
            if has_tunables(targets):
                return False
            raise
        return True

    def run_regions(self, share: float) -> None:
        """Search through the parts of regions for a share of the time, those that take longest first."""
        targets = Targets.parse(self.target)
        if not has_tunables(targets):
            return
        self.progress("finding parts of regions")
        waiting: list[tuple[float, RegionTask]] = []
        for task in region_tasks(self.model, targets, self.shapes):
            entry = self.database.entries.get(task.key)
            if entry is None:
                waiting.append((task.microseconds({}), task))
                continue
            known_times = entry.microseconds, entry.ratio, entry.values
            self.report.results.append(
                Tuned(task.part.name, task.calls, *known_times, trials=0, known=True, region=True)
            )
        self.report.kernels += len(waiting)
        waiting.sort(key=lambda one: -one[0] * one[1].calls)
        until = self.start + self.seconds * share
        for position, (own, task) in enumerate(waiting):
            if position and time.monotonic() > until:
                self.report.left += len(waiting) - position
                break
            result = search_region(task, own, until, self.progress)
            self._keep(task.key, result)
            self.report.results.append(result)

    def run(self, operators: bool, share: float) -> None:
        """Search through the operators of the model, or through its kernels, for a share of the whole time."""
        self.progress(f"finding {'operators' if operators else 'kernels'}")
        tasks, count = tasks_of(
            self.model, self.target, self.threads, self.shapes, database=self.database, operators=operators,
            is_known=lambda key: self._known(key) is not None, kernels=self.names,
        )  # fmt: skip
        if not operators:
            self.report.kernels += count
        checks = isinstance(self.timer, Local)
        until = self.start + self.seconds * share * (1 - CHECKING if checks else 1)
        tuned = self._searched(tasks, until, operators)
        winners = [(task, result) for task, result in tuned if result.values]
        if winners and checks:
            self.progress("measuring inside of the model")
            self._confirm(winners, operators)

    def _searched(self, tasks: Sequence[TuningTask], until: float, operators: bool) -> list[tuple[TuningTask, Tuned]]:
        unknown: list[TuningTask] = []
        for task in tasks:
            entry = self._known(task.key)
            if entry is not None:
                known_times = entry.microseconds, entry.ratio, entry.values
                self.report.results.append(
                    Tuned(task.function, task.calls, *known_times, trials=0, known=True, operator=operators)
                )
            else:
                unknown.append(task)
        workers = getattr(self.timer, "workers", 1)

        def timed(position: int, task: TuningTask) -> tuple[float, TuningTask]:
            self.progress(f"timing @{task.function}")
            return self.timer.ratios(task, (), self.host, self.threads).microseconds * task.calls, task

        waiting = in_flight(unknown, timed, workers, lambda position: not position or time.monotonic() <= until)
        waiting.sort(key=lambda entry: -entry[0])
        whole = sum(cost for cost, _ in waiting) or 1.0
        if any(task.expected for _, task in waiting):
            self.report.forecast = sum(cost * least_expected(task) for cost, task in waiting) / whole
            self.progress(
                f"{len(waiting)} {'operators' if operators else 'kernels'} take {whole / 1000:.2f} ms; the cost model "
                f"expects {self.report.forecast:.2f} of it with the best choices"
            )

        def searched(position: int, entry: tuple[float, TuningTask]) -> tuple[TuningTask, Tuned]:
            nonlocal whole
            cost, task = entry
            with self._lock:
                # Time in proportion to what a kernel costs, and what the ones before it did not need.
                left = until - time.monotonic()
                part = left * min(1.0, workers * max(cost / whole, 1.0 / (len(waiting) - position) / 2))
                whole -= cost
            own = cost / task.calls
            outcome = search(task, self.timer, self.host, self.threads, part, self.progress, own)
            result = replace(outcome, operator=operators)
            with self._lock:
                self._keep(task.key, result)
                self.report.results.append(result)
            return task, result

        tuned = in_flight(waiting, searched, workers, lambda _: time.monotonic() < until)
        self.report.left += len(unknown) - len(tuned)
        return tuned

    def _known(self, key: str) -> TuningEntry | None:
        """Return the earlier result of a kernel; None if its values are no longer allowed."""
        entry = self.database.entries.get(key)
        if entry is None:
            return None
        return None if rejected_values(entry.values, Targets.parse(self.target).host_target.name) else entry

    def _keep(self, key: str, result: Tuned) -> None:
        entry = TuningEntry(result.values, result.ratio, result.microseconds, result.function, result.trials)
        self.database.add(key, entry)

    def _confirm(self, winners: Sequence[tuple[TuningTask, Tuned]], operators: bool) -> None:
        """Drop choices that are no faster inside of the model: of single kernels, or of all operators at once."""
        inside = time_inside(
            self.model, self.database, [task.key for task, _ in winners], target=self.target, threads=self.threads,
            shapes=self.shapes, seconds=self.seconds * CHECKING,
        )  # fmt: skip
        stay: list[str] = []
        for task, result in winners:
            ratio = inside.whole if operators else inside.kernels.get(task.function, 1.0)
            kept = replace(result, ratio=result.ratio if operators else ratio)
            if ratio > (1.0 if operators else INSIDE):
                kept = replace(result, ratio=1.0, values={})
            stay += [task.function] if kept.values else []
            self.report.results[self.report.results.index(result)] = kept
            self._keep(task.key, kept)
        if stay:
            whole = inside.whole if operators else inside.with_only(set(stay))
            self.report.inside = whole * (self.report.inside or 1.0)


def in_flight(
    items: Sequence[Item], work: Callable[[int, Item], Result], workers: int, may_begin: Callable[[int], bool]
) -> list[Result]:
    """Return the results of work on items, in order: `workers` of them run at a time, while the next one may begin.

    If one fails, no other is begun, and its error is raised when those that have begun are done.
    """
    lock, rest, results = threading.Lock(), iter(enumerate(items)), dict[int, Result]()
    is_over = threading.Event()

    def run() -> None:
        while True:
            with lock:
                item = None if is_over.is_set() else next(rest, None)
                if item is None or not may_begin(item[0]):
                    is_over.set()
                    return
            try:
                results[item[0]] = work(*item)
            except BaseException:
                is_over.set()
                raise

    if workers == 1:
        run()
    else:
        with ThreadPoolExecutor(workers) as pool:
            for future in [pool.submit(run) for _ in range(workers)]:
                future.result()
    return [results[position] for position in sorted(results)]


def search(
    task: TuningTask,
    timer: Measurer,
    target: str,
    threads: int,
    seconds: float,
    progress: ReportProgress,
    base: float = 0.0,
) -> Tuned:
    """Search the best choices for one kernel, which takes `base` microseconds without any."""
    start = time.monotonic()
    order = promising(task)
    skipped = len(task.choices) - len(order)
    measured: dict[int, float] = {}
    trials = 0
    for at in range(0, len(order), BATCH):
        if at and time.monotonic() - start > seconds:
            break
        batch = order[at : at + BATCH]
        timing = timer.ratios(task, [task.choices[i] for i in batch], target, threads)
        base, trials = timing.microseconds, trials + len(batch)
        measured |= {i: ratio for i, ratio in zip(batch, timing.ratios, strict=True) if ratio is not None}
        least = min([1.0, *measured.values()])
        progress(f"@{task.function}: {trials} of {len(order)} tried, the best takes {least:.2f} of the time")
    best = min(((ratio, task.choices[i]) for i, ratio in measured.items()), key=lambda e: e[0], default=(1.0, {}))
    together = _combine_choices(task, measured)
    if together and time.monotonic() - start <= seconds:
        timing = timer.ratios(task, together, target, threads)
        trials += len(together)
        usable = [(ratio, values) for ratio, values in zip(timing.ratios, together, strict=True) if ratio is not None]
        best = min([best, *usable], key=lambda entry: entry[0])
    foreseen = order_predicted(task, measured)
    if best[0] < MAX_TIME_RATIO:
        again = timer.ratios(task, [best[1]], target, threads)
        ratio = again.ratios[0]
        if ratio is not None and ratio < MAX_TIME_RATIO:
            return Tuned(
                task.function,
                task.calls,
                again.microseconds,
                ratio,
                best[1],
                trials,
                foreseen=foreseen,
                skipped=skipped,
            )
    return Tuned(task.function, task.calls, base, 1.0, {}, trials, foreseen=foreseen, skipped=skipped)


def search_region(task: RegionTask, own: float, until: float, progress: ReportProgress) -> Tuned:
    """Try choices for a part of a region until a moment; keep the best if it is faster when both are measured again."""
    best: tuple[float, Mapping[str, int]] = (own, {})
    trials = 0
    for values in task.part.choices:
        if trials and time.monotonic() > until:
            break
        taken, trials = task.microseconds(values), trials + 1
        best = min(best, (taken, values), key=lambda entry: entry[0])
        progress(f"{task.part.name}: {trials} of {len(task.part.choices)} tried, the best takes {best[0] / own:.2f}")
    unchanged = Tuned(task.part.name, task.calls, own, 1.0, {}, trials, region=True)
    if not best[1]:
        return unchanged
    again = task.microseconds({}), task.microseconds(best[1])
    is_exact = again == (own, best[0])
    ratio = max(best[0] / own, again[1] / again[0])
    if ratio >= (1.0 if is_exact else MAX_TIME_RATIO):
        return unchanged
    return replace(unchanged, ratio=ratio, values=dict(best[1]))


def _combine_choices(task: TuningTask, measured: Mapping[int, float]) -> list[dict[str, int]]:
    """Return combinations of choices for different parameters that were each faster."""
    winners = sorted((i for i, ratio in measured.items() if ratio < 1.0), key=lambda i: measured[i])
    pairs = [(task.choices[i], task.choices[j]) for i, j in combinations(winners, 2)]
    return [{**first, **second} for first, second in pairs if not set(first) & set(second)][:BATCH]
