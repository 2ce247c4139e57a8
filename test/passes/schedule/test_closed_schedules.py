"""Schedules whose function is gone: the function's final state, and the emitted loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError

N = 32


@mirlo.prim_func
def twice(x: T.Buffer[(N,), T.f32], y: T.Out[(N,), T.f32]):
    for i in T.grid(N):
        with T.block("twice"):
            vi = T.axes("S", i)
            y[vi] = x[vi] + x[vi]


@mirlo.script
def model(x: R.Tensor[(N,), R.f32]):
    return R.call_tir(twice, x)


USES: dict[str, Callable[[Schedule], object]] = {
    "split": lambda s: s.split("twice_i", (None, 2)),
    "refused": lambda s: s.vectorize("nothing"),
    "emit": lambda s: s.emit(),
}


def kept(primitives: Callable[[Schedule], object]) -> Schedule:
    """Return the schedule that a compilation called these primitives with."""
    found: list[Schedule] = []

    def keep(s: Schedule) -> None:
        found.append(s)
        primitives(s)

    try:
        f = mirlo.compile(model, schedules={"twice": keep}, cache=False)
    except mirlo.MirloError as error:
        assert "'keep' raised ZeroDivisionError" in str(error)
    else:
        np.testing.assert_array_equal(f(np.ones(N, np.float32)), 2)
    return found[0]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("primitives", [lambda s: None, lambda s: s.parallel("twice_i"), lambda s: 1 / 0])
def test_a_schedule_that_is_kept_after_the_compilation(primitives: Callable[[Schedule], object], use: str) -> None:
    s = kept(primitives)
    with pytest.raises(ScheduleError, match="it was for the call of a function; its trace can be replayed"):
        USES[use](s)
    again = Schedule.of(twice, TensorType.of((N,), "f32")).replay(s)
    assert str(again.trace) == str(s.trace)


def test_loops_are_emitted_once_outside_of_a_compilation() -> None:
    s = Schedule.of(twice, TensorType.of((N,), "f32"))
    s.parallel("twice_i")
    assert "tir.parallel" in str(s.emit()) and "for twice_i in 32 parallel" in str(s)
    for use in USES.values():
        with pytest.raises(ScheduleError, match="the loops of this schedule are emitted"):
            use(s)


def test_a_given_function_is_called_once_by_all_passes() -> None:
    calls: list[str] = []

    def primitives(s: Schedule) -> None:
        calls.append(s.target)
        s.vectorize(s.split("twice_i", (None, 8))[1])
        s.compute_inline(s.cache_read("twice", "x"))

    mirlo.compile(model, schedules={"twice": primitives}, cache=False)
    assert calls == ["llvm"]
