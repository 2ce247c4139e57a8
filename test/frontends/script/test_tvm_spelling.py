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
