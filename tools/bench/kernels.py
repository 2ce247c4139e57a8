"""The kernels of a model and the machine's limits: multiply-adds and copies, measured interleaved."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.runtime.system import available_cores
from mirlo.runtime.threads import supported
from mirlo.tools.bench.peak import copy_loop, flops_per_cycle, peak_loop

if TYPE_CHECKING:
    from mirlo.runtime.artifact import Artifact, KernelInfo
    from mirlo.runtime.executable import Executable
    from mirlo.runtime.remote.model import RemoteModel

SIZES = tuple(1 << power for power in range(15, 29, 2))
"""Bytes that copies move, from sizes in the first-level cache to sizes beyond all caches."""
_MIN_COPY_BYTES = 1 << 24
"""Least bytes that a measured copy moves, by repetition: some 0.2 ms, beside which waking a thread is little."""


@dataclass(frozen=True)
class RooflineLimits:
    """The limits of the machine with a number of threads."""

    gflops: float
    """10^9 f32 multiplications and additions per second."""
    gbytes: dict[int, float]
    """10^9 bytes per second read and written by copies, by their size in bytes."""

    def bandwidth(self, moved: int) -> float:
        """Return the bandwidth of copies of this size, interpolated linearly over the logarithms of measured sizes."""
        sizes = sorted(self.gbytes)
        if moved <= sizes[0]:
            return self.gbytes[sizes[0]]
        if moved >= sizes[-1]:
            return self.gbytes[sizes[-1]]
        at = bisect_left(sizes, moved)
        low, high = sizes[at - 1], sizes[at]
        part = float(np.log(moved / low) / np.log(high / low))
        return self.gbytes[low] * (1 - part) + self.gbytes[high] * part

    def seconds(self, flops: int, moved: int) -> float:
        """Return the lower bound of a kernel's time: all of its computation, or all of its traffic, at full speed."""
        return max(flops / self.gflops, moved / self.bandwidth(moved)) * 1e-9


class RooflineMeasurement:
    """The measurement of the limits, a few at a time."""

    def __init__(self, threads: int) -> None:
        self._peak = peak_loop(threads)
        self._copies = {size: copy_loop(size, max(1, _MIN_COPY_BYTES // size), threads) for size in SIZES}
        self._flops: list[float] = []
        self._bytes: dict[int, list[float]] = {size: [] for size in SIZES}

    def measure(self, sizes: Sequence[int] = SIZES) -> None:
        """Measure the multiply-adds, and copies of these sizes, once more."""
        self._flops.append(self._peak.flops / _seconds(self._peak.run))
        for size in sizes:
            self._bytes[size].append(size * max(1, _MIN_COPY_BYTES // size) / _seconds(self._copies[size]))

    def limits(self) -> RooflineLimits:
        """Return the fastest measurement of each: time that other processes took is no limit of the machine."""
        gbytes = {size: max(rates) * 1e-9 for size, rates in self._bytes.items()}
        return RooflineLimits(max(self._flops) * 1e-9, gbytes)


def _seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class RooflineRow(TypedDict):
    """A kernel of the table of `mirlo bench`."""

    kernel: str
    kind: str
    source: str
    flops: int
    bytes: int
    microseconds: float
    least: float
    """Microseconds that the limits of the machine allow; 0 where they are not known."""
    expected: float
    """Microseconds that the cost model expects; 0 where it has no estimate."""


class RooflineTable(TypedDict, total=False):
    """The kernels, and the limits of the machine."""

    kernels: list[RooflineRow]
    gflops: float
    """0 where the limits are not measured: on boards."""
    gbytes: dict[str, float]
    buffers: list[dict[str, int]]
    code: dict[str, dict[str, str]]
    """By kernel, its code in several forms, where it was asked for."""


def kernel_rows(executable: Executable, inputs: Mapping[str, np.ndarray], threads: int, rounds: int) -> RooflineTable:
    """Return the rows of `mirlo bench`'s table of kernels, and the limits, as JSON."""
    machine = RooflineMeasurement(min(threads, available_cores()) if supported() else 1)
    machine.measure()
    times: list[list[float]] = []
    arrays = [inputs[spec.name] for spec in executable.inputs]
    for turn in range(rounds):
        # The largest copies take long, so only some of the rounds measure them.
        machine.measure(SIZES if turn % 4 == 0 else SIZES[:-2])
        times.append([row.microseconds for row in executable.profile(*arrays, repeats=3)])
    limits = machine.limits()
    rows: list[RooflineRow] = []
    for index, info in enumerate(executable.artifact.kernels):
        least = limits.seconds(info.flops, info.bytes) * 1e6
        # All cores share the cycles, and all of them make the peak.
        expected = info.cycles * flops_per_cycle() / limits.gflops * 1e-3
        rows.append(_row(info, [timing[index] for timing in times], least, expected))
    return {
        "kernels": rows, "gflops": limits.gflops, "gbytes": {str(s): v for s, v in limits.gbytes.items()},
        "buffers": _buffers(executable.artifact),
    }  # fmt: skip


def board_rows(model: RemoteModel, inputs: Mapping[str, np.ndarray], rounds: int) -> RooflineTable:
    """Return the rows of a model on a board, whose limits are not measured."""
    arrays = [inputs[spec.name] for spec in model.inputs]
    times = [[row.microseconds for row in model.profile(*arrays, repeats=3)] for _ in range(rounds)]
    kernels = enumerate(model.artifact.kernels)
    rows = [_row(info, [timing[index] for timing in times], 0.0, 0.0) for index, info in kernels]
    return {"kernels": rows, "gflops": 0.0, "gbytes": {}, "buffers": _buffers(model.artifact)}


def _row(info: KernelInfo, times: Sequence[float], least: float, expected: float) -> RooflineRow:
    return {
        "kernel": info.symbol, "kind": info.kind, "source": info.source, "flops": info.flops, "bytes": info.bytes,
        "microseconds": statistics.median(times), "least": least, "expected": expected,
    }  # fmt: skip


def _buffers(artifact: Artifact) -> list[dict[str, int]]:
    buffers: list[dict[str, int]] = artifact.metadata.get("memory", {}).get("buffers", [])
    return buffers
