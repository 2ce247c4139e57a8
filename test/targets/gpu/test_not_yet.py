"""What models on GPUs cannot do is an error that says so."""

from __future__ import annotations

import textwrap

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
     ("MyDriver", "declare one with mirlo.extend.ops.define_intrinsic")],
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


REFUSED = {
    "'@kernel': this loop and one around it are both bound to 'threadIdx.x': bind it to another axis": """
            for i in T.thread_binding(4, "threadIdx.x"):
                for j in T.thread_binding(4, "threadIdx.x"):
                    y[i] = x[j]
""",
    "'@kernel': a loop bound to 'threadIdx.z' has 128 iterations, and blocks of target '.*' have at most 64": """
            for i in T.thread_binding(128, "threadIdx.z"):
                y[i] = x[i]
""",
    r"'@kernel': loops are bound to 2048 threads of a block \(64 on 'threadIdx.x', 32 on 'threadIdx.y'\)": """
            for i in T.thread_binding(32, "threadIdx.y"):
                for j in T.thread_binding(64, "threadIdx.x"):
                    y[i * 64 + j] = x[i * 64 + j]
""",
    "'@kernel': one launch runs loops over 'blockIdx.x' with the extents 4 and 3: give them one extent": """
            tile = T.alloc((4,), T.f32, scope="shared")
            for i in T.thread_binding(4, "blockIdx.x"):
                tile[0] = x[i]
                y[i] = tile[0]
            for i in T.thread_binding(3, "blockIdx.x"):
                tile[0] = x[i]
                y[i + 4] = tile[0]
""",
    "'@kernel': blocks of threads use elements of 'y' that other blocks write in the same launch": """
            for i in T.serial(3):
                for b in T.thread_binding(8, "blockIdx.x"):
                    y[i * 8 + b + 8] = x[b] + y[i * 8 + 7 - b]
""",
    "'@kernel': blocks of threads use elements of 'y' that other blocks": """
            for b in T.thread_binding(4, "blockIdx.x"):
                y[b] = x[b]
                for c in T.thread_binding(8, "blockIdx.y"):
                    y[b * 8 + c + 4] = y[b]
""",
    "the buffer is in memory .*, which the code around it does not have: 'shared' needs loops that are bound": """
            tile = T.alloc((8,), T.f32, scope="shared")
            for i in T.serial(8):
                tile[i] = x[i]
            for i in T.serial(8):
                y[i] = tile[i]
""",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("message", REFUSED)
def test_loops_that_cannot_be_bound(target: str, message: str) -> None:
    body = f"""
class Module:
    @T.prim_func(buffers=True)
    def kernel(x: T.Buffer[(2048,), "f32"], y: T.Out[(2048,), "f32"]):
{textwrap.indent(textwrap.dedent(REFUSED[message]), "        ")}
    @R.function
    def main(x: R.Tensor[(2048,), "f32"]):
        return R.call_tir(kernel, x)
"""
    with pytest.raises(mirlo.MirloError, match=message):
        mirlo.compile(mirlo.parse_script(body), target)


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_with_elements_of_their_own_may_repeat(target: str) -> None:
    body = """
class Module:
    @T.prim_func(buffers=True)
    def kernel(x: T.Buffer[(64,), "f32"], y: T.Out[(64,), "f32"]):
        for i in T.serial(3):
            for b in T.thread_binding(8, "blockIdx.x"):
                for t in T.thread_binding(8, "threadIdx.x"):
                    y[b * 8 + t] = x[b * 8 + t] if i == 0 else y[b * 8 + t] * 2.0

    @R.function
    def main(x: R.Tensor[(64,), "f32"]):
        return R.call_tir(kernel, x)
"""
    mirlo.compile(mirlo.parse_script(body), target)
