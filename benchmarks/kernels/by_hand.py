"""The products of *write a schedule* beside the built-in rule: `python -m benchmarks.kernels.by_hand [--size N]`.

The code of `docs/schedule-by-hand.md`, up to its register tile, runs as it stands but for the size of the product. Its
two schedules, of loops and of a register tile, and the rule take turns on one core; the table shows the least CPU time
of each, the median of the ratios of turns as speed beside the rule's, and whether results have equal bits.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import mirlo

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedule-by-hand.md"
SIZE = 96
"""The rows, columns and sums of the page's product."""
LAST = "by_tiles"
"""The function of the page that makes a register tile."""


def run_page(size: int) -> dict[str, Any]:
    """Run the code of the page up to the register tile, for a product of this size; return its names."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        code = re.sub(rf"\b{SIZE}\b", str(size), block)
        _run(code, names)
        if LAST in names:
            return names
    raise SystemExit(f"{PAGE.name} has no function '{LAST}'")


def _run(code: str, names: dict[str, Any]) -> None:
    """Run code from a file, where decorators find its text."""
    file = Path(f"page_{len(names)}.py").resolve()
    file.write_text(code, encoding="utf-8")
    exec(compile(code, str(file), "exec"), names)


def turns(functions: list[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """Return the CPU seconds of each function in turns, forwards and backwards."""
    seconds: list[list[float]] = [[] for _ in functions]
    for number in range(rounds):
        order = range(len(functions))
        for position in order if number % 2 else reversed(order):
            start = time.thread_time()
            functions[position]()
            seconds[position].append(time.thread_time() - start)
    return seconds


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.by_hand", description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", type=int, default=512, help="rows, columns and sums (default: 512)")
    parser.add_argument("--rounds", type=int, default=200, help="calls of each (default: 200)")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    folder = Path.cwd()
    with TemporaryDirectory() as here:
        os.chdir(here)
        try:
            names = run_page(arguments.size)
            options = {"threads": 1, "cache": False, "tune": False}
            schedules = {"rule": None, "loops": names["s"], "register tile": names[LAST]}
            executables = {
                name: mirlo.compile(names["model"], schedules={} if each is None else {"matmul": each}, **options)
                for name, each in schedules.items()
            }
        finally:
            os.chdir(folder)
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((arguments.size, arguments.size), np.float32) for _ in range(2))
    results = [np.asarray(each(a, b)) for each in executables.values()]
    seconds = turns([lambda each=each: each(a, b) for each in executables.values()], arguments.rounds)
    print(f"{'schedule':14} {'ms':>7} {'speed':>6}  bits")
    for name, result, own in zip(executables, results, seconds, strict=True):
        speed = statistics.median(rule / each for rule, each in zip(seconds[0], own, strict=True))
        equal = "equal" if np.array_equal(result, results[0]) else "differ"
        print(f"{name:14} {min(own) * 1e3:7.3f} {speed:6.3f}  {equal}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
