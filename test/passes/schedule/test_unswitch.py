"""`unswitch`: loops without tests of edges where no read is beyond one, in any order of loops."""

from __future__ import annotations

import numpy as np
import pytest
from random_primitives import apply_random_primitives

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError

N, C, K = 9, 5, 6
PLAIN = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"


@mirlo.prim_func
def window(x: T.Buffer[(N, C), T.f32], w: T.Buffer[(3, C, K), T.f32], y: T.Out[(N, K), T.f32]):
    for i, o, r, c in T.grid(N, K, 3, C):
        with T.block("sum"):
            vi, vo, vr, vc = T.axes("SSRR", i, o, r, c)
            with T.init():
                y[vi, vo] = 0.0
            y[vi, vo] += x.at(vi + vr - 1, vc, outside=2.0) * w[vr, vc, vo]


@mirlo.script
def model(x: R.Tensor[(N, C), R.f32], w: R.Tensor[(3, C, K), R.f32]):
    return R.call_tir(window, x, w)


def check(primitives: Schedule) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((N, C), (3, C, K)))
    found = mirlo.compile(model, pipeline=PLAIN, schedules={"window": primitives}, cache=False)(x, w)
    wide = np.pad(x, ((1, 1), (0, 0)), constant_values=2.0)
    np.testing.assert_array_equal(found, sum(wide[r : r + N] @ w[r] for r in range(3)))


def schedule_of() -> Schedule:
    return Schedule.of(window, TensorType.of((N, C), "f32"), TensorType.of((3, C, K), "f32"))


@pytest.mark.parametrize("at", range(1, 4))
def test_loops_are_emitted_twice(at: int) -> None:
    s = schedule_of()
    i, o, r, c = s.loops("sum")
    order = (i, r, c, o)
    s.reorder(*order)
    s.unswitch(order[at])
    check(s)


@pytest.mark.parametrize("seed", range(6))
def test_random_primitives_do_not_change_results(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = schedule_of()
    apply_random_primitives(s, rng, 12)
    for loop in rng.permutation(s.loops("sum"))[:2]:
        try:
            s.unswitch(str(loop))
        except ScheduleError as error:
            assert "unswitch: no read in" in str(error) or "there is no loop" in str(error), error
    try:
        check(s)
    except mirlo.MirloError as error:
        assert "accumulate: " in str(error), error


def test_reads_must_have_edges_that_the_loop_decides() -> None:
    s = schedule_of()
    with pytest.raises(ScheduleError, match="unswitch: no read in 'sum_i' may be beyond an edge that is the same"):
        s.unswitch("sum_i")


@pytest.mark.parametrize("columns", [4, 8, 13])
def test_whole_vectors_have_no_masks(columns: int) -> None:
    """The rest of a split is decided before the loop; where every iteration is inside, there is nothing to decide."""

    @mirlo.prim_func
    def twice(x: T.Buffer[(6, columns), T.f32], y: T.Out[(6, columns), T.f32]):
        for i, j in T.grid(6, columns):
            with T.block("twice"):
                vi, vj = T.axes("SS", i, j)
                y[vi, vj] = x[vi, vj] * 2.0

    @mirlo.script
    def program(x: R.Tensor[(6, columns), R.f32]):
        return R.call_tir(twice, x)

    s = Schedule.of(twice, TensorType.of((6, columns), "f32"))
    i, j = s.loops("twice")
    panel, lane = s.split(j, (None, 4))
    s.reorder(panel, i, lane)
    s.vectorize(lane)
    if columns % 4 == 0:
        with pytest.raises(ScheduleError, match="unswitch: no read in"):
            s.unswitch(i)
    else:
        s.unswitch(i)
    x = np.arange(6 * columns, dtype=np.float32).reshape(6, columns)
    found = mirlo.compile(program, pipeline=PLAIN, schedules={"twice": s}, cache=False)(x)
    np.testing.assert_array_equal(found, 2 * x)
