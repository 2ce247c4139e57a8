"""How long models take to compile, with each engine: see `python -m benchmarks.compile --help`.

Each compilation has a process of its own and nothing that was kept of earlier ones; no model is run, which takes some
engines many seconds. The engines take turns, and a time is the median of the rounds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mirlo.tools.bench.engines import ENGINES
from mirlo.tools.bench.measure import MIRLO, model_name
from mirlo.tools.bench.processes import EngineError, Process
from mirlo.tools.bench.results import describe_machine, ratio_text

LIMIT = 0.5
"""What Mirlo's time by another compiler's is to be at most."""


@dataclass(frozen=True)
class Compilation:
    """What one engine took for one model, in seconds: medians."""

    engine: str
    version: str
    seconds: float
    """Without importing the engine."""
    imported: float
    again: float | None = None
    """Mirlo: in a new process, with what another one left in the cache."""
    peak: int = 0
    """Bytes of memory, at most."""


@dataclass(frozen=True)
class CompiledModel:
    """One model with all engines."""

    model: str
    compilations: list[Compilation]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why engines that were asked for are not there."""

    def of(self, engine: str) -> Compilation | None:
        return next((compilation for compilation in self.compilations if compilation.engine == engine), None)

    def ratio(self, engine: str) -> float | None:
        """Return Mirlo's time divided by that of another engine."""
        own, other = self.of(MIRLO), self.of(engine)
        return own.seconds / other.seconds if own is not None and other is not None else None


@dataclass(frozen=True)
class CompileTimes:
    """All models, and where and when they were compiled."""

    rows: list[CompiledModel]
    threads: int
    rounds: int
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    machine: str = field(default_factory=describe_machine)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> CompileTimes:
        """Return what `asdict` made of one."""
        rows = [
            CompiledModel(row["model"], [Compilation(**one) for one in row["compilations"]], row["missing"])
            for row in fields["rows"]
        ]
        return cls(rows, fields["threads"], fields["rounds"], fields["date"], fields["machine"])

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def others(self) -> list[str]:
        """Return the engines beside Mirlo."""
        engines = dict.fromkeys(one.engine for row in self.rows for one in row.compilations)
        return [name for name in engines if name != MIRLO]

    def is_within_limit(self) -> bool:
        """Return whether Mirlo compiles each model within its limit, relative to each engine that compiled it."""
        ratios = (row.ratio(name) for row in self.rows for name in self.others)
        return all(ratio <= LIMIT for ratio in ratios if ratio is not None)


def measure(
    model: Path, against: Sequence[str], pythons: Mapping[str, str], threads: int, rounds: int,
    tell: Callable[[str], None],
) -> CompiledModel:  # fmt: skip
    """Compile the model with Mirlo and with the others, in turns."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in (MIRLO, *against)}
    again: list[float] = []
    missing: dict[str, str] = {}
    order = {"model": str(model), "threads": threads, "shapes": {}}
    with tempfile.TemporaryDirectory(prefix="mirlo-compile-") as cache:
        for number in range(rounds):
            for name in answers:
                if name in missing:
                    continue
                tell(f"{model_name(model)}, round {number + 1} of {rounds}: {name}")
                try:
                    answers[name].append(_load(name, pythons.get(name), threads, {**order, "cache": None}))
                    if name == MIRLO:
                        kept = [_load(name, None, threads, {**order, "cache": cache})["seconds"] for _ in range(2)]
                        again.append(kept[1])
                except EngineError as error:
                    missing[name] = str(error)
    summaries = [_summary(name, replies) for name, replies in answers.items() if replies and name not in missing]
    if again and MIRLO not in missing:
        summaries[0] = Compilation(**{**asdict(summaries[0]), "again": statistics.median(again)})
    return CompiledModel(model_name(model), summaries, missing)


def _load(engine: str, python: str | None, threads: int, order: Mapping[str, Any]) -> dict[str, Any]:
    with Process(engine, python, threads) as process:
        return process.ask("load", engine=engine, **order)


def _summary(engine: str, answers: Sequence[Mapping[str, Any]]) -> Compilation:
    def median(key: str) -> float:
        return statistics.median(answer[key] for answer in answers)

    peak = max(answer["peak"] for answer in answers)
    return Compilation(engine, answers[0]["version"], median("seconds"), median("imported"), peak=peak)


def table(times: CompileTimes) -> list[tuple[str, ...]]:
    """Return a table of each engine's seconds, of the ratios to Mirlo's, and of both with the imports."""
    engines = [MIRLO, *times.others]
    titles = [ENGINES[name].title for name in engines]
    head = ("model", *(f"{title} s" for title in titles), *(f"by {title}" for title in titles[1:]))
    rows = [(*head, "Mirlo again s", *(f"{title} with import s" for title in titles))]
    for row in times.rows:
        compilations = [row.of(name) for name in engines]
        ratios = [row.ratio(name) for name in times.others]
        again = compilations[0].again if compilations[0] is not None else None
        rows.append(
            (
                row.model,
                *("-" if one is None else f"{one.seconds:.3g}" for one in compilations),
                *("-" if ratio is None else ratio_text(ratio) for ratio in ratios),
                "-" if again is None else f"{again:.2g}",
                *("-" if one is None else f"{one.imported + one.seconds:.3g}" for one in compilations),
            )
        )
    return rows


def markdown(times: CompileTimes) -> str:
    """Return the table for a page, and the parts that are missing from it."""
    versions = {one.engine: one.version for row in times.rows for one in row.compilations}
    named = ", ".join(f"{ENGINES[name].title} {version}" for name, version in versions.items())
    threads = "one thread" if times.threads == 1 else f"{times.threads} threads"
    head, *body = table(times)
    lines = [f"{times.machine}; {times.date}; {named}; {threads}, medians of {times.rounds}.", ""]
    lines += [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body)]
    reasons = [f"{row.model}: {reason}" for row in times.rows for reason in row.missing.values()]
    # What an engine says of its failure takes many lines: the first one tells.
    lines += [f"\nMissing: {reason.splitlines()[0]}" for reason in reasons]
    return "\n".join(lines) + "\n"
