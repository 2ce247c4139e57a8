"""The passes over loops between the primitives of a schedule and its code: `Schedule.after`."""

from __future__ import annotations

import pytest

import mirlo
from mirlo import Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError


@mirlo.prim_func
def row_sums(x: T.Buffer[(8, 32), T.f32], y: T.Out[(8,), T.f32]):
    for i, j in T.grid(8, 32):
        with T.block("sum"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                y[vi] = 0.0
            y[vi] += x[vi, vj]


def schedule() -> Schedule:
    return Schedule.of(row_sums, TensorType.of((8, 32), "f32"))


def test_loops_after_a_pass() -> None:
    """A reduction that no primitive arranged begins with its initial values, in a block of its own."""
    s = schedule()
    before = str(s)
    assert s.after("prepare-kernels") == before
    started = s.after("start-reductions")
    assert started.count("sum") > before.count("sum")
    assert s.after("share-positions") != before
    assert str(s) == before
    s.emit()


def test_an_unknown_pass() -> None:
    with pytest.raises(ScheduleError, match="there is no pass 'start-reduction' over loops; did you mean 'start-red"):
        schedule().after("start-reduction")
