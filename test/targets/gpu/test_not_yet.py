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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("function", "advice"),
    [("__nv_erff", "write the intrinsic T.erf"), ("__nv_fast_cosf", "write the intrinsic T.cos"),
     ("MyDriver", "declare one with mirlo.extend.define_intrinsic")],
)  # fmt: skip
def test_c_functions_have_advice(target: str, function: str, advice: str) -> None:
    body = f"""
class Module:
    @T.prim_func(buffers=True)
    def kernel(x: T.Buffer[(4,), "f32"], y: T.Out[(4,), "f32"]):
        for i in T.thread_binding(4, "threadIdx.x"):
            y[i] = T.call_extern("{function}", x[i], dtype="f32")

    @R.function
    def main(x: R.Tensor[(4,), "f32"]):
        return R.call_tir(kernel, x)
"""
    with pytest.raises(mirlo.MirloError, match=f"which GPUs do not have: .*{advice}"):
        mirlo.compile(mirlo.parse_script(body), target)
