"""Buffers in TVM's spelling, as users paste them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import R, T


@mirlo.script
def model(x: R.Tensor[(4, 8), R.f32]):
    return R.relu(x)


@pytest.mark.parametrize("loops", [False, True])
def test_buffers(loops: bool) -> None:
    @mirlo.prim_func(buffers=loops)
    def doubled(x: T.Buffer((4, 8), "float32"), y: T.Out((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            y[i, j] = x[i, j] * 2.0

    def rule(op: Any, b: Any) -> Any:
        return b.call_prim_func(doubled, op.x)

    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    np.testing.assert_array_equal(mirlo.compile(model, legalize={"relax.relu": rule}, cache=False)(x), x * 2)


def test_outputs_are_what_is_stored_to() -> None:
    """TVM's functions have no mark for outputs."""

    @mirlo.prim_func
    def product(a: T.Buffer((4, 8), "float32"), b: T.Buffer((8, 4), "float32"), c: T.Buffer((4, 4), "float32")):
        for i, j, k in T.grid(4, 4, 8):
            with T.block("c"):
                vi, vj, vk = T.axes("SSR", i, j, k)
                with T.init():
                    c[vi, vj] = 0.0
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]

    assert [p.name for p in product.outputs] == ["c"]

    @mirlo.script
    def graph(a: R.Tensor[(4, 8), R.f32], b: R.Tensor[(8, 4), R.f32]):
        return R.call_tir(product, a, b)

    a, b = (np.random.default_rng(0).standard_normal(shape, np.float32) for shape in ((4, 8), (8, 4)))
    np.testing.assert_allclose(mirlo.compile(graph, cache=False)(a, b), a @ b, rtol=1e-4, atol=1e-5)


def test_numbers_of_arguments_are_checked() -> None:
    with pytest.raises(mirlo.MirloError, match="a buffer has a shape and an element type"):

        @mirlo.prim_func
        def wrong(x: T.Buffer((4, 8)), y: T.Out[(4, 8), "f32"]):
            for i, j in T.grid(4, 8):
                y[i, j] = x[i, j]


def test_an_attribute_that_is_missing() -> None:
    eps = T.attrs("eps")

    @mirlo.prim_func
    def peak(x: T.Buffer[(4, 8), "f32"], y: T.Out[(4, 8), "f32"]):
        for i, j in T.grid(4, 8):
            y[i, j] = x[i, j] + eps

    with pytest.raises(mirlo.MirloError, match=r"'peak' needs its attribute 'eps': .*attributes=\{'eps': \.\.\.\}"):
        mirlo.compile(model, legalize={"relax.relu": lambda op, b: b.call_prim_func(peak, op.x)}, cache=False)
