"""Several engines and one model: interleaved runs, medians, ratios; compile time and memory."""

from __future__ import annotations

import math
import re
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.tools.bench.options import OWN_TYPES, MeasurementOptions
from mirlo.tools.bench.processes import PRESSURE, SPINNER, EngineError, Neighbor, Process

if TYPE_CHECKING:
    from mirlo.tools.bench.kernels import RooflineTable
    from mirlo.tools.remote import BoardOptions

SLICE_SECONDS = 0.03
"""Approximate duration of consecutive runs of one engine before the next engine runs."""
NEIGHBOR_SECONDS, NEIGHBOR_FACTOR = 60.0, 20.0
"""A process beside the engines ends by itself after this many seconds, and this many for each second of measuring, as
slow models take longer than they are given."""
CALLS_BETWEEN_GAPS = 4
"""Calls of a turn, at most, where the gaps between them take longer than a turn otherwise does."""
MIRLO = "mirlo"


@dataclass
class EngineRow:
    """The measurements of one engine."""

    engine: str
    version: str
    compile_seconds: float
    """Compile time without any caches."""
    milliseconds: float
    """Median over the rounds."""
    ratio: float
    """Mirlo's time divided by this engine's: the median over the rounds, each of which measured both."""
    compile_peak: int
    """Bytes of memory while compiling, including the engine itself; 0 if the system does not report it."""
    run_peak: int
    error: float | None = None
    """Largest difference between an output and the reference's, relative to its largest value."""
    warm_seconds: float | None = None
    """Time to compile again in a new process, with the cache."""
    import_seconds: float | None = None
    """Time to import the engine with its compiler."""
    least_milliseconds: float | None = None
    """The shortest of all runs."""


@dataclass
class ModelRow:
    """One model with one number of threads and one gap."""

    model: str
    threads: int
    rounds: int
    weights: int
    arena: int
    engines: list[EngineRow]
    missing: dict[str, str]
    """Requested engines that could not be measured, with the reasons."""
    kernels: RooflineTable | None = None
    """The kernels and the machine's limits (see `kernels.kernel_rows`)."""
    gap: float = 0.0
    """Milliseconds between calls."""
    spinner: bool = False
    """Whether another process took the time of one core meanwhile."""
    pressure: bool = False
    """Whether another process streamed through the last-level cache and memory meanwhile."""
    cpu_time: bool = False
    """Whether times are CPU times."""
    precision: str = "f32"
    """The type of products: of all engines, or the fastest one of Mirlo beside an engine's own types."""
    regions: list[dict[str, object]] = field(default_factory=list)
    """The parts of the model and the code generators that compute them."""

    def engine(self, name: str) -> EngineRow | None:
        return next((row for row in self.engines if row.engine == name), None)


def measure(model: Path, settings: MeasurementOptions, threads: int, progress: Callable[[str], None]) -> list[ModelRow]:
    """Compile the model with each engine, and run the engines in turns; return a row for each gap."""
    with tempfile.TemporaryDirectory(prefix="mirlo-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        started, missing, warm, facts = _start(model, settings, threads, folder, stack, progress)
        title = f"{model_name(model)}, {_threads(threads)}"
        rows = []
        for gap in settings.gaps:
            progress(f"{title}: running in turns{f', {gap:g} ms between calls' if gap else ''}")
            with _neighbor(settings):
                times = _time_alternately(started, settings, gap)
            engines = _rows(started, times, folder, settings.board)
            engines[0].warm_seconds = warm
            count = len(next(iter(times.values())).medians)
            weights, arena = facts["weights"], facts["arena"]
            row = ModelRow(model_name(model), threads, count, weights, arena, engines, missing, None, gap)
            row.regions, row.precision = facts["regions"], settings.precision
            rows.append(replace(row, spinner=settings.spinner, pressure=settings.pressure, cpu_time=settings.cpu_time))
        if settings.kernels:
            progress(f"{title}: kernels")
            started[MIRLO].process.go_on()
            measured: RooflineTable = started[MIRLO].process.ask("kernels", threads=threads, rounds=5)
            if settings.code:
                progress(f"{title}: code of the kernels")
                measured["code"] = started[MIRLO].process.ask("code")["kernels"]
            rows[0].kernels = measured
        return rows


def _neighbor(settings: MeasurementOptions) -> Neighbor:
    """Return the processes that run beside the engines."""
    loads = [*([SPINNER] if settings.spinner else ()), *([PRESSURE] if settings.pressure else ())]
    return Neighbor(loads, NEIGHBOR_SECONDS + NEIGHBOR_FACTOR * settings.seconds)


def model_name(model: Path) -> str:
    """Return the file's name, without the digest that caches add."""
    return re.sub(r"-[0-9a-f]{12}$", "", model.stem)


class LoadedEngine(TypedDict):
    """The reply of an engine's process about a model that it compiled."""

    version: str
    seconds: float
    imported: float
    before: int
    peak: int


class MemoryFacts(TypedDict):
    """Bytes of weights and of the arena, and the regions of the compiled model."""

    weights: int
    arena: int
    regions: list[dict[str, object]]
    """Return the parts of a compiled model and their code generators, from its metadata."""


@dataclass
class _Started:
    process: Process
    loaded: LoadedEngine
    seconds: float
    """Time of a run when it was first measured."""


def _start(
    model: Path,
    settings: MeasurementOptions,
    threads: int,
    folder: Path,
    stack: ExitStack,
    progress: Callable[[str], None],
) -> tuple[dict[str, _Started], dict[str, str], float | None, MemoryFacts]:
    """Start the engines: compile the model and run it once."""
    started: dict[str, _Started] = {}
    missing: dict[str, str] = {}
    inputs, cache = folder / "inputs.npz", folder / "cache"
    sizes = {name: [dim if isinstance(dim, int) else settings.dims.get(dim, 1) for dim in shape]
             for name, shape in settings.shapes.items()}  # fmt: skip
    facts: MemoryFacts = {"weights": 0, "arena": 0, "regions": []}
    warm = None
    for name in (MIRLO, *settings.against):
        progress(f"{model_name(model)}, {_threads(threads)}: compiling with {name}")
        own = name == MIRLO
        try:
            process = stack.enter_context(Process(name, (settings.pythons or {}).get(name), threads))
            shapes: Mapping[str, list[int | str] | list[int]] = (
                {key: list(value) for key, value in settings.shapes.items()} if own else sizes
            )
            order: dict[str, object] = {"engine": name, "model": str(model), "threads": threads, "shapes": shapes}
            order |= {"target": settings.target} if own and settings.target is not None else {}
            order |= {"options": dict(settings.compile_options)} if own and settings.compile_options else {}
            order |= {"precision": None} if name == OWN_TYPES and settings.precision != "f32" else {}
            board = {"board": asdict(settings.board)} if settings.board is not None else {}
            loaded: LoadedEngine = process.ask("load", **order, **board, cache=None)
            if own:
                facts = process.ask("make_inputs", seed=settings.seed, path=str(inputs), dims=settings.dims)
                warm = _warm(order, cache)
            seconds = process.ask("bind", inputs=str(inputs), outputs=str(folder / f"{name}.npz"))["seconds"]
        except EngineError as error:
            if own:
                raise error.of_mirlo(model) from None
            missing[name] = str(error)
            continue
        process.pause()
        started[name] = _Started(process, loaded, seconds)
    return started, missing, warm, facts


def _warm(order: Mapping[str, object], cache: Path) -> float:
    """Return the compile time of a process that finds a filled cache."""
    seconds = 0.0
    for _ in range(2):
        with Process(MIRLO) as process:
            seconds = float(process.ask("load", **order, cache=str(cache))["seconds"])
    return seconds


@dataclass
class _Times:
    """Seconds of one engine."""

    medians: list[float] = field(default_factory=list)
    """Of each turn."""
    least: float = math.inf


def _time_alternately(started: Mapping[str, _Started], settings: MeasurementOptions, gap: float) -> dict[str, _Times]:
    """Return the times of each engine: for each round the median of the runs of its turn, and the shortest run."""
    pause = gap * 1e-3
    turn = max(SLICE_SECONDS, CALLS_BETWEEN_GAPS * pause)
    each = {name: max(one.seconds + pause, 1e-7) for name, one in started.items()}
    counts = {name: max(1, min(2000, int(turn / seconds))) for name, seconds in each.items()}
    round_seconds = sum(seconds * (counts[name] + 1) for name, seconds in each.items())
    rounds = max(settings.min_rounds, min(200, int(settings.seconds / max(round_seconds, 1e-6))))
    times = {name: _Times() for name in started}
    order = list(started)
    for _ in range(rounds):
        for name in order:
            process = started[name].process
            process.go_on()
            seconds = process.ask("run", count=counts[name], gap=pause, cpu_time=settings.cpu_time)["seconds"]
            times[name].medians.append(statistics.median(seconds))
            times[name].least = min(times[name].least, *seconds)
            process.pause()
        # The order rotates, so that the effects of one engine on the caches meet all others alike.
        order.append(order.pop(0))
    return times


def _rows(
    started: Mapping[str, _Started], times: Mapping[str, _Times], folder: Path, board: BoardOptions | None
) -> list[EngineRow]:
    others = [name for name in started if name != MIRLO]
    reference = dict(np.load(folder / f"{others[0]}.npz")) if others else None
    rows = []
    for name, one in started.items():
        one.process.go_on()
        memory = one.process.ask("memory")
        one.process.pause()
        ratios = [ours / theirs for ours, theirs in zip(times[MIRLO].medians, times[name].medians, strict=True)]
        compared = reference is not None and name != others[0]
        rows.append(
            EngineRow(
                engine=name,
                version=one.loaded["version"],
                compile_seconds=one.loaded["seconds"],
                import_seconds=one.loaded["imported"],
                milliseconds=statistics.median(times[name].medians) * 1e3,
                least_milliseconds=times[name].least * 1e3,
                ratio=statistics.median(ratios),
                compile_peak=one.loaded["peak"],
                run_peak=memory["peak"] if board is None else 0,
                error=_difference(dict(np.load(folder / f"{name}.npz")), reference) if compared and reference else None,
            )
        )
    return rows


def _difference(actual: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> float:
    """Return the largest difference over the outputs that both have."""
    worst = 0.0
    for name, expected in reference.items():
        if name not in actual or not expected.size:
            continue
        largest = float(np.abs(expected.astype(np.float64)).max()) or 1.0
        worst = max(worst, float(np.abs(actual[name].astype(np.float64) - expected).max()) / largest)
    return worst


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
