"""Schedule primitives beside built-in rules: `python -m benchmarks.kernels.primitives [NAME...] [--seconds S]`.

Each case of `memory_bound` is compiled by the rule that takes it, and by some schedules of primitives that suit the
rule: loops fused or not, several widths and unroll factors, partial sums of reductions in registers. The table shows
the best of them. Both take turns in one process, and the times are the least of each, from the processor's counter. A
ratio of 2 says that the primitives take twice as long. Compile times are the least CPU times of three compilations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import mirlo
from benchmarks.kernels.memory_bound import CASES, Case, make_arrays, make_model
from benchmarks.kernels.schedules import (
    compute_rows,
    element_loop,
    inline_into_last,
    kernel_of,
    reason_of,
    reduced_loops,
)
from benchmarks.kernels.ticks import least_seconds

LANES = (16, 8)
UNROLL = (4, 2, 1)
RUNS = 5
"""Runs of each in a turn."""
UserSchedule = Callable[[Any], None]


def elementwise(s: Any, fused: bool, lanes: int, unroll: int) -> None:
    """Compute all blocks in the loops of the last one, its elements in vectors."""
    block = inline_into_last(s)
    loops = s.contiguous_loops(block)
    _in_vectors(s, s.fuse(*loops) if fused and len(loops) > 1 else s.loops(block)[-1], lanes, unroll)
    s.parallel(s.loops(block)[0])


def window(s: Any, fused: bool, lanes: int, unroll: int) -> None:
    """Reduce in the lanes of the output, in registers."""
    first, *others = s.blocks()
    for block in others[:-1]:
        s.compute_inline(block)
    spatial = [loop for loop, kind in s.kinds(first).items() if kind == "spatial"]
    reduced = reduced_loops(s, first)
    outer, vectors, lane = s.split(spatial[-1], (None, unroll, lanes), tail="peel")
    s.reorder(*spatial[:-1], outer, *reduced, vectors, lane)
    s.unroll(vectors)
    s.vectorize(lane)
    s.accumulate(first, reduced[0])
    if others:
        s.reverse_compute_at(others[-1], outer)
        s.vectorize(s.loops(others[-1])[-1])


def rows(s: Any, fused: bool, lanes: int, unroll: int) -> None:
    """Compute a row at a time, reduced in vectors of partial results in registers."""
    blocks = s.blocks()
    row = s.loops(blocks[-1])[0]
    compute_rows(s, row, blocks)
    for block in blocks:
        is_reduced, inner = bool(reduced_loops(s, block)), element_loop(s, block)
        if s.extent(inner) < lanes:
            continue
        outer = _in_vectors(s, inner, lanes, unroll)
        if is_reduced:
            s.accumulate(block, outer)
    if fused:
        s.parallel(row)


def _in_vectors(s: Any, loop: str, lanes: int, unroll: int) -> str:
    """Compute a loop in vectors, several per iteration; return the loop around them."""
    outer, vectors, lane = s.split(loop, (None, unroll, lanes), tail="peel")
    s.unroll(vectors)
    s.vectorize(lane)
    return str(outer)


SCHEDULES: dict[str, Callable[[Any, bool, int, int], None]] = {
    "elementwise": elementwise,
    "window": window,
    "rows": rows,
}


def schedules(rule: str) -> Iterator[UserSchedule]:
    """Return the schedules that are tried in the place of a rule."""
    for fused in (True, False):
        for lanes in LANES:
            for unroll in UNROLL:
                yield partial(SCHEDULES[rule], fused=fused, lanes=lanes, unroll=unroll)


def compiled(path: Path, schedules_by_name: dict[str, UserSchedule] | None = None) -> Any:
    return mirlo.compile(path, schedules=schedules_by_name, cache=False, tune=False)


def compile_seconds(path: Path, schedules_by_name: dict[str, UserSchedule] | None = None) -> float:
    seconds = []
    for _ in range(3):
        start = time.process_time()
        compiled(path, schedules_by_name)
        seconds.append(time.process_time() - start)
    return min(seconds)


def best_schedule(path: Path, name: str, rule: str, arrays: list[np.ndarray], want: np.ndarray) -> UserSchedule | str:
    """Return the fastest schedule, or why none applies."""
    best, reason = (float("inf"), None), "no schedule"
    for arranged in schedules(rule):
        try:
            executable = compiled(path, {name: arranged})
        except mirlo.MirloError as error:
            reason = reason_of(error)
            continue
        np.testing.assert_allclose(executable(*arrays), want, rtol=1e-3, atol=1e-4)
        seconds = least_seconds(executable, arrays, RUNS)
        if seconds < best[0]:
            best = seconds, arranged
    return reason if best[1] is None else best[1]


def measure(case: Case, folder: Path, seconds: float) -> str:
    """Return the row of a case."""
    path = folder / "case.onnx"
    path.write_bytes(make_model(case).SerializeToString())
    arrays = make_arrays(case)
    kernel = kernel_of(path, "llvm", tuple(SCHEDULES))
    if kernel is None:
        return f"{case.name:42} {'-':12} several kernels, or another rule"
    name, rule = kernel
    ours = compiled(path)
    arranged = best_schedule(path, name, rule, arrays, ours(*arrays))
    if isinstance(arranged, str):
        return f"{case.name:42} {rule:12} not expressible: {arranged}"
    theirs = compiled(path, {name: arranged})
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 4:
        for i, executable in enumerate((ours, theirs)):
            times[i].append(least_seconds(executable, arrays, RUNS))
    least = [min(each) for each in times]
    taken = [compile_seconds(path), compile_seconds(path, {name: arranged})]
    options = arranged.keywords if isinstance(arranged, partial) else {}
    chosen = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"{case.name:42} {rule:12} {least[1] / least[0]:7.2f} {taken[1] / taken[0]:9.2f}  {chosen}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each case is measured")
    arguments = parser.parse_args()
    print(f"{'case':42} {'rule':12} {'time':>7} {'compile':>9}  schedule")
    with TemporaryDirectory() as folder:
        for case in CASES:
            if not arguments.names or any(name in case.name for name in arguments.names):
                print(measure(case, Path(folder), arguments.seconds), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
