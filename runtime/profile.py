"""Profiles: the time of a model, one row per kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from mirlo.runtime.artifact import KernelInfo
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.external import DeviceStep
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class KernelRow:
    """The time of one kernel call, the median over the repeats."""

    symbol: str
    source: str
    kind: str
    microseconds: float
    share: float
    """Fraction of the time of all kernels, 0 to 1."""
    gflops: float
    """10^9 operations per second."""
    gbytes: float
    """10^9 bytes per second, of the lower bound of its traffic."""


@dataclass(frozen=True)
class KindRow:
    """The total of the kernels of one kind."""

    kind: str
    calls: int
    microseconds: float
    share: float


@dataclass(frozen=True)
class TimedRun:
    """The results of one call, and when its kernels ran."""

    results: dict[str, Any]
    kernels: tuple[KernelInfo, ...]
    stamps: np.ndarray | None
    """Ticks before each kernel and after the last one; None for a model without kernels."""
    start: float
    end: float
    """Seconds of `time.perf_counter` before and after the call."""
    seconds_per_tick: float | None = None
    """None for ticks of the CPU's counter, whose rate is measured: `tick_length`."""


class Profile:
    """The rows in call order; `str()` is a table, the slowest kernels first."""

    def __init__(
        self, rows: Sequence[KernelRow], repeats: int, device: Mapping[str, Sequence[DeviceStep]] | None = None
    ) -> None:
        self.rows = tuple(rows)
        self.repeats = repeats
        self.device = {name: tuple(steps) for name, steps in (device or {}).items()}
        """What devices report of the last run, by function: the parts of regions, by the devices' clocks."""

    def timeline(self) -> str:
        """Return when the parts of devices worked as an SVG, for loaders that report it."""
        from mirlo.runtime.timeline import timeline

        return timeline([step for steps in self.device.values() for step in steps])

    def __iter__(self) -> Iterator[KernelRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> KernelRow:
        return self.rows[index]

    @property
    def microseconds(self) -> float:
        """Return the time of all kernels."""
        return sum(row.microseconds for row in self.rows)

    def by_kind(self) -> tuple[KindRow, ...]:
        """Return one row per kind of kernel, the slowest first."""
        kinds = []
        for kind, group in groupby(sorted(self.rows, key=lambda row: row.kind), key=lambda row: row.kind):
            rows = list(group)
            total = sum(row.microseconds for row in rows)
            kinds.append(KindRow(kind, len(rows), total, sum(row.share for row in rows)))
        return tuple(sorted(kinds, key=lambda row: -row.microseconds))

    def table(self, limit: int = 30) -> str:
        """Format the slowest kernels, then the kinds, as text."""
        if not self.rows:
            return "no kernels: every output is an input or a constant"
        slowest = sorted(self.rows, key=lambda row: -row.microseconds)
        head = ("kernel", "kind", "us", "share", "GFLOP/s", "GB/s", "source")
        body = [
            (
                row.symbol,
                row.kind,
                f"{row.microseconds:.1f}",
                f"{row.share:.1%}",
                f"{row.gflops:.1f}" if row.gflops else "-",
                f"{row.gbytes:.1f}" if row.gbytes else "-",
                row.source if len(row.source) <= 60 else row.source[:57] + "...",
            )
            for row in slowest[:limit]
        ]
        lines = _columns([head, *body], numbers={2, 3, 4, 5})
        if len(slowest) > limit:
            rest = slowest[limit:]
            lines.append(f"and {len(rest)} more, {sum(row.share for row in rest):.1%}")
        kinds = [
            (row.kind, f"{row.calls} calls", f"{row.microseconds:.1f}", f"{row.share:.1%}") for row in self.by_kind()
        ]
        total = f"{len(self.rows)} kernel calls, {self.microseconds:.1f} us (median of {self.repeats} runs)"
        return "\n".join([*lines, "", *_columns(kinds, numbers={1, 2, 3}), total, *self._device_lines(limit)])

    def _device_lines(self, limit: int) -> Iterator[str]:
        for name, steps in self.device.items():
            if not steps:
                continue
            total = sum(step.amount for step in steps) or 1.0
            details = list(dict.fromkeys(key for step in steps for key in step.details))
            slowest = sorted(steps, key=lambda step: -step.amount)[:limit]
            head = ("step", steps[0].unit, "share", *details)
            body = [
                (
                    step.name,
                    f"{step.amount:.0f}",
                    f"{step.amount / total:.1%}",
                    *(f"{step.details[key]:.0f}" if key in step.details else "-" for key in details),
                )
                for step in slowest
            ]
            yield from ("", f"{name}: {len(steps)} steps, {total:.0f} {steps[0].unit}")
            yield from _columns([head, *body], numbers=set(range(1, len(head))))

    def __str__(self) -> str:
        return self.table()


def make_profile(
    kernels: Sequence[KernelInfo],
    stamps: np.ndarray,
    seconds_per_tick: float,
    device: Mapping[str, Sequence[DeviceStep]] | None = None,
) -> Profile:
    """Return the profile from time stamps: a row per run, with one stamp before each kernel and one after the last.

    The stamps of kernels in a loop are those of its last iteration, and that of the loop is where this begins. The
    time of all iterations is divided as that of the last one.
    """
    in_order = np.maximum.accumulate(stamps.astype(np.int64), axis=1)  # what did not run has no stamp, or an old one
    once = np.median(np.diff(in_order, axis=1), axis=0) * seconds_per_tick
    seconds = _of_all_iterations(kernels, once)
    total = float(seconds.sum()) or 1.0
    rows = []
    for kernel, time, of_call in zip(kernels, seconds.tolist(), once.tolist(), strict=True):
        per_second = 1e-9 / of_call if of_call else 0.0
        rows.append(
            KernelRow(
                kernel.symbol,
                kernel.source,
                kernel.kind,
                time * 1e6,
                time / total,
                kernel.flops * per_second,
                kernel.bytes * per_second,
            )
        )
    return Profile(rows, len(stamps), device)


def _of_all_iterations(kernels: Sequence[KernelInfo], once: np.ndarray) -> np.ndarray:
    """Return the seconds of kernels: control flow gives its own, up to the last entry, to those inside of it."""
    seconds = once.astype(np.float64)
    for number in reversed(range(len(kernels))):
        inside = slice(number + 1, number + 1 + kernels[number].inside)
        last = float(seconds[inside].sum())
        if last > 0:
            seconds[inside] *= 1 + seconds[number] / last
            seconds[number] = 0
    return seconds


def tick_length(first: tuple[float, int], last: tuple[float, int]) -> float:
    """Return the seconds per tick of the CPU's counter, from two samples of (seconds, ticks)."""
    ticks = last[1] - first[1]
    if ticks <= 0:
        raise ArtifactError(
            "the model's code writes no time stamps, or the counter that it reads stands still on this CPU: "
            "it cannot be profiled"
        )
    return (last[0] - first[0]) / ticks


def _columns(rows: Sequence[Sequence[str]], numbers: set[int]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
