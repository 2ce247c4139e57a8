"""Kernels written by hand for a GPU: loops bound to hardware axes, memory that a block shares, parallel loops."""

from __future__ import annotations

import numpy as np
import pytest
from devices import ON_DEVICES

import mirlo
from mirlo import R, T

pytestmark = ON_DEVICES


@mirlo.prim_func
def transposed(x: T.Buffer[(64, 48), T.f32], y: T.Out[(48, 64), T.f32]):
    tile = T.alloc((16, 16), T.f32, scope="shared")
    for by in T.thread_binding(4, "blockIdx.y"):
        for bx in T.thread_binding(3, "blockIdx.x"):
            for ty in T.thread_binding(16, "threadIdx.y"):
                for tx in T.thread_binding(16, "threadIdx.x"):
                    tile[ty, tx] = x[by * 16 + ty, bx * 16 + tx]
            for ty in T.thread_binding(16, "threadIdx.y"):
                for tx in T.thread_binding(16, "threadIdx.x"):
                    y[bx * 16 + ty, by * 16 + tx] = tile[tx, ty]


@mirlo.prim_func
def sums(x: T.Buffer[(10, 100), T.f32], y: T.Out[(10,), T.f32]):
    parts = T.alloc((32,), T.f32, scope="shared")
    for row in T.thread_binding(10, "blockIdx.x"):
        for tx in T.thread_binding(32, "threadIdx.x"):
            parts[tx] = 0.0
            for i in T.serial(3):
                parts[tx] = parts[tx] + x[row, i * 32 + tx]
        for tx in T.thread_binding(4, "threadIdx.x"):
            parts[tx] = parts[tx] + x[row, 96 + tx]
        for _ in T.thread_binding(1, "threadIdx.x"):
            y[row] = 0.0
            for i in T.serial(32):
                y[row] = y[row] + parts[i]


@mirlo.prim_func
def running(x: T.Buffer[(40, 30), T.f32], y: T.Out[(40, 30), T.f32]):
    total = T.alloc((1,), T.f32)
    for i in T.parallel(40):
        total[0] = 0.0
        for j in T.serial(30):
            total[0] = total[0] + x[i, j]
            y[i, j] = total[0]


@mirlo.script
def by_hand(x: R.Tensor[(64, 48), R.f32], rows: R.Tensor[(10, 100), R.f32], lines: R.Tensor[(40, 30), R.f32]):
    return R.call_tir(transposed, x), R.call_tir(sums, rows), R.call_tir(running, lines)


def test_kernels_by_hand(target: str) -> None:
    model = mirlo.compile(by_hand, target=target, cache=False)
    x, rows, lines = model.random_inputs().values()
    found = model(x, rows, lines)
    np.testing.assert_array_equal(found[0], x.T)
    np.testing.assert_allclose(found[1], rows.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[2], lines.cumsum(1), rtol=1e-5, atol=1e-5)
    grids = [words[:3] for _, *words in model.artifact.metadata["program"]["commands"]]
    assert [3, 4, 1] in grids and [10, 1, 1] in grids


def test_axes_that_do_not_fit(target: str) -> None:
    @mirlo.prim_func
    def wrong(x: T.Buffer[(8,), T.f32], y: T.Out[(8,), T.f32]):
        for i in T.thread_binding(8, "threadIdx.w"):
            y[i] = x[i]

    @mirlo.script
    def model(x: R.Tensor[(8,), R.f32]):
        return R.call_tir(wrong, x)

    with pytest.raises(mirlo.MirloError, match="there is no hardware axis 'threadIdx.w': there are blockIdx.x"):
        mirlo.compile(model, target=target, cache=False)
