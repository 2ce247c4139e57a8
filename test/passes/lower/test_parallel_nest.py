"""Nests of parallel loops on threads: each iteration is executed once, whatever bounds, steps and sizes are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mirlo
from mirlo import R, T
from mirlo.passes.pipeline import Pipeline
from mirlo.targets.llvm.pipeline import compile_pipeline

SIZES = st.tuples(*[st.integers(0, 9)] * 3)


def compile_nest(shape: tuple[Any, Any, Any], lows: tuple[int, ...], steps: tuple[int, ...], work: int) -> Any:
    """Compile a function that adds its input to zeros in a nest of parallel loops with these bounds and steps."""
    m, n, p = shape

    @mirlo.prim_func(buffers=True)
    def visit(x: T.Buffer[(m, n, p), T.f32], y: T.Out[(m, n, p), T.f32]):
        for i, j, k in T.grid(m, n, p):
            y[i, j, k] = 0.0
        for i in T.parallel_range(lows[0], m, steps[0]):
            for j in T.parallel_range(lows[1], n, steps[1]):
                for k in T.parallel_range(lows[2], p, steps[2]):
                    y[i, j, k] = y[i, j, k] + x[i, j, k]

    dims = tuple(dim if isinstance(dim, int) else name for dim, name in zip(shape, "mnp", strict=True))

    @mirlo.script
    def model(x: R.Tensor[dims, "f32"]):  # noqa: F821, UP037
        return R.call_tir(visit, x)

    pipeline = Pipeline(compile_pipeline()).append(f"outline-parallel{{threads=2 work={work}}}")
    return mirlo.compile(model, pipeline=str(pipeline), threads=2, cache=False)


def check(function: Any, shape: tuple[int, ...], lows: tuple[int, ...], steps: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    expected = np.zeros_like(x)
    visited = tuple(slice(low, None, step) for low, step in zip(lows, steps, strict=True))
    expected[visited] = x[visited]
    np.testing.assert_array_equal(function(x), expected)


@pytest.mark.parametrize(
    ("lows", "steps", "work"),
    [((0, 0, 0), (1, 1, 1), 1), ((1, 0, 2), (2, 3, 1), 1), ((0, 4, 0), (1, 1, 4), 2000), ((3, 1, 1), (5, 2, 3), 1)],
)
def test_dynamic_sizes(lows: tuple[int, ...], steps: tuple[int, ...], work: int) -> None:
    function = compile_nest(T.dims("m", "n", "p"), lows, steps, work)

    @settings(max_examples=60, deadline=None)
    @given(shape=SIZES)
    def run(shape: tuple[int, ...]) -> None:
        check(function, shape, lows, steps)

    run()


@pytest.mark.sample(0)
@settings(max_examples=6, deadline=None)
@given(
    shape=st.tuples(*[st.integers(1, 40)] * 3),
    lows=st.tuples(*[st.integers(0, 3)] * 3),
    steps=st.tuples(*[st.integers(1, 4)] * 3),
)
def test_static_sizes(shape: tuple[int, ...], lows: tuple[int, ...], steps: tuple[int, ...]) -> None:
    check(compile_nest(shape, lows, steps, 1), shape, lows, steps)
