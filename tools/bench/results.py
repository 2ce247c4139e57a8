"""Measurements as tables of text, Markdown and JSON."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime.records import dataclass
from mirlo.runtime.regions import region_of_row, region_rows
from mirlo.runtime.system import available_cores
from mirlo.tools.bench.engines import ENGINES
from mirlo.tools.bench.kernels import RooflineLimits, RooflineRow
from mirlo.tools.bench.measure import MIRLO, EngineRow, ModelRow
from mirlo.tools.tables import columns

if TYPE_CHECKING:
    from mirlo.tools.bench.kernels import RooflineTable


@dataclass
class Results:
    """All rows, with the machine and the time of the measurement."""

    rows: list[ModelRow]
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    machine: str = field(default_factory=lambda: describe_machine())

    @property
    def engines(self) -> list[str]:
        """Return the measured engines, Mirlo first."""
        return list(dict.fromkeys(row.engine for model in self.rows for row in model.engines))

    def versions(self) -> dict[str, str]:
        return {row.engine: row.version for model in self.rows for row in model.engines}

    @property
    def is_spaced(self) -> bool:
        """Return whether there were gaps between calls, or another process ran beside the engines."""
        return any(row.gap or row.spinner or row.pressure for row in self.rows)

    def settings(self) -> list[tuple[int, float]]:
        """Return the numbers of threads and the gaps, in order."""
        return sorted({(row.threads, row.gap) for row in self.rows})

    def mean_ratio(self, engine: str, threads: int, gap: float = 0.0) -> float | None:
        """Return the geometric mean of Mirlo's time by the engine's, in f32, over the models that both ran."""
        alike = [row for row in self.rows if (row.threads, row.gap, row.precision) == (threads, gap, "f32")]
        rows = [row.engine(engine) for row in alike]
        ratios = [row.ratio for row in rows if row is not None]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None

    def as_json(self) -> dict[str, object]:
        others = [name for name in self.engines if name != MIRLO]
        return {
            "date": self.date,
            "machine": self.machine,
            "versions": self.versions(),
            "models": [asdict(row) for row in self.rows],
            "geometric_mean": {name: self._mean_ratios(name) for name in others},
        }

    def _mean_ratios(self, engine: str) -> dict[str, float | None]:
        """Return the means by the number of threads and, where there is one, the gap."""
        return {f"{t}, gap {gap:g}" if gap else str(t): self.mean_ratio(engine, t, gap) for t, gap in self.settings()}


def describe_machine() -> str:
    """Return the processor, its cores and the system."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    cores = available_cores()
    return f"{name}, {cores} core{'s' if cores > 1 else ''}, {platform.system()}"


def text_lines(results: Results, kernels: int = 12) -> Iterator[str]:
    """Yield the lines for a terminal."""
    yield f"{results.machine}; {results.date}; " + ", ".join(
        f"{ENGINES[name].title} {version}" for name, version in results.versions().items()
    )
    yield ""
    if any(row.spinner for row in results.rows):
        yield "while another process took the time of one core:"
    if any(row.pressure for row in results.rows):
        yield "while another process streamed through the last-level cache and memory:"
    if any(row.cpu_time for row in results.rows):
        yield "CPU times:"
    yield from columns(latency_table(results), numbers=set(range(1, 99)))
    yield ""
    yield from columns(cost_table(results), numbers={1, 2, 4, 5, 6, 7, 8})
    for row in results.rows:
        if row.regions:
            yield f"{row.model}, {row.threads} thread{'s' * (row.threads != 1)}:"
            yield from columns(list(_regions(row)), numbers={2, 3})
    for reason in dict.fromkeys(text for row in results.rows for text in row.missing.values()):
        yield f"missing: {reason}"
    for row in results.rows:
        if row.kernels is not None and kernels:
            yield ""
            yield from kernel_lines(row, kernels)


def _regions(row: ModelRow) -> Iterator[tuple[str, ...]]:
    yield from region_rows([region_of_row(region) for region in row.regions])


def markdown(results: Results) -> str:
    """Return the results as Markdown."""
    parts = [
        f"{results.machine}; {results.date}; "
        + ", ".join(f"{ENGINES[name].title} {version}" for name, version in results.versions().items())
        + "."
    ]
    for table in (latency_table(results), cost_table(results)):
        head, *body = table
        lines = [head, tuple("---" for _ in head), *body]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts) + "\n"


def latency_table(results: Results) -> list[tuple[str, ...]]:
    """Return milliseconds of each engine, and Mirlo's time by theirs; with gaps, the shortest runs as well."""
    engines, is_spaced = results.engines, results.is_spaced
    others = [name for name in engines if name != MIRLO]
    head: tuple[str, ...] = ("model", "threads", *(["gap ms"] if is_spaced else []))
    head += tuple(f"{ENGINES[name].title} ms{' (least)' if is_spaced else ''}" for name in engines)
    head += tuple(f"by {ENGINES[name].title}" for name in others) + ("error",)
    table = [head]
    for model in results.rows:
        cells = [_title(model), str(model.threads), *([f"{model.gap:g}"] if is_spaced else [])]
        cells += [_milliseconds(model.engine(name), is_spaced) for name in engines]
        cells += [ratio_text(row.ratio) if (row := model.engine(name)) is not None else "-" for name in others]
        own = model.engine(MIRLO)
        cells.append(f"{own.error:.1e}" if own is not None and own.error is not None else "-")
        table.append(tuple(cells))
    for threads, gap in results.settings():
        alike = [row for row in results.rows if (row.threads, row.gap, row.precision) == (threads, gap, "f32")]
        if len(alike) > 1 and others:
            means = [results.mean_ratio(name, threads, gap) for name in others]
            shown = ["-" if mean is None else ratio_text(mean) for mean in means]
            gaps = [f"{gap:g}"] if is_spaced else []
            is_mixed = any(row.precision != "f32" for row in results.rows)
            title = f"geometric mean{' in f32' if is_mixed else ''}"
            table.append((title, str(threads), *gaps, *[""] * len(engines), *shown, ""))
    return table


def _title(row: ModelRow) -> str:
    """Return the model, and the type where it is the fastest one of Mirlo beside an engine's own types."""
    return row.model if row.precision == "f32" else f"{row.model}, fastest ({row.precision})"


def cost_table(results: Results) -> list[tuple[str, ...]]:
    """Return the compile time in seconds, and the memory in megabytes, of each engine."""
    head = ("model", "threads", "weights MB", "engine", "import s", "compile s", "again s")
    table: list[tuple[str, ...]] = [(*head, "peak MB compiling", "peak MB running")]
    compiled = {(_title(row), row.threads): row for row in reversed(results.rows)}
    for model in reversed(compiled.values()):
        for row in model.engines:
            imported, again = (
                "-" if seconds is None else f"{seconds:.2f}" for seconds in (row.import_seconds, row.warm_seconds)
            )
            table.append(
                (
                    _title(model), str(model.threads), f"{model.weights / 1e6:.0f}", ENGINES[row.engine].title,
                    imported, f"{row.compile_seconds:.2f}", again,
                    _megabytes(row.compile_peak), _megabytes(row.run_peak),
                )
            )  # fmt: skip
    return table


KERNEL_HEAD = ("kernel", "kind", "us", "share", "GFLOP/s", "of peak", "GB/s", "of copy", "of limit", "of model")
"""The heads of what `kernel_cells` returns."""


def kernel_lines(row: ModelRow, count: int) -> Iterator[str]:
    """Yield the slowest kernels with the fractions of the machine's limits."""
    assert row.kernels is not None
    rows: Sequence[RooflineRow] = row.kernels["kernels"]
    total = sum(kernel["microseconds"] for kernel in rows) or 1.0
    least = sum(min(kernel["least"], kernel["microseconds"]) for kernel in rows)
    bandwidth = row.kernels["gbytes"]
    slowest = sorted(rows, key=lambda kernel: -kernel["microseconds"])
    limits = (
        f", {least / total:.0%} of the limit; limits: {row.kernels['gflops']:.0f} GFLOP/s, "
        f"{bandwidth[max(bandwidth, key=int)]:.1f} GB/s copied in memory"
        if bandwidth
        else ""
    )
    yield f"{row.model}, {row.threads} threads: {total / 1e3:.3f} ms in {len(rows)} kernels{limits}"
    table: list[tuple[str, ...]] = [(*KERNEL_HEAD, "source")]
    for kernel in slowest[:count]:
        table.append((*kernel_cells(kernel, row.kernels, total), _short(kernel["source"])))
    yield from columns(table, numbers={2, 3, 4, 5, 6, 7, 8, 9})
    if len(slowest) > count:
        rest = slowest[count:]
        share = sum(kernel["microseconds"] for kernel in rest) / total
        yield f"and {len(rest)} more, {share:.1%}"


def kernel_cells(kernel: RooflineRow, machine: RooflineTable, total: float) -> tuple[str, ...]:
    """Return name, kind, time, share, and the achieved fractions of the limits."""
    limits = RooflineLimits(machine["gflops"], {int(size): value for size, value in machine["gbytes"].items()})
    seconds = max(kernel["microseconds"], 1e-6) * 1e-6
    gflops, gbytes = kernel["flops"] / seconds * 1e-9, kernel["bytes"] / seconds * 1e-9
    return (
        kernel["kernel"], kernel["kind"], f"{kernel['microseconds']:.1f}", f"{kernel['microseconds'] / total:.1%}",
        f"{gflops:.1f}", f"{gflops / limits.gflops:.0%}" if limits.gflops else "-", f"{gbytes:.1f}",
        f"{gbytes / limits.bandwidth(kernel['bytes']):.0%}" if limits.gbytes else "-", *(
            f"{kernel[name] / kernel['microseconds']:.0%}" if kernel["microseconds"] and kernel[name] else "-"
            for name in ("least", "expected")
        ),
    )  # fmt: skip


def ratio_text(ratio: float) -> str:
    """Format a ratio with two decimals, or two significant digits if it is small."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def _milliseconds(row: EngineRow | None, with_least: bool) -> str:
    if row is None:
        return "-"
    least = f" ({row.least_milliseconds:.4g})" if with_least and row.least_milliseconds is not None else ""
    return f"{row.milliseconds:.4g}{least}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f}" if count else "-"


def _short(text: str, most: int = 44) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
