"""What loops bound to threads may not do: each error says what is expected instead."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend import ScheduleError, TensorType

ROWS, COLUMNS = 8, 64


@mirlo.prim_func
def centered(a: T.Buffer[(ROWS, COLUMNS), T.f32], c: T.Out[(ROWS, COLUMNS), T.f32]):
    total = T.alloc((ROWS,), T.f32)
    halves = T.alloc((ROWS, COLUMNS), T.f32)
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("halves"):
            vi, vj = T.axes("SS", i, j)
            halves[vi, vj] = a[vi, vj] * 0.5
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.0
            total[vi] += halves[vi, vj] + a.at(vi - 1, vj, outside=0.0)
    for i, j in T.grid(ROWS, COLUMNS):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = halves[vi, COLUMNS - 1 - vj] - total[vi]


@mirlo.prim_func
def alternating(a: T.Buffer[(COLUMNS,), T.f32], c: T.Out[(1,), T.f32]):
    for i, j in T.grid(1, COLUMNS):
        with T.block("last"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                c[vi] = 0.0
            c[vi] = a[vj] - c[vi]


@mirlo.script
def model(a: R.Tensor[(ROWS, COLUMNS), R.f32]):
    return R.call_tir(centered, a)


def fresh() -> Schedule:
    return Schedule.of(centered, TensorType.of((ROWS, COLUMNS), "f32"))


def in_rows(s: Schedule, result: int = 32, total: int = 32, blocks: str = "total halves") -> None:
    """Compute a row in a block of threads; the results of each block are in memory that the words do not name."""
    row = s.loops("result")[0]
    for block in blocks.split():
        s.compute_at(block, row)
    for block, threads in (("halves", 32), ("total", total), ("result", result)):
        s.bind(s.split(s.loops(block)[-1], (None, threads))[1], "threadIdx.x")
    s.bind(row, "blockIdx.x")


def share(s: Schedule) -> None:
    """Let threads see each other's halves and sums."""
    s.set_scope("halves", "shared")
    s.set_scope("total", "local")


def test_threads_share_what_others_write() -> None:
    s = fresh()
    in_rows(s)
    share(s)
    a = np.random.default_rng(0).integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
    compiled = mirlo.compile(model, "nvvm{chip=sm_80}", schedules={"centered": s}, cache=False)
    from emulator.driver import emulated

    with emulated("sm_80", races=True):
        found = compiled(a)
    halves = a / 2
    total = halves.sum(1, keepdims=True)
    total[1:] += a.sum(1, keepdims=True)[:-1]
    np.testing.assert_array_equal(found, halves[:, ::-1] - total)


AT_ONCE: dict[str, Callable[[Schedule], object]] = {
    "'total_j' is a loop of the reduction 'total', whose iterations depend on one another": lambda s: (
        s.bind("total_j", "blockIdx.x")
    ),
    "bind: 'total' is decomposed; across threads, a reduction starts from its initial value once": lambda s: (
        s.decompose_reduction("total", "total_j"), s.bind("total_j", "threadIdx.x"),
    ),
    "decompose_reduction: 'total' is reduced across the threads of 'total_j'": lambda s: (
        s.bind("total_j", "threadIdx.x"), s.decompose_reduction("total", "total_j"),
    ),
    "cache_read: expected blocks in their order, found 'result' first": lambda s: (
        s.cache_read(["result", "total"], "halves")
    ),
    "cache_read: expected a block": lambda s: s.cache_read([], "halves"),
    "set_scope: 'c' is a parameter; set the scope of a copy of it": lambda s: s.set_scope("c", "local"),
}  # fmt: skip


@pytest.mark.parametrize("message", AT_ONCE)
def test_a_word_that_cannot_be_applied_says_why(message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        AT_ONCE[message](fresh())
    assert message in str(caught.value)


def test_results_that_cannot_be_combined_have_one_thread() -> None:
    s = Schedule.of(alternating, TensorType.of((COLUMNS,), "f32"))
    with pytest.raises(ScheduleError, match="bind: 'last' does not end with one operation on its former result"):
        s.bind("last_j", "threadIdx.x")


WHEN_EMITTED: dict[str, Callable[[Schedule], object]] = {
    "bind: 'result_j' and 'result_i' around it are both bound to 'threadIdx.x'": lambda s: (
        s.bind("result_i", "threadIdx.x"), s.bind("result_j", "threadIdx.x"),
    ),
    "bind: 'total' is in 'result_i', but not in 'result_j', which is bound to 'blockIdx.x'": lambda s: (
        s.compute_at("total", "result_i"), s.bind("result_j", "blockIdx.x"),
    ),
    "'total' is 'local' memory of the kernel of 'total', and 'result' uses it in another one": lambda s: (
        s.set_scope("total", "local"), s.bind("total_i", "blockIdx.x"), s.bind("result_i", "blockIdx.x"),
    ),
    "bind: 'total' is reduced across threads, all of which must take part: 'total_j_1' has 16 iterations": lambda s: (
        in_rows(s, total=16), share(s),
    ),
    "unswitch: 'total' in 'total_j_0' is reduced across threads, which wait for one another": lambda s: (
        s.bind(s.split("total_j", (None, 32))[1], "threadIdx.x"), s.unswitch("total_j_0"),
    ),
    "'total' adds up elements of 'total' that several iterations of 'result_j', which is bound": lambda s: (
        s.compute_at("total", "result_j"), s.bind("result_j", "threadIdx.x"), s.bind("result_i", "blockIdx.x"),
    ),
    "'result' uses elements of 'halves' that other threads write in 'halves': let them share it": lambda s: (
        in_rows(s), s.set_scope("total", "local"),
    ),
    "'result' uses elements of 'total' that other threads write in 'total': let them share it": lambda s: (
        in_rows(s), s.set_scope("halves", "shared"),
    ),
    "'total' uses what other threads write to 'halves' in 'halves', in the same iteration of 'result_i_1'": lambda s: (
        s.split("result_i", (None, 4)), s.compute_at("total", "result_i_1"), s.compute_at("halves", "result_i_1"),
        s.bind(s.loops("halves")[-1], "threadIdx.x"), s.bind("result_j", "threadIdx.x"), share(s),
        s.bind("result_i_1", "threadIdx.y"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", WHEN_EMITTED)
def test_a_schedule_that_cannot_be_emitted_says_why(message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        mirlo.compile(model, "spirv", schedules={"centered": lambda s: WHEN_EMITTED[message](s) and None}, cache=False)
    assert message in str(caught.value)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_cpus_have_no_such_threads(target: str) -> None:
    def words(s: Schedule) -> None:
        s.bind("total_j", "threadIdx.x")

    with pytest.raises(mirlo.MirloError, match="bound to 'threadIdx.x', which"):
        mirlo.compile(model, target, schedules={"centered": words}, cache=False)
