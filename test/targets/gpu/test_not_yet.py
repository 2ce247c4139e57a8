"""What models on GPUs cannot do is an error that says so."""

from __future__ import annotations

import pytest

import mirlo
from mirlo import R, T

TARGETS = ["spirv", "nvvm{chip=sm_80}"]


@mirlo.prim_func
def foreign(x: T.Buffer[(4,), T.f32], y: T.Out[(4,), T.f32]):
    for i in range(4):
        y[i] = T.call_extern("cosf", x[i], dtype=T.f32)


@pytest.mark.parametrize("target", TARGETS)
def test_c_functions_in_kernels(target: str) -> None:
    @mirlo.script
    def model(x: R.Tensor[(4,), R.f32]):
        return R.call_tir(foreign, x)

    with pytest.raises(mirlo.MirloError, match="a kernel calls the C function 'cosf', which GPUs do not have"):
        mirlo.compile(model, target=target, cache=False)
