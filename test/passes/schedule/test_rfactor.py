"""`Schedule.rfactor` with other primitives: blocks that use the sums keep their results, wherever they move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError

ROWS, COLUMNS = 10, 24


@mirlo.prim_func
def centered(a: T.Buffer[(ROWS, COLUMNS), T.f32], c: T.Out[(ROWS, COLUMNS), T.f32]):
    total = T.alloc((ROWS,), T.f32)
    largest = T.alloc((ROWS,), T.f32)
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.0
            total[vi] += a[vi, vj]
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("largest"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                largest[vi] = 0.0
            largest[vi] += a[vi, vj] * total[vi]
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = a[vi, vj] * total[vi] + largest[vi]


@mirlo.script
def model(a: R.Tensor[(ROWS, COLUMNS), R.f32]):
    return R.call_tir(centered, a)


PIPELINE = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"
A = np.random.default_rng(0).integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
"""Integers: their sums are exact in any order."""


def run(primitives: Schedule | Callable[[Schedule], None]) -> None:
    found = mirlo.compile(model, pipeline=PIPELINE, schedules={"centered": primitives}, cache=False)(A)
    total = A.sum(1, keepdims=True)
    np.testing.assert_array_equal(found, A * total + (A * total).sum(1, keepdims=True))


def row_by_row(s: Schedule) -> None:
    """Compute all sums of a row, in lanes, before its elements."""
    row = s.loops("result")[0]
    for block in ("largest", "total"):
        s.compute_at(block, row)
    for block in ("total", "largest"):
        outer, lane = s.split(s.loops(block)[-1], (None, 8))
        s.rfactor(block, lane)
        s.vectorize(lane)
        assert s.loops(block)[0] == s.loops(f"{block}_rf")[0] == row


def test_rows_are_summed_in_lanes_before_they_are_used() -> None:
    run(row_by_row)


def test_partial_results_do_not_move() -> None:
    """Each iteration of the loop makes its own partial result: new loops over all of both would add all to each."""

    def primitives(s: Schedule) -> None:
        _, lane = s.split(s.loops("total")[-1], (None, 8))
        s.rfactor("total", lane)
        s.compute_at("largest", s.loops("result")[0])
        s.compute_at("total", s.loops("result")[0])
        s.compute_at("total_rf", s.loops("result")[0])

    with pytest.raises(mirlo.MirloError, match="'total_rf' makes partial results: move it before rfactor"):
        run(primitives)


def test_all_partial_results_have_an_initial_value() -> None:
    """Of 4 x 7 partial results of partial results 4 are past the end of 24 elements."""

    def primitives(s: Schedule) -> None:
        outer, inner = s.split(s.loops("largest")[-1], (None, 7))
        s.rfactor("largest", outer)
        s.rfactor("largest_rf", inner)

    run(primitives)


REFUSED: dict[str, Callable[[Schedule], object]] = {
    "'result' reads 'largest', made after 'total_i'": lambda s: s.reverse_compute_at("result", "total_i"),
    "'result_j' may compute an element of 'largest' in several iterations": lambda s: (
        s.compute_at("largest", "result_j"), s.decompose_reduction("largest", "result_j"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_would_change_the_result(message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        REFUSED[message](Schedule.of(centered, TensorType.of((ROWS, COLUMNS), "f32")))


def test_partial_results_inside_of_a_reduction_that_shares_its_nest() -> None:
    s = Schedule.of(centered, TensorType.of((ROWS, COLUMNS), "f32"))
    row = s.loops("result")[0]
    s.compute_at("largest", row)
    i, j = s.loops("largest")[1:]
    s.reorder(j, i)
    with pytest.raises(ScheduleError, match=f"'{i}' is in '{j}', a loop of the reduction 'largest', which shares its"):
        s.rfactor("largest", j)


@pytest.mark.sample(0)
def test_random_primitives_with_partial_results_never_change_the_result() -> None:
    rng = np.random.default_rng(1)
    applied = 0
    for _ in range(24):
        s = Schedule.of(centered, TensorType.of((ROWS, COLUMNS), "f32"))
        for _ in range(10):
            try:
                _random_primitive(s, rng)
            except ScheduleError:
                continue
        applied += sum(said.primitive == "rfactor" for said in s.trace)
        run(s)
    assert applied > 10


def _random_primitive(s: Schedule, rng: np.random.Generator) -> None:
    block = str(rng.choice(s.blocks()))
    loops = s.loops(block)
    loop, other = str(rng.choice(loops)), str(rng.choice(loops))
    anywhere = str(rng.choice([name for each in s.blocks() for name in s.loops(each)]))
    primitives: tuple[Callable[[], object], ...] = (
        lambda: s.split(loop, (None, int(rng.integers(2, 9)))),
        lambda: s.reorder(loop, other),
        lambda: s.vectorize(loops[-1]) if rng.random() < 0.3 else None,
        lambda: s.parallel(loop) if rng.random() < 0.3 else None,
        lambda: s.compute_at(block, anywhere),
        lambda: s.reverse_compute_at(block, anywhere),
        lambda: s.decompose_reduction(block, loop) if rng.random() < 0.3 else None,
        lambda: s.rfactor(block, loop),
        lambda: s.rfactor(block, loops[-1]),
    )
    primitives[int(rng.integers(len(primitives)))]()
