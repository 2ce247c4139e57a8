"""Several engines and one model: interleaved runs, medians, ratios; compile time and memory."""

from __future__ import annotations

import re
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.runtime.errors import MirloError
from mirlo.tools.bench.processes import EngineError, Process

TURN_SECONDS = 0.03
"""Runs of one engine follow each other for about so long before it is another's turn."""
MIRLO = "mirlo"


@dataclass(frozen=True)
class Settings:
    """What is measured, and how long."""

    against: tuple[str, ...] = ()
    threads: tuple[int, ...] = (1,)
    seconds: float = 10.0
    """Of measuring, for each model and number of threads."""
    least_rounds: int = 7
    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the inputs' dims that stay open in the compiled model."""
    pythons: Mapping[str, str] = field(default_factory=dict)
    """The interpreter of an engine that is not installed in this one."""
    seed: int = 0
    kernels: bool = True


@dataclass
class EngineRow:
    """What was measured of one engine."""

    engine: str
    version: str
    compile_seconds: float
    """Without anything that was kept of earlier compilations."""
    milliseconds: float
    """Median over the turns."""
    ratio: float
    """Mirlo's time by this engine's: the median over the turns, each of which measured both."""
    compile_peak: int
    """Bytes of memory while compiling, with what the engine itself takes; 0 where the system does not tell."""
    run_peak: int
    error: float | None = None
    """Largest difference of an output from the reference's, by its largest value."""
    warm_seconds: float | None = None
    """To compile again in a new process, with the cache."""
    import_seconds: float | None = None
    """To import the engine, with all that it compiles with."""


@dataclass
class ModelRow:
    """One model with one number of threads."""

    model: str
    threads: int
    rounds: int
    weights: int
    arena: int
    engines: list[EngineRow]
    missing: dict[str, str]
    """Why engines that were asked for are not among them."""
    kernels: dict[str, Any] | None = None
    """The kernels and the machine's limits (see `kernels.kernel_rows`)."""

    def engine(self, name: str) -> EngineRow | None:
        return next((row for row in self.engines if row.engine == name), None)


def measure(model: Path, settings: Settings, threads: int, tell: Callable[[str], None]) -> ModelRow:
    """Compile the model with each engine, then let them run in turns."""
    with tempfile.TemporaryDirectory(prefix="mirlo-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        started, missing, warm, facts = _start(model, settings, threads, folder, stack, tell)
        tell(f"{model_name(model)}, {_threads(threads)}: running in turns")
        times = _in_turns(started, settings)
        rows = _rows(started, times, folder)
        rows[0].warm_seconds = warm
        kernels = None
        if settings.kernels:
            tell(f"{model_name(model)}, {_threads(threads)}: kernels")
            started[MIRLO].process.go_on()
            kernels = started[MIRLO].process.ask("kernels", threads=threads, rounds=5)
        count = len(next(iter(times.values())))
        return ModelRow(model_name(model), threads, count, facts["weights"], facts["arena"], rows, missing, kernels)


def model_name(model: Path) -> str:
    """The file's name, without the digest that caches give it."""
    return re.sub(r"-[0-9a-f]{12}$", "", model.stem)


@dataclass
class _Started:
    process: Process
    loaded: dict[str, Any]
    seconds: float
    """Of a run, when it was first measured."""


def _start(
    model: Path, settings: Settings, threads: int, folder: Path, stack: ExitStack, tell: Callable[[str], None]
) -> tuple[dict[str, _Started], dict[str, str], float | None, dict[str, Any]]:
    """The engines with the model compiled and run once."""
    started: dict[str, _Started] = {}
    missing: dict[str, str] = {}
    inputs, cache = folder / "inputs.npz", folder / "cache"
    sizes = {name: [dim if isinstance(dim, int) else settings.dims.get(dim, 1) for dim in shape]
             for name, shape in settings.shapes.items()}  # fmt: skip
    facts: dict[str, Any] = {}
    warm = None
    for name in (MIRLO, *settings.against):
        tell(f"{model_name(model)}, {_threads(threads)}: compiling with {name}")
        own = name == MIRLO
        try:
            process = stack.enter_context(Process(name, settings.pythons.get(name), threads))
            given: Mapping[str, Any] = {key: list(value) for key, value in settings.shapes.items()} if own else sizes
            order = {"engine": name, "model": str(model), "threads": threads, "shapes": given}
            loaded = dict(process.ask("load", **order, cache=None))
            if own:
                facts = dict(process.ask("make_inputs", seed=settings.seed, path=str(inputs), dims=settings.dims))
                warm = _warm(order, cache)
            seconds = process.ask("bind", inputs=str(inputs), outputs=str(folder / f"{name}.npz"))["seconds"]
        except EngineError as error:
            if own:
                raise MirloError(f"{model}: {error}") from None
            missing[name] = str(error)
            continue
        process.pause()
        started[name] = _Started(process, loaded, seconds)
    return started, missing, warm, facts


def _warm(order: Mapping[str, Any], cache: Path) -> float:
    """Seconds of a process that finds what another one kept."""
    seconds = 0.0
    for _ in range(2):
        with Process(MIRLO) as process:
            seconds = float(process.ask("load", **order, cache=str(cache))["seconds"])
    return seconds


def _in_turns(started: Mapping[str, _Started], settings: Settings) -> dict[str, list[float]]:
    """A time of each engine for each round: the median of the runs of its turn."""
    counts = {name: max(1, min(2000, int(TURN_SECONDS / max(one.seconds, 1e-7)))) for name, one in started.items()}
    round_seconds = sum(one.seconds * (counts[name] + 1) for name, one in started.items())
    rounds = max(settings.least_rounds, min(200, int(settings.seconds / max(round_seconds, 1e-6))))
    times: dict[str, list[float]] = {name: [] for name in started}
    order = list(started)
    for _ in range(rounds):
        for name in order:
            process = started[name].process
            process.go_on()
            times[name].append(statistics.median(process.ask("run", count=counts[name])["seconds"]))
            process.pause()
        # Who comes first changes: what one leaves in the caches of the machine meets the others alike.
        order.append(order.pop(0))
    return times


def _rows(started: Mapping[str, _Started], times: Mapping[str, list[float]], folder: Path) -> list[EngineRow]:
    others = [name for name in started if name != MIRLO]
    reference = dict(np.load(folder / f"{others[0]}.npz")) if others else None
    rows = []
    for name, one in started.items():
        one.process.go_on()
        memory = one.process.ask("memory")
        one.process.pause()
        ratios = [ours / theirs for ours, theirs in zip(times[MIRLO], times[name], strict=True)]
        compared = reference is not None and name != others[0]
        rows.append(
            EngineRow(
                engine=name,
                version=one.loaded["version"],
                compile_seconds=one.loaded["seconds"],
                import_seconds=one.loaded["imported"],
                milliseconds=statistics.median(times[name]) * 1e3,
                ratio=statistics.median(ratios),
                compile_peak=one.loaded["peak"],
                run_peak=memory["peak"],
                error=_difference(dict(np.load(folder / f"{name}.npz")), reference) if compared and reference else None,
            )
        )
    return rows


def _difference(found: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> float:
    """Over the outputs that both have."""
    worst = 0.0
    for name, expected in reference.items():
        if name not in found or not expected.size:
            continue
        largest = float(np.abs(expected.astype(np.float64)).max()) or 1.0
        worst = max(worst, float(np.abs(found[name].astype(np.float64) - expected).max()) / largest)
    return worst


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
