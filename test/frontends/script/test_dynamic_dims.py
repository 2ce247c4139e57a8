"""Hand-written TIR with dims that are known at run time, wherever it is attached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo import R, T
from mirlo.extend.ops import TensorType

M, N = T.dims("M", "N")


@mirlo.prim_func
def blocks(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        with T.block("b"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = T.exp(x[vi, vj]) + 1.0


@mirlo.prim_func
def nests(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        y[i, j] = x[i, N - 1 - j] * T.f32(M + 1)


@mirlo.prim_func
def rows(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    total = T.alloc((M,), T.f32)
    for i, j in T.grid(M, N):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 0.0
            total[vi] += x[vi, vj]
    for i, j in T.grid(M, N):
        with T.block("centered"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vi, vj] - total[vi] / T.f32(N)


@mirlo.prim_func(buffers=True)
def loops(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    for i in T.parallel(M):
        for j in range(N):
            if i + 1 < M and j > 0:
                y[i, j] = x[i + 1, j - 1]
            else:
                y[i, j] = 0.0


@mirlo.prim_func(buffers=True)
def scratch(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    t = T.alloc((N, M), T.f32)
    for i, j in T.grid(M, N):
        t[j, i] = T.exp(x[i, j])
    for i, j in T.grid(M, N):
        y[i, j] = t[j, i] + x.at(i - 1, j, outside=0.5)


def _shifted(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    y[:-1, 1:] = x[1:, :-1]
    return y


ORACLES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "blocks": lambda x: np.exp(x) + 1,
    "nests": lambda x: x[:, ::-1] * (len(x) + 1),
    "rows": lambda x: x - x.mean(axis=1, keepdims=True),
    "loops": _shifted,
    "scratch": lambda x: np.exp(x) + np.concatenate([np.full((1, x.shape[1]), 0.5, x.dtype), x[:-1]]),
}
FUNCTIONS = [blocks, nests, rows, loops, scratch]


def _model(operator: str, domain: str = "") -> Any:
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "k"]) for name in "xy"]
    nodes = [helper.make_node(operator, ["x"], ["y"], name="act", domain=domain)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.sizes", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", kinds[:1], kinds[1:]), opset_imports=opsets, ir_version=9)


def _called(function: Any) -> Any:
    def model(x: R.Tensor[("n", "k"), R.f32]):
        return R.call_tir(function, x)

    return mirlo.compile(mirlo.script(model), cache=False)


def _for_operator(function: Any) -> Any:
    return mirlo.compile(_model("Relu"), legalize={"relax.relu": _rule(function)}, cache=False)


def _for_node(function: Any) -> Any:
    return mirlo.compile(_model("Relu"), legalize={"node:act": _rule(function)}, cache=False)


def _for_domain(function: Any) -> Any:
    operator = f"Sized{function.name.title()}"
    mirlo.onnx_operator("com.sizes", operator, prim_func=function, infer=lambda x: x)
    return mirlo.compile(_model(operator, "com.sizes"), cache=False)


def _rule(function: Any) -> Any:
    return lambda op, b: b.call_prim_func(function, op.x)


@pytest.mark.sample(2)
@pytest.mark.parametrize("attach", [_called, _for_operator, _for_node, _for_domain], ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.name)
def test_each_place(function: Any, attach: Any) -> None:
    compiled = attach(function)
    for shape in ((5, 7), (1, 1), (2, 33), (0, 3), (4, 0)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        if 0 in shape and function is rows:
            continue  # a mean of nothing
        np.testing.assert_allclose(compiled(x), ORACLES[function.name](x), rtol=1e-5, atol=1e-5)


def test_computed_dims() -> None:
    @mirlo.prim_func
    def doubled(x: T.Buffer[(M,), T.f32], y: T.Out[(2 * M + 1,), T.f32]):
        for i in T.serial(2 * M + 1):
            y[i] = x.at(i // 2, outside=-1.0)

    def model(x: R.Tensor[("n",), R.f32]):
        return R.call_tir(doubled, x)

    compiled = mirlo.compile(mirlo.script(model), cache=False)
    for n in (1, 6):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(compiled(x), np.append(np.repeat(x, 2), -1.0))


@mirlo.prim_func(buffers=True)
def on_stack(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    t = T.alloc((M,), T.f32, scope="local")
    for i, j in T.grid(M, N):
        t[i] = x[i, j]
        y[i, j] = t[i]


@mirlo.prim_func(buffers=True)
def copied(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    T.copy(x, y)


@pytest.mark.parametrize(
    ("function", "message"),
    [(on_stack, "memory of scope 'local' has a size known when"), (copied, "T.copy takes buffers of sizes known when")],
    ids=["stack", "copy"],
)
def test_what_needs_numbers(function: Any, message: str) -> None:
    with pytest.raises(mirlo.MirloError, match=message):
        _called(function)


def test_types_without_a_dim() -> None:
    with pytest.raises(mirlo.MirloError, match="it takes rank 2"):
        blocks.bind([TensorType.of(("n",), "f32")])
