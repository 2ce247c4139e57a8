"""`partition`: loops in parts; `reverse_compute_inline`: blocks that are computed on results before they are stored."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError

N, C = 23, 5
PLAIN = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"
ROWS = T.dims("ROWS")


@mirlo.prim_func
def window(x: T.Buffer[(N, C), T.f32], y: T.Out[(N, C), T.f32]):
    total = T.alloc((N, C), T.f32)
    for i, c, r in T.grid(N, C, 3):
        with T.block("sum"):
            vi, vc, vr = T.axes("SSR", i, c, r)
            with T.init():
                total[vi, vc] = 0.0
            total[vi, vc] += x.at(vi + vr - 1, vc, outside=2.0)
    for i, c in T.grid(N, C):
        with T.block("mean"):
            vi, vc = T.axes("SS", i, c)
            y[vi, vc] = total[vi, vc] * T.f32(T.min(vi + 2, N) - T.max(vi - 1, 0))


@mirlo.script
def model(x: R.Tensor[(N, C), R.f32]):
    return R.call_tir(window, x)


@mirlo.prim_func
def shifted(x: T.Buffer[(ROWS,), T.f32], y: T.Out[(ROWS,), T.f32], z: T.Out[(ROWS,), T.f32]):
    for i in T.grid(ROWS):
        with T.block("double"):
            vi = T.axes("S", i)
            y[vi] = x[vi] * 2.0
    for i in T.grid(ROWS):
        with T.block("add"):
            vi = T.axes("S", i)
            z[vi] = y[vi] + x[vi]


@mirlo.script
def dynamic(x: R.Tensor[("rows",), R.f32]):  # noqa: F821, UP037
    return R.call_tir(shifted, x)


def schedule_of() -> Schedule:
    return Schedule.of(window, TensorType.of((N, C), "f32"))


def check(primitives: Schedule) -> str:
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (N, C)).astype(np.float32)
    executable = mirlo.compile(model, pipeline=PLAIN, schedules={"window": primitives.trace}, cache=False)
    wide = np.pad(x, ((1, 1), (0, 0)), constant_values=2.0)
    rows = np.arange(N)[:, None]
    counts = np.minimum(rows + 2, N) - np.maximum(rows - 1, 0)
    np.testing.assert_array_equal(executable(x), sum(wide[r : r + N] for r in range(3)) * counts)
    return str(primitives)


@pytest.mark.parametrize("points", [(1,), (1, 22), (5, 6, 20)])
@pytest.mark.parametrize("loop", ["sum_i", "mean_i"])
def test_parts_compute_what_the_loop_does(points: tuple[int, ...], loop: str) -> None:
    s = schedule_of()
    parts = s.partition(loop, points)
    assert [s.extent(part) for part in parts] == np.diff([0, *points, N]).tolist()
    assert [s.blocks(part) for part in parts][0] == [loop[:-2]] and len(s.blocks()) == len(points) + 2
    _, lanes = s.split(parts[-1], (None, 4))
    s.unroll(lanes)
    s.unroll(parts[0]) if points[0] < 8 else None
    check(s)


def test_parts_of_a_window_test_no_edges() -> None:
    s = schedule_of()
    s.reverse_compute_inline("mean")
    assert s.change_points("sum_i") == [1, 22]
    s.reorder("sum_i", "sum_k", "sum_j")
    s.vectorize("sum_j")
    s.unroll("sum_k")
    s.accumulate("sum", "sum_k", in_order=True)
    middle = s.partition("sum_i", s.change_points("sum_i"))[1]
    assert s.change_points(middle) == []
    text = check(s)
    assert text.count("then mean") == 3 and "total" not in s.reads("sum")
    emitted = str(s.emit())
    assert not any(each in emitted for each in ("scf.if", "arith.cmpi", "arith.minsi", "arith.maxsi", "alloca"))


def test_conditions_of_bodies_are_seen() -> None:
    s = schedule_of()
    assert s.change_points("mean_i") == [1, 22]
    assert s.change_points("mean_j") == []


@pytest.mark.parametrize("count", [0, 1, 7, 8, 37, 64, 101])
def test_multiples_of_a_dynamic_loop(count: int) -> None:
    def arrange(s: Schedule) -> None:
        s.reverse_compute_inline("add")
        for part, lanes in zip(s.partition("double_i", multiples=[32, 8, 4, 2, 1]), (8, 8, 4, 2, 1), strict=True):
            assert s.kinds(s.blocks(part)[0])
            _, inner = s.split(part, (None, lanes))
            s.vectorize(inner)
        assert " if " not in str(s), "no part has a guard"

    x = np.arange(count, dtype=np.float32)
    y, z = mirlo.compile(dynamic, schedules={"shifted": arrange}, cache=False)(x)
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(z, 3 * x)


def test_results_that_nothing_else_reads_are_not_stored() -> None:
    s = schedule_of()
    s.reverse_compute_inline("mean")
    s.accumulate("sum", "sum_k")
    assert s.blocks() == ["sum"]
    check(s)


def test_a_reduction_is_in_registers_without_a_word() -> None:
    s = schedule_of()
    s.reverse_compute_inline("mean")
    check(s)


REFUSED = {
    "part of a reduction": (lambda s: (s.partition("sum_k", [1]), s.accumulate("sum_1", "sum_k_1")), "continues 'sum'"),
    "decomposed in a part": (
        lambda s: (s.partition("sum_k", [1]), s.decompose_reduction("sum_1", "sum_k_1")), "continues 'sum': decompose",
    ),
    "moved": (
        lambda s: (s.partition("sum_k", [1]), s.compute_at("sum_1", "mean_j")), "whose loop is partitioned: move it",
    ),
    "results of a part": (
        lambda s: (s.reverse_compute_inline("mean"), s.partition("sum_k", [1])), "which are complete after all parts",
    ),
    "partial results": (lambda s: (s.partition("sum_k", [1]), s.rfactor("sum", "sum_k_0")), "rfactor: 'sum'"),
    "threads": (lambda s: (s.partition("sum_k", [1]), s.bind("sum_k_0", "threadIdx.x")), "another loop of which"),
    "order": (lambda s: s.partition("sum_i", [5, 5]), "expected iterations from 1 to 22 in ascending order"),
    "end": (lambda s: s.partition("sum_i", [23]), "expected iterations from 1 to 22 in ascending order"),
    "nothing": (lambda s: s.partition("sum_i"), "expected either points or multiples"),
    "multiples": (lambda s: s.partition("sum_i", multiples=[6, 4]), "each of which divides the one before"),
    "decomposed": (
        lambda s: (s.decompose_reduction("sum", "sum_k"), s.partition("sum_i", [3])), "'sum' is decomposed",
    ),
    "part of what is read": (
        lambda s: (parts := s.partition("sum_i", [3])) and s.reverse_compute_at("mean", parts[0]),
        "'mean' reads 'sum_1', made after 'sum_i_0'",
    ),
    "before what is read": (
        lambda s: (parts := s.partition("sum_i", [3])) and s.reverse_compute_at("mean", parts[1]),
        "'sum', 'sum_1' make parts of 'total'",
    ),
    "inlined in parts": (
        lambda s: (s.partition("sum_i", [3]), s.reverse_compute_inline("mean")), "'sum', 'sum_1' make parts of 'total'",
    ),
    "copy of parts": (lambda s: (s.partition("sum_i", [3]), s.cache_write("sum")), "'sum', 'sum_1' make parts"),
    "no reader": (lambda s: s.reverse_compute_inline("sum"), "'sum' is a reduction"),
    "memory": (
        lambda s: (s.reverse_compute_inline("mean"), s.decompose_reduction("sum", "sum_k")),
        "'mean' is computed on the results of 'sum', which are in registers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    primitives, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message):
        primitives(schedule_of())


def test_lanes_of_the_reduction_have_no_order() -> None:
    def arrange(s: Schedule) -> None:
        s.vectorize("sum_k")
        s.accumulate("sum", "sum_k", in_order=True)

    with pytest.raises(mirlo.MirloError, match="'sum_k' is a loop of the reduction 'sum' and vectorized, which makes"):
        mirlo.compile(model, schedules={"window": arrange}, cache=False)


def test_no_points_leave_the_loop() -> None:
    """So that `partition(loop, change_points(loop))` fits loops without edges, too."""
    s = schedule_of()
    assert s.partition("sum_i", []) == ["sum_i"] and list(s.trace) == []
    with pytest.raises(ScheduleError, match="there is no loop 'nothing'"):
        s.partition("nothing", [])
