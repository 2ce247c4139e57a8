"""Random products and convolutions beside oneDNN: `python -m benchmarks.kernels.sweep [--count N] [--svg FILE] ...`.

Shapes are drawn from a seed, sizes evenly over their logarithms, so that most are no multiple of any tile. Both have
bias and ReLU fused, weights packed before, one thread. They take turns, and the times are the least of each: what else
the machine does only adds to them. A ratio of 2 says that Mirlo is twice as fast. oneDNN's convolutions work on the
layouts that they like best, Mirlo's on channels-last ones.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.contraction import Case, mirlo_executable
from benchmarks.kernels.onednn import onednn_runner, version
from benchmarks.kernels.ticks import least_seconds

LARGEST_FLOPS = 1 << 30
LEAST_SPEED = 0.7
"""No shape should be slower than this, by oneDNN's speed."""


@dataclass(frozen=True)
class Row:
    """One shape."""

    name: str
    kind: str
    flops: int
    microseconds: float
    onednn_microseconds: float
    ratio: float
    """How many times as fast as oneDNN."""


def random_cases(count: int, seed: int) -> list[Case]:
    """Return random products, and as many convolutions."""
    generator = random.Random(seed)
    return [_drawn(_product, generator) for _ in range(count)] + [_drawn(_conv, generator) for _ in range(count)]


def _drawn(draw: Any, generator: random.Random) -> Case:
    while True:
        case: Case = draw(generator)
        if case.flops <= LARGEST_FLOPS:
            return case


def _log(generator: random.Random, low: int, high: int) -> int:
    return round(math.exp(generator.uniform(math.log(low), math.log(high))))


def _product(generator: random.Random) -> Case:
    m, n, k = _log(generator, 1, 2048), _log(generator, 8, 4096), _log(generator, 8, 4096)
    return Case(f"matmul {m}x{n}x{k}", (m, k), (k, n))


def _conv(generator: random.Random) -> Case:
    window = generator.choice((1, 1, 3, 3, 3, 5, 7))
    stride = generator.choice((1, 1, 1, 2))
    size = max(window, _log(generator, 7, 112))
    kind = generator.choice(("plain",) * 6 + ("depthwise",) * 2 + ("grouped",) * 2)
    if kind == "plain":
        groups, channels, out = 1, _log(generator, 3, 512), _log(generator, 8, 512)
    elif kind == "depthwise":
        groups = channels = out = _log(generator, 8, 960)
    else:
        groups = generator.choice((2, 4, 8, 32))
        channels, out = groups * _log(generator, 4, 32), groups * _log(generator, 4, 32)
    name = f"{kind} {channels}x{size}x{size} -> {out}, {window}x{window} /{stride}" + (
        f", {groups} groups" if kind == "grouped" else ""
    )
    x, weight = (1, channels, size, size), (out, channels // groups, window, window)
    return Case(name, x, weight, stride, window // 2, groups)


def measure(case: Case, rounds: int, seconds: float) -> Row:
    """Time both in turns, after a comparison of their results."""
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape, dtype=np.float32) for shape in (case.x, case.weight))
    b = generator.standard_normal(case.weight[0] if case.is_conv else case.weight[1], dtype=np.float32)
    executable, operand, got = mirlo_executable(case, x, w, b)
    theirs, result = onednn_runner(case, x, w, b)
    np.testing.assert_allclose(got, result(), rtol=1e-3, atol=1e-3 * math.sqrt(case.flops / 2 / got.size))
    again = max(3, min(1000, int(seconds / max(theirs(2), 1e-7))))
    # Where a run takes long, the system interrupts more of them.
    rounds = rounds if again > 3 else 2 * rounds
    times = [(least_seconds(executable, [operand], again), theirs(again)) for _ in range(rounds)]
    own, other = (min(samples) * 1e6 for samples in zip(*times, strict=True))
    return Row(case.name, case.name.split()[0], case.flops, own, other, other / own)


def summary(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each kind: count, slowest, quantiles, geometric mean, how many are below the least."""
    yield ("kind", "shapes", "least", "5 %", "median", "geometric mean", f"below {LEAST_SPEED}")
    kinds = list(dict.fromkeys(row.kind for row in rows))
    for kind in [*kinds, "all"]:
        ratios = sorted(row.ratio for row in rows if kind in (row.kind, "all"))
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        low = sum(ratio < LEAST_SPEED for ratio in ratios)
        shown = (ratios[0], ratios[int(len(ratios) * 0.05)], statistics.median(ratios), mean)
        yield (kind, str(len(ratios)), *(f"{value:.2f}" for value in shown), str(low))


def markdown(rows: Sequence[Row], worst: int = 10) -> str:
    """Return the summary, and the slowest shapes."""
    head, *body = summary(rows)
    tables = [[head, *body]]
    slowest = sorted(rows, key=lambda row: row.ratio)[:worst]
    lines = [(r.name, f"{r.microseconds:.1f}", f"{r.onednn_microseconds:.1f}", f"{r.ratio:.2f}") for r in slowest]
    tables.append([("the slowest", "us", "oneDNN us", "ratio"), *lines])
    parts = []
    for table in tables:
        rule = tuple("---" for _ in table[0])
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in (table[0], rule, *table[1:])))
    return "\n\n".join(parts) + "\n"


def svg(rows: Sequence[Row], title: str) -> str:
    """Draw each shape by its work and its ratio."""
    from mirlo.tools.bench.plot import scatter

    points = [(float(row.flops), row.ratio, row.kind, f"{row.name}: {row.ratio:.2f}") for row in rows]
    return scatter(points, title, "floating-point operations", "times as fast as oneDNN", levels=(LEAST_SPEED, 1.0))


def main(argv: Sequence[str] | None = None) -> int:
    """Print; exit with 1 where a shape is slower than the least."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="products, and convolutions (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each shape (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.004, help="of one turn (default: 0.004)")
    parser.add_argument("--core", type=int, default=0, help="the core to stay on, where the system lets one choose")
    parser.add_argument("--only", help="shapes whose names contain this")
    parser.add_argument("--json", type=Path, help="file for all rows")
    parser.add_argument("--svg", type=Path, help="file for a plot")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    arguments = parser.parse_args(argv)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {arguments.core})
    rows = []
    for case in random_cases(arguments.count, arguments.seed):
        if arguments.only and arguments.only not in case.name:
            continue
        row = measure(case, arguments.rounds, arguments.seconds)
        rows.append(row)
        shown = f"{row.microseconds:9.1f} us {row.onednn_microseconds:9.1f} us {row.ratio:6.2f}"
        print(f"{row.name:44} {shown}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(f"\noneDNN {version()}, 1 thread\n")
    print(markdown(rows))
    if arguments.markdown:
        arguments.markdown.write_text(markdown(rows))
    if arguments.svg:
        arguments.svg.write_text(svg(rows, f"random shapes, Mirlo beside oneDNN {version()}, 1 thread"))
    return int(any(row.ratio < LEAST_SPEED for row in rows))


if __name__ == "__main__":
    sys.exit(main())
