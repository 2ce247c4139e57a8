"""Blocks that threads of GPUs compute on the results of others, and loops that are added for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.testing.ptx.driver import emulated


@mirlo.prim_func
def mean(x: T.Buffer[(4, 300), T.f32], b: T.Buffer[(4,), T.f32], y: T.Out[(4,), T.f32]):
    total = T.alloc((4,), T.f32)
    for i, j in T.grid(4, 300):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.0
            total[vi] += x[vi, vj]
    for i in T.grid(4):
        with T.block("mean"):
            vi = T.axes("S", i)
            y[vi] = total[vi] / 300.0 + b[vi]


@mirlo.script
def mean_model(x: R.Tensor[(4, 300), R.f32], b: R.Tensor[(4,), R.f32]):
    return R.call_tir(mean, x, b)


def across_threads(s: Schedule) -> None:
    i, j = s.loops("total")
    s.reverse_compute_inline("mean")
    s.bind(s.split(j, (None, 32))[1], "threadIdx.x")
    s.bind(i, "blockIdx.x")


def in_one_thread_each(s: Schedule) -> None:
    i, j = s.loops("total")
    s.reverse_compute_inline("mean")
    s.accumulate("total", j)
    s.bind(i, "threadIdx.x")
    s.bind(s.add_unit_loop("total"), "blockIdx.x")


def rows_of_blocks(s: Schedule) -> None:
    i, j = s.loops("total")
    s.reverse_compute_inline("mean")
    blocks, row = s.split(i, (None, 3))
    s.bind(s.split(j, (None, 32))[1], "threadIdx.x")
    s.bind(row, "threadIdx.y")
    s.bind(blocks, "blockIdx.x")


@pytest.mark.parametrize("primitives", [across_threads, in_one_thread_each, rows_of_blocks])
def test_what_is_computed_on_a_reduction(primitives: Callable[[Schedule], None]) -> None:
    compiled = mirlo.compile(mean_model, "nvvm{chip=sm_80}", schedules={"mean": primitives}, cache=False)
    assert len(compiled.artifact.metadata["kernels"]) == 1
    generator = np.random.default_rng(0)
    x, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((4, 300), (4,)))
    with emulated("sm_80", races=True):
        found = compiled(x, b)
    np.testing.assert_allclose(found, x.mean(axis=1) + b, rtol=1e-5, atol=1e-6)
