"""Hand-written prim functions: results, in both forms, and fusion of those with blocks."""

from __future__ import annotations

import numpy as np
import pytest

import mirlo
from mirlo import T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType

M, N, K = T.dims("M", "N", "K")
S = T.shapes("S")


@mirlo.prim_func
def matmul(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j, k in T.grid(M, N, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@mirlo.prim_func(buffers=True)
def matmul_loops(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j, k in T.grid(M, N, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@mirlo.prim_func
def gelu(x: T.Buffer[S, T.f32], y: T.Out[S, T.f32]):
    for i in T.grid(*S):
        y[i] = 0.5 * x[i] * (1 + T.tanh(0.7978845608 * (x[i] + 0.044715 * x[i] * x[i] * x[i])))


GRAPH = """
func.func @main(%a: tensor<16x8xf32> {relax.name = "a"}, %b: tensor<8x4xf32> {relax.name = "b"}) -> tensor<16x4xf32> {
  %0 = "relax.matmul"(%a, %b) : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %1 = "relax.gelu"(%0) : (tensor<16x4xf32>) -> tensor<16x4xf32>
  return %1: tensor<16x4xf32>
}
"""


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("template", "kernels"), [(matmul, ["fused_matmul_gelu"]), (matmul_loops, ["matmul_loops", "gelu"])]
)
def test_as_legalization(template, kernels) -> None:
    rules = {
        "relax.matmul": lambda op, b: b.call_prim_func(template, op.lhs, op.rhs),
        "relax.gelu": lambda op, b: b.call_prim_func(gelu, op.x),
    }
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(GRAPH), legalize=rules)
    assert [kernel.symbol for kernel in executable.artifact.kernels] == kernels
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape, dtype=np.float32) for shape in ((16, 8), (8, 4)))
    np.testing.assert_allclose(executable(a, b), _gelu(a @ b), rtol=1e-5, atol=1e-5)


def test_why_loops() -> None:
    types = [TensorType.of(shape, "f32") for shape in ((4, 5), (5, 6))]
    assert matmul.why_loops(*types) is None
