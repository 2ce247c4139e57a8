"""Vectorized loops on GPUs, whose threads have few vectors and no masks."""

from __future__ import annotations

import pytest

import mirlo
from mirlo import R, Schedule, T


@mirlo.prim_func
def twice(a: T.Buffer[(21, 5), T.f32], b: T.Out[(5, 21), T.f32]):
    for j, i in T.grid(5, 21):
        with T.block("twice"):
            vj, vi = T.axes("SS", j, i)
            b[vj, vi] = a[vi, vj] * 2.0


@mirlo.script
def twice_model(a: R.Tensor[(21, 5), R.f32]):
    return R.call_tir(twice, a)


@pytest.mark.parametrize("target", ["spirv", "nvvm"])
def test_threads_of_a_gpu_have_no_masks_and_gathers(target: str):
    """A vectorized loop that needs them is a loop there."""

    def primitives(s: Schedule) -> None:
        s.bind("twice_i", "blockIdx.x")
        s.vectorize(s.split("twice_j", (None, 8))[1])

    compiled = mirlo.compile(twice_model, target, schedules={"twice": primitives}, cache=False)
    assert compiled is not None
