"""Choices of schedules and of a search: `python -m benchmarks.kernels.choices [MODEL...] [--target T] [--json FILE]`.

Each kernel of the models that has choices is timed with its own schedule, and with all others that the target offers.
*Loss* is how much longer the own schedule takes than the fastest: 1.00 where none is faster. Kernels that models share
are timed once.

The least of many noisy times is too small. So the fastest choices are timed again, and what is then the fastest once
more, alternating with the schedule's own, each time from code that is compiled and arrays that are allocated anew.
A run ends after `--seconds`; the next one with the same `--json` continues, and `--only screen` leaves these
comparisons, which need an idle machine, to a later run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks import models
from mirlo.driver.tune.measure import time_choices
from mirlo.driver.tune.ranking import order_predicted
from mirlo.driver.tune.search import BATCH
from mirlo.driver.tune.tasks import TuningTask, tasks_of

MIN_RATIO = 0.995
"""A choice that is not faster than this is no faster than the schedule's own: differences below are noise."""
COMPARED = 5
"""Choices, the fastest of the search, that are timed again."""

Row = dict[str, Any]


def screen(row: Row, task: TuningTask, target: str, threads: int) -> None:
    """Time all choices of a kernel."""
    timing = time_choices(task, (), target, threads)
    measured: dict[int, float] = {}
    for first in range(0, len(task.choices), BATCH):
        ratios = time_choices(task, task.choices[first : first + BATCH], target, threads).ratios
        measured |= {first + i: ratio for i, ratio in enumerate(ratios) if ratio is not None}
    row |= {
        "us": timing.microseconds, "tried": len(measured), "foreseen": order_predicted(task, measured),
        "trials": [
            [task.choices[i], each, task.expected[i] if task.expected else None] for i, each in measured.items()
        ],
    }  # fmt: skip


def compare(row: Row, task: TuningTask, target: str, threads: int) -> None:
    """Time the fastest choices of the search again, in turns; keep the fastest of them."""
    trials = sorted((ratio, i) for i, (_, ratio, _) in enumerate(row["trials"]) if ratio < 1.0)[:COMPARED]
    choices = [row["trials"][i][0] for _, i in trials]
    ratios = time_choices(task, choices, target, threads).ratios if choices else ()
    measured = [(ratio, i) for i, ratio in enumerate(ratios) if ratio is not None and ratio < MIN_RATIO]
    row["choice"] = choices[min(measured)[1]] if measured else {}


def confirm(row: Row, task: TuningTask, target: str, threads: int) -> None:
    """Time the fastest choice once more against the schedule's own: this is the loss."""
    timing = time_choices(task, [row["choice"]] if row["choice"] else [], target, threads)
    ratio = next(iter(timing.ratios), None)
    row["us"] = timing.microseconds
    if ratio is None or ratio >= MIN_RATIO:
        ratio, row["choice"] = 1.0, {}
    row["loss"] = 1.0 / ratio


STEPS: dict[str, tuple[str, Callable[[Row, TuningTask, str, int], None]]] = {
    "screen": ("trials", screen), "compare": ("choice", compare), "confirm": ("loss", confirm)
}  # fmt: skip
"""Steps by name: the entry of a kernel's row that is there when it is done, and the function."""


def kernels_of(names: Sequence[str], target: str, threads: int) -> Iterator[tuple[str, list[TuningTask]]]:
    """Yield models with their kernels that have choices, each kernel once."""
    seen: set[str] = set()
    for name in names:
        path = Path(name) if Path(name).exists() else models.path(name)
        tasks, _ = tasks_of(onnx.load(str(path)), target, threads)
        yield path.stem, [task for task in tasks if task.key not in seen]
        seen |= {task.key for task in tasks}


def print_row(row: Row) -> None:
    choice = ", ".join(f"{name}={value}" for name, value in row["choice"].items()) or "its own"
    order = "" if row["foreseen"] is None else f"{row['foreseen']:.2f}"
    cells = row["model"], f"`{row['kernel']}`", f"{row['us']:.1f}", f"{row['loss']:.2f}", choice, str(row["tried"])
    print(f"| {' | '.join((*cells, order))} |", flush=True)


def print_losses(rows: Sequence[Row]) -> None:
    """Print the distribution of the losses, and their share of the total time."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=models.names(), help="names of models, or ONNX files")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write all times to a file, and continue what is in it")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after these")
    parser.add_argument("--only", choices=["screen"], help="time all choices, and compare the fastest in a later run")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    file = Path(arguments.json) if arguments.json else None
    rows: dict[str, Row] = {}
    if file is not None and file.exists():
        rows = {row["key"]: row for row in json.loads(file.read_text(encoding="utf-8"))}
    print("| model | kernel | us | loss | fastest | tried | order foreseen |")
    print("| --- | --- | ---: | ---: | --- | ---: | ---: |")
    for model, tasks in kernels_of(arguments.models, arguments.target, arguments.threads):
        steps = [STEPS[arguments.only]] if arguments.only else list(STEPS.values())
        for task in tasks:
            begun = {"key": task.key, "model": model, "kernel": task.function, "calls": task.calls}
            rows.setdefault(task.key, begun)
        for entry, step in steps:
            for task in tasks:
                row = rows[task.key]
                if entry in row or time.monotonic() > until:
                    continue
                step(row, task, arguments.target, arguments.threads)
                if entry == "loss":
                    print_row(row)
                if file is not None:
                    file.write_text(json.dumps(list(rows.values()), indent=1), encoding="utf-8")
    print_losses([row for row in rows.values() if "loss" in row])
    left = sum("loss" not in row for row in rows.values())
    if left:
        print(f"{left} kernels are left")


if __name__ == "__main__":
    main()
