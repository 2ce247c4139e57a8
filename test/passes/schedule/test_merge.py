"""`merge`: loops as one, whose blocks read elements in registers; `share_memory`; reductions in parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError

N, C = 6, 37
PLAIN = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"
BLOCKS = ("highest", "power", "total", "divide")
COLUMNS = T.dims("COLUMNS")


@mirlo.prim_func
def softmax(x: T.Buffer[(N, COLUMNS), T.f32], y: T.Out[(N, COLUMNS), T.f32]):
    highest = T.alloc((N,), T.f32)
    power = T.alloc((N, COLUMNS), T.f32)
    total = T.alloc((N,), T.f32)
    for i, j in T.grid(N, COLUMNS):
        with T.block("highest"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                highest[vi] = T.f32("-inf")
            highest[vi] = T.max(highest[vi], x[vi, vj])
    for i, j in T.grid(N, COLUMNS):
        with T.block("power"):
            vi, vj = T.axes("SS", i, j)
            power[vi, vj] = T.exp(x[vi, vj] - highest[vi])
    for i, j in T.grid(N, COLUMNS):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.5
            total[vi] += power[vi, vj]
    for i, j in T.grid(N, COLUMNS):
        with T.block("divide"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = power[vi, vj] / total[vi]


@mirlo.prim_func
def flipped(x: T.Buffer[(N, C), T.f32], z: T.Out[(N, C), T.f32]):
    y = T.alloc((N, C), T.f32)
    for i, j in T.grid(N, C):
        with T.block("copy"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vi, vj] * 2.0
    for i, j in T.grid(N, C):
        with T.block("flip"):
            vi, vj = T.axes("SS", i, j)
            z[vi, vj] = y[N - 1 - vi, vj]


@mirlo.prim_func
def repeated(x: T.Buffer[(N, C), T.f32], z: T.Out[(N, C), T.f32]):
    y = T.alloc((N, C), T.f32)
    for i, j in T.grid(N, C):
        with T.block("copy"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vi, vj] * 2.0
    for i, j, k in T.grid(N, C, C):
        with T.block("add"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                z[vi, vj] = 0.0
            z[vi, vj] += y[vi, vj] * x[vi, vk]


@mirlo.script
def static(x: R.Tensor[(N, C), R.f32]):
    return R.call_tir(softmax, x)


@mirlo.script
def dynamic(x: R.Tensor[(N, "columns"), R.f32]):  # noqa: F821, UP037
    return R.call_tir(softmax, x)


def schedule_of(columns: int = C) -> Schedule:
    return Schedule.of(softmax, TensorType.of((N, columns), "f32"))


def by_row(s: Schedule) -> tuple[str, str, str]:
    """Compute row by row; return the loops over the elements of a row."""
    rows, columns = zip(*map(s.loops, BLOCKS), strict=True)
    s.merge(*rows)
    s.merge(columns[1], columns[2])
    return columns[0], columns[1], columns[3]


def in_vectors(s: Schedule, loop: str, reduction: str = "", **cut: list[int]) -> None:
    first, *others = s.partition(loop, **cut) if cut else [loop]
    outer, vectors, lanes = s.split(first, (None, 2, 8))
    s.unroll(vectors)
    s.vectorize(lanes)
    for part, width in zip(others, (8, 4, 2, 1), strict=False):
        inner = s.split(part, (None, width))[1] if width > 1 else ""
        if inner:
            s.vectorize(inner)
    if reduction:
        s.accumulate(reduction, outer)


def check(primitives: Callable[[Schedule], None], model: mirlo.ScriptFunction = static, columns: int = C) -> None:
    """Compile a softmax by these primitives, and compare results."""
    x = np.random.default_rng(0).standard_normal((N, columns), dtype=np.float32)
    executable = mirlo.compile(model, pipeline=PLAIN, schedules={"softmax": primitives}, cache=False)
    power = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(executable(x), power / (power.sum(1, keepdims=True) + 0.5), rtol=1e-5, atol=1e-6)


CUTS: dict[str, dict[str, list[int]]] = {
    "whole": {},
    "points": {"points": [32]},
    "multiples": {"multiples": [16, 8, 4, 2, 1]},
}


@pytest.mark.parametrize("cut", CUTS)
def test_rows_in_parts(cut: str) -> None:
    def primitives(s: Schedule) -> None:
        for loop, reduction in zip(by_row(s), ("highest", "total", ""), strict=True):
            in_vectors(s, loop, reduction, **CUTS[cut])
        s.share_memory("power", "y")

    check(primitives)


@pytest.mark.parametrize("columns", [1, 3, 15, 16, 45, 64])
def test_rows_of_any_length(columns: int) -> None:
    def primitives(s: Schedule) -> None:
        for loop, reduction in zip(by_row(s), ("highest", "total", ""), strict=True):
            in_vectors(s, loop, reduction, multiples=[16, 8, 4, 2, 1])
        s.share_memory("power", "y")

    check(primitives, dynamic, columns)


@pytest.mark.parametrize("reduced", [(), ("highest",), ("total",)])
def test_merged_loops_without_accumulators(reduced: tuple[str, ...]) -> None:
    def primitives(s: Schedule) -> None:
        first, second, _ = by_row(s)
        parts = {"highest": s.partition(first, [5, 20])[0], "total": s.partition(second, [11])[0]}
        for name in reduced:
            s.accumulate(name, parts[name])

    check(primitives)


def test_elements_that_are_read_in_registers_are_not_stored() -> None:
    s = schedule_of()
    first, second, third = by_row(s)
    for loop, reduction in ((first, "highest"), (second, "total"), (third, "")):
        in_vectors(s, loop, reduction, points=[32])
    s.share_memory("power", "y")
    text = str(s.emit())
    assert "alloca" not in text and "workspace" not in text
    assert text.count("memref.load") == 0
    # The powers are stored, and loaded for the quotients; each is added up where it is.
    assert text.count("vector.load") + text.count("vector.maskedload") == 3 * 3


def test_two_reductions_in_one_loop() -> None:
    @mirlo.prim_func
    def both(x: T.Buffer[(N, C), T.f32], low: T.Out[(N,), T.f32], sums: T.Out[(N,), T.f32]):
        for i, j in T.grid(N, C):
            with T.block("least"):
                vi, vj = T.axes("SR", i, j)
                with T.init():
                    low[vi] = T.f32("inf")
                low[vi] = T.min(low[vi], x[vi, vj])
        for i, j in T.grid(N, C):
            with T.block("sum"):
                vi, vj = T.axes("SR", i, j)
                with T.init():
                    sums[vi] = 0.0
                sums[vi] += x[vi, vj]

    @mirlo.script
    def model(x: R.Tensor[(N, C), R.f32]):
        return R.call_tir(both, x)

    def primitives(s: Schedule) -> None:
        s.merge("least_i", "sum_i")
        s.merge("least_j", "sum_j")
        first, rest = s.partition("least_j", [32])
        outer, lanes = s.split(first, (None, 8))
        s.vectorize(lanes)
        s.vectorize(s.split(rest, (None, 4))[1])
        s.accumulate("least", outer)
        s.accumulate("sum", outer)

    x = np.random.default_rng(0).integers(-9, 9, (N, C)).astype(np.float32)
    low, sums = mirlo.compile(model, pipeline=PLAIN, schedules={"both": primitives}, cache=False)(x)
    np.testing.assert_array_equal(low, x.min(1))
    np.testing.assert_array_equal(sums, x.sum(1))


def repeated_schedule() -> Schedule:
    return Schedule.of(repeated, TensorType.of((N, C), "f32"))


def flipped_schedule() -> Schedule:
    return Schedule.of(flipped, TensorType.of((N, C), "f32"))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "one": (lambda: schedule_of().merge("power_i"), "merge: expected two loops or more"),
    "twice": (lambda: schedule_of().merge("power_i", "power_i"), "merge: expected each loop once"),
    "not next": (lambda: schedule_of().merge("highest_i", "total_i"), "'total_i' does not follow 'highest_i'"),
    "inside": (lambda: schedule_of().merge("highest_i", "highest_j"), "'highest_j' does not follow 'highest_i'"),
    "length": (
        lambda: (s := schedule_of()) and (s.split("power_i", (None, 2)), s.merge("highest_i", "power_i_0")),
        "'power_i_0' has 3 iterations, 'highest_i' has 6",
    ),
    "incomplete": (
        lambda: (s := schedule_of()) and (s.merge("highest_i", "power_i"), s.merge("highest_j", "power_j")),
        "'power' accesses elements of 'highest' that 'highest' makes in another iteration of 'highest_j'",
    ),
    "another element": (
        lambda: flipped_schedule().merge("copy_i", "flip_i"),
        "'flip' accesses elements of 'y' that 'copy' makes in another iteration of 'copy_i'",
    ),
    "kind": (
        lambda: (s := schedule_of()) and (s.parallel("power_i"), s.merge("highest_i", "power_i")),
        "parallel already",
    ),
    "a parameter": (lambda: schedule_of().share_memory("x", "y"), "'x' is a parameter"),
    "an argument": (lambda: schedule_of().share_memory("power", "x"), "'x' is no value that a block computes"),
    "another shape": (lambda: schedule_of().share_memory("total", "y"), "are not alike"),
    "again": (
        lambda: (s := schedule_of()) and (s.share_memory("power", "y"), s.share_memory("power", "y")),
        "already",
    ),
    "written before it is read": (
        lambda: (s := flipped_schedule()) and (s.share_memory("y", "z"), s.emit()),
        "'y' is in the memory of 'z', and 'flip' accesses it after 'flip' has written there",
    ),
    "read again in a loop that the element does not depend on": (
        lambda: (s := repeated_schedule()) and (s.share_memory("y", "z"), s.emit()),
        "'y' is in the memory of 'z', and 'add' accesses it after 'add_start' has written there",
    ),
    "more lanes in a part": (
        lambda: (
            (s := schedule_of())
            and (
                s.partition("highest_j", [4]),
                s.vectorize("highest_j_0"),
                s.vectorize(s.split("highest_j_1", (None, 8))[1]),
                s.accumulate("highest", "highest_j_0"),
                s.emit(),
            )
        ),
        "with more registers: expected at most 1 of 4 elements, found 1 of 8",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    primitives, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message):
        primitives()


def test_a_part_does_not_replace_an_element_in_a_register() -> None:
    """The first element of a row is in a register, and other parts of the row are written before it is read."""

    @mirlo.prim_func
    def minus_first(x: T.Buffer[(N, C), T.f32], y: T.Out[(N, C), T.f32]):
        doubled = T.alloc((N, C), T.f32)
        for i, j in T.grid(N, C):
            with T.block("double"):
                vi, vj = T.axes("SS", i, j)
                doubled[vi, vj] = x[vi, vj] * 2.0
        for i, j in T.grid(N, C):
            with T.block("minus"):
                vi, vj = T.axes("SS", i, j)
                y[vi, vj] = doubled[vi, vj] - doubled[vi, 0]

    @mirlo.script
    def model(x: R.Tensor[(N, C), R.f32]):
        return R.call_tir(minus_first, x)

    def primitives(s: Schedule) -> None:
        s.merge("double_i", "minus_i")
        s.partition("double_j", [1])

    x = np.random.default_rng(0).integers(-9, 9, (N, C)).astype(np.float32)
    y = mirlo.compile(model, pipeline=PLAIN, schedules={"minus_first": primitives}, cache=False)(x)
    np.testing.assert_array_equal(y, 2 * x - 2 * x[:, :1])
