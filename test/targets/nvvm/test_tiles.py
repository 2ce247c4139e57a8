"""Copies with a dim for each loop, and iterations past the end that read the last element."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError
from mirlo.testing.ptx.driver import emulated


@mirlo.prim_func
def turn(x: T.Buffer[(5, 6, 7), T.f32], y: T.Out[(6, 7, 5), T.f32]):
    for i, j, k in T.grid(6, 7, 5):
        with T.block("turn"):
            vi, vj, vk = T.axes("SSS", i, j, k)
            y[vi, vj, vk] = x[vk, vi, vj] * 2.0


@mirlo.script
def turn_model(x: R.Tensor[(5, 6, 7), R.f32]):
    return R.call_tir(turn, x)


def in_tiles(s: Schedule) -> None:
    """Tiles go over two dims of the operand, which are one of their own."""
    i, j, k = s.loops("turn")
    rows, columns, line, lane = s.tile((s.fuse(i, j), k), (8, 4))
    copy = s.cache_read("turn", "x", "shared", loops=[lane, line])
    s.storage_align(copy, 0, 8, 1)
    for block, (row, element) in ((copy, s.loops(copy)[-2:]), ("turn", (line, lane))):
        s.clamp(block)
        s.bind(row, "threadIdx.y")
        s.bind(element, "threadIdx.x")
    s.bind(rows, "blockIdx.y")
    s.bind(columns, "blockIdx.x")


def test_tiles_of_loops() -> None:
    compiled = mirlo.compile(turn_model, "nvvm{chip=sm_80}", schedules={"turn": in_tiles}, cache=False)
    x = np.random.default_rng(0).standard_normal((5, 6, 7)).astype(np.float32)
    with emulated("sm_80", races=True):
        found = compiled(x)
    np.testing.assert_array_equal(found, 2 * x.transpose(1, 2, 0))


@pytest.mark.parametrize(
    ("loops", "message"),
    [
        (["turn_i"], "expected the innermost loops around 'turn'"),
        (["turn_j", "turn_j"], "expected the innermost loops"),
    ],
)
def test_loops_that_are_not_the_innermost(loops: list[str], message: str) -> None:
    s = Schedule.of(turn, TensorType.of((5, 6, 7), "f32"))
    with pytest.raises(ScheduleError, match=message):
        s.cache_read("turn", "x", "shared", loops=loops)


def test_nothing_to_clamp() -> None:
    s = Schedule.of(turn, TensorType.of((5, 6, 7), "f32"))
    with pytest.raises(ScheduleError, match="clamp: all iterations of the loops around 'turn' compute an element"):
        s.clamp("turn")
