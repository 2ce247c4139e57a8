"""`specialize`: loops of their own for one value of a size, printed, saved, undone and given back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.dialects.core import dims as D
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError
from mirlo.passes.schedule.primitives.trace import Trace
from mirlo.testing import assert_verified

ROWS = "rows"
rows = T.dims(ROWS)


@mirlo.prim_func
def double(x: T.Buffer[(rows, 40), T.f32], y: T.Out[(rows, 40), T.f32]):
    for i, j in T.grid(rows, 40):
        with T.block("double"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vi, vj] * 2.0


@mirlo.script
def model(x: R.Tensor[(ROWS, 40), R.f32]):
    return R.call_tir(double, x)


def by_size(s: Schedule) -> None:
    """Vectorize a row, and unroll the loop over vectors where there is one row."""
    one = s.specialize("rows", 1)
    for schedule in (s, one):
        vectors, lane = schedule.split(schedule.loops("double")[-1], (None, 8))
        schedule.vectorize(lane)
    one.unroll(one.loops("double")[1])
    s.parallel(s.loops("double")[0])


def scheduled() -> Schedule:
    return Schedule.of(double, TensorType((D.symbol(ROWS), 40), "f32"))


@pytest.mark.parametrize("threads", [1, 2])
def test_against_numpy(threads: int) -> None:
    executable = mirlo.compile(model, schedules={"double": by_size}, threads=threads, cache=False)
    for count in (0, 1, 2, 7):
        x = np.random.default_rng(count).standard_normal((count, 40), dtype=np.float32)
        np.testing.assert_array_equal(executable(x), 2 * x)
    assert_verified(model, schedules={"double": by_size}, threads=threads)


def test_trace_is_printed_saved_and_replayed(tmp_path: Path) -> None:
    s = scheduled()
    by_size(s)
    text = str(s.trace)
    assert "rows_1 = s.specialize('rows', 1)" in text and "    rows_1.unroll(" in text
    assert "where rows is 1:" in str(s) and "unrolled" in str(s).partition("where rows is 1:")[2]
    s.save(tmp_path / "schedule.json")
    again = scheduled().replay(Trace.load(tmp_path / "schedule.json"))
    assert (str(again.trace), str(again)) == (text, str(s))
    assert "where rows is 1:" in s.after("keep-in-registers")
    functions: dict[str, object] = {}
    exec(text, functions)
    assert str(scheduled().replay(functions["schedule"])) == str(s)  # type: ignore[arg-type]


WIDE = "columns"
columns = T.dims(WIDE)


@mirlo.prim_func
def halve(x: T.Buffer[(rows, columns), T.f32], y: T.Out[(rows, columns), T.f32]):
    for i, j in T.grid(rows, columns):
        with T.block("halve"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vi, vj] * 0.5


@mirlo.script
def halves(x: R.Tensor[(ROWS, WIDE), R.f32]):
    return R.call_tir(halve, x)


def by_two_sizes(s: Schedule) -> None:
    """Arrange a single element, then one row, then all others."""
    one = s.specialize([ROWS, WIDE], 1)
    one.unroll(one.loops("halve")[1])
    row = s.specialize(ROWS, 1)
    row.vectorize(row.split(row.loops("halve")[1], (None, 8))[1])
    s.parallel(s.loops("halve")[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_several_sizes_have_the_value(threads: int) -> None:
    executable = mirlo.compile(halves, schedules={"halve": by_two_sizes}, threads=threads, cache=False)
    for shape in ((0, 0), (1, 0), (0, 1), (1, 1), (1, 19), (7, 1), (5, 33)):
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        np.testing.assert_array_equal(executable(x), 0.5 * x)
    assert_verified(halves, schedules={"halve": by_two_sizes}, threads=threads)


def test_trace_of_several_sizes(tmp_path: Path) -> None:
    s = Schedule.of(halve, TensorType((D.symbol(ROWS), D.symbol(WIDE)), "f32"))
    by_two_sizes(s)
    text = str(s.trace)
    assert "rows_columns_1 = s.specialize(['rows', 'columns'], 1)" in text
    assert "where rows is 1 and columns is 1:" in str(s)
    s.save(tmp_path / "schedule.json")
    again = Schedule.of(halve, TensorType((D.symbol(ROWS), D.symbol(WIDE)), "f32"))
    again.replay(Trace.load(tmp_path / "schedule.json"))
    assert (str(again.trace), str(again)) == (text, str(s))
    for refused in ([ROWS, WIDE], [], [ROWS, "column"]):
        with pytest.raises(ScheduleError):
            s.specialize(refused, 1)
        assert str(s.trace) == text
    s.undo(0)
    assert not s.variants


def test_errors_leave_all_loops_as_they_were() -> None:
    s = scheduled()
    by_size(s)
    before, one = (str(s.trace), str(s)), s.variants["rows_1"][2]
    for refused in (
        lambda: one.split("double_j_0", (2, 2)),
        lambda: s.fuse("double_i", "double_j_1"),
        lambda: s.specialize("rows", 1),
        lambda: s.specialize("row", 1),
        lambda: one.specialize("rows", 2),
        lambda: s.apply_rule("elementwise"),
        lambda: one.emit(),
        lambda: s.commands(),
    ):
        with pytest.raises(ScheduleError):
            refused()
        assert (str(s.trace), str(s)) == before
    after = scheduled()
    after.split("double_j", (None, 8))
    loops, count = after._root, len(after.trace.calls)
    after.specialize(ROWS, 1).unroll("double_j")
    after.undo(count)
    assert after._root is loops and not after.variants  # the loops for other sizes are not arranged again
    s.undo(1)
    assert str(s.trace).endswith("s.specialize('rows', 1)") and "vectorized" not in str(s)
    s.undo(0)
    assert not s.variants and "where" not in str(s)


def test_replaying_calls_of_a_variant_that_is_not_there() -> None:
    s = scheduled()
    by_size(s)
    with pytest.raises(ScheduleError, match="there is no variant 'rows_1'"):
        scheduled().replay(Trace(s.trace.calls[1:]))
