"""What schedules choose, beside a search: `python -m benchmarks.kernels.choices [MODEL...] [--target T] [--json FILE]`.

Each kernel of the models that has choices is timed with its own schedule, and with all others that the target offers.
*Loss* is how much longer the own schedule takes than the fastest: 1.00 where none is faster. Kernels that models share
are timed once.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks import models
from mirlo.driver.tune.measure import time_choices
from mirlo.driver.tune.ranking import order_foreseen
from mirlo.driver.tune.search import BATCH
from mirlo.driver.tune.tasks import TuningTask, tasks_of

MIN_RATIO = 0.995
"""A choice that is not faster than this is no faster than the schedule's own: differences below are noise."""


def searched(task: TuningTask, target: str, threads: int) -> dict[str, Any]:
    """Time all choices of a kernel; measure the fastest again."""
    timing = time_choices(task, (), target, threads)
    measured: dict[int, float] = {}
    for first in range(0, len(task.choices), BATCH):
        ratios = time_choices(task, task.choices[first : first + BATCH], target, threads).ratios
        measured |= {first + i: ratio for i, ratio in enumerate(ratios) if ratio is not None}
    ratio, choice = 1.0, {}
    if measured:
        best = task.choices[min(measured, key=lambda i: measured[i])]
        again = time_choices(task, [best], target, threads).ratios[0]
        if again is not None and again < MIN_RATIO:
            ratio, choice = again, best
    return {
        "kernel": task.function, "calls": task.calls, "us": timing.microseconds, "loss": 1.0 / ratio, "choice": choice,
        "tried": len(measured), "foreseen": order_foreseen(task, measured),
        "trials": [
            [task.choices[i], each, task.expected[i] if task.expected else None] for i, each in measured.items()
        ],
    }  # fmt: skip


def kernels_of(names: Sequence[str], target: str, threads: int) -> Iterator[tuple[str, TuningTask]]:
    """Yield the kernels of models that have choices, each once, with the model's name."""
    seen: set[str] = set()
    for name in names:
        path = Path(name) if Path(name).exists() else models.path(name)
        tasks, _ = tasks_of(onnx.load(str(path)), target, threads)
        for task in tasks:
            if task.key not in seen:
                seen.add(task.key)
                yield path.stem, task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=models.names(), help="names of models, or ONNX files")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write all times to a file")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("| model | kernel | us | loss | fastest | tried | order foreseen |")
    print("| --- | --- | ---: | ---: | --- | ---: | ---: |")
    for model, task in kernels_of(arguments.models, arguments.target, arguments.threads):
        row = {"model": model, **searched(task, arguments.target, arguments.threads)}
        rows.append(row)
        choice = ", ".join(f"{name}={value}" for name, value in row["choice"].items()) or "its own"
        order = "" if row["foreseen"] is None else f"{row['foreseen']:.2f}"
        cells = model, f"`{row['kernel']}`", f"{row['us']:.1f}", f"{row['loss']:.2f}", choice, str(row["tried"]), order
        print(f"| {' | '.join(cells)} |", flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    losses = sorted(row["loss"] for row in rows)
    if not losses:
        return
    high = losses[min(len(losses) - 1, int(0.95 * len(losses)))]
    weight = sum(row["us"] * row["calls"] for row in rows)
    whole = sum(row["us"] * row["calls"] / row["loss"] for row in rows)
    print(
        f"\n{len(losses)} kernels: loss {statistics.median(losses):.3f} in the median, {high:.3f} at the 95th "
        f"percentile, {losses[-1]:.2f} at most; {weight / whole:.3f} of all time"
    )


if __name__ == "__main__":
    main()
