"""The schedules of target gpu, executed: random programs, and sizes that tiles and rows do not divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import ON_DEVICES
from gpu_programs import assert_agree, prim_program, stages_of
from random_program import Program as RandomProgram
from scheduled import random_array

from mirlo.dialects.tir.compute import exp, maximum

pytestmark = ON_DEVICES


@pytest.mark.sample(0)
def test_random_programs(target: str) -> None:
    programs = []
    for seed in range(64):
        program, generator = RandomProgram(seed), np.random.default_rng(seed)
        arrays = [random_array(kind, generator) for kind in program.inputs]
        programs.append(prim_program(f"random_{seed}", program.build, arrays))
    assert_agree(programs, target)


def arrays_of(*shapes: tuple[int, ...], dtype: Any = np.float32) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def softmax(p: Any, x: Any) -> Any:
    rows, n = x.shape
    peak = p.reduce("max", (rows,), (n,), lambda i, j: x[i, j])
    shifted = p.compute((rows, n), lambda i, j: exp(x[i, j] - peak[i]))
    total = p.reduce("add", (rows,), (n,), lambda i, j: shifted[i, j])
    return p.compute((rows, n), lambda i, j: shifted[i, j] / total[i])


@pytest.mark.sample(0)
@pytest.mark.parametrize("shape", [(3, 1000), (37, 33), (5, 8), (1, 9001), (130, 64), (2, 257)])
def test_rows(target: str, shape: tuple[int, int]) -> None:
    sums = prim_program(
        "sums", lambda p, x: p.reduce("add", x.shape[:1], x.shape[1:], lambda i, j: x[i, j] * x[i, j]), arrays_of(shape)
    )
    assert_agree([prim_program("softmax", softmax, arrays_of(shape)), sums], target)


def product(p: Any, x: Any, y: Any, bias: Any) -> Any:
    (m, k), n = x.shape, y.shape[1]
    total = p.reduce("add", (m, n), (k,), lambda i, j, s: x[i, s] * y[s, j])
    return p.compute((m, n), lambda i, j: maximum(total[i, j] + bias[j], 0.0))


@pytest.mark.sample(0)
@pytest.mark.parametrize("size", [(64, 64, 64), (70, 50, 33), (9, 200, 17), (1, 40, 100), (33, 8, 65), (130, 3, 20)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(target: str, size: tuple[int, int, int], dtype: Any) -> None:
    m, n, k = size
    assert_agree([prim_program("product", product, arrays_of((m, k), (k, n), (n,), dtype=dtype))], target)


@pytest.mark.parametrize("size", [(16, 20, 8192), (1, 12, 32768)])
def test_products_with_long_sums_in_parts(target: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    program = prim_program("product", product, arrays_of((m, k), (k, n), (n,)))
    assert_agree([program], target)
    assert " in " in stages_of(program, target)


@pytest.mark.sample(0)
def test_products_in_batches_and_transposed(target: str) -> None:
    def batched(p: Any, x: Any, y: Any) -> Any:
        b, m, k = x.shape
        return p.reduce("add", (b, m, y.shape[1]), (k,), lambda n, i, j, s: x[n, i, s] * y[n, j, s])

    def transposed(p: Any, x: Any, y: Any) -> Any:
        total = p.reduce("add", (x.shape[1], y.shape[1]), (x.shape[0],), lambda i, j, s: x[s, i] * y[s, j])
        return p.compute((y.shape[1], x.shape[1]), lambda j, i: total[i, j] * 2.0)

    programs = [
        prim_program("batched", batched, arrays_of((3, 20, 40), (3, 30, 40))),
        prim_program("transposed", transposed, arrays_of((40, 20), (40, 30))),
    ]
    assert_agree(programs, target)


@pytest.mark.sample(0)
@pytest.mark.parametrize("channels_last", [True, False])
def test_convolutions_with_padding_and_stride(target: str, channels_last: bool) -> None:
    def conv(p: Any, x: Any, w: Any) -> Any:
        out, inner, _, _ = w.shape

        def element(n: Any, o: Any, y: Any, z: Any, i: Any, r: Any, s: Any) -> Any:
            where = (n, y * 2 + r - 1, z * 2 + s - 1, i) if channels_last else (n, i, y * 2 + r - 1, z * 2 + s - 1)
            return x.at(*where, outside=0.0) * w[o, i, r, s]

        if channels_last:
            return p.reduce(
                "add", (2, 5, 6, out), (inner, 3, 3), lambda n, y, z, o, i, r, s: element(n, o, y, z, i, r, s)
            )
        return p.reduce("add", (2, out, 5, 6), (inner, 3, 3), element)

    shape = (2, 10, 11, 12) if channels_last else (2, 12, 10, 11)
    assert_agree([prim_program("conv", conv, arrays_of(shape, (20, 12, 3, 3)))], target)
