"""Prim functions with dynamic sizes, and their reference results."""

from __future__ import annotations

import numpy as np

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType

N, M, K = T.dims("N", "M", "K")


@mirlo.prim_func
def rows(a: T.Buffer[(N, M), T.f32], c: T.Out[(N, M), T.f32], d: T.Out[(M, N), T.f32]):
    total = T.alloc((N,), T.f32)
    largest = T.alloc((N,), T.f32)
    for i, j in T.grid(N, M):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                total[vi] = 1.0
            total[vi] += a[vi, vj]
    for i, j in T.grid(N, M):
        with T.block("largest"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                largest[vi] = -100.0
            largest[vi] = T.max(largest[vi], a[vi, vj] * total[vi])
    for i, j in T.grid(N, M):
        with T.block("result"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = a[vi, vj] * total[vi] + largest[vi] + a.at(vi, vj - 1, outside=7.0)
    for j, i in T.grid(M, N):
        with T.block("transposed"):
            vj, vi = T.axes("SS", j, i)
            d[vj, vi] = a[vi, vj] + T.f32(vj)


@mirlo.prim_func
def product(
    a: T.Buffer[(N, K), T.f32], b: T.Buffer[(K, M), T.f32], ids: T.Buffer[(N,), T.i64], c: T.Out[(N, M), T.f32]
):
    scaled = T.alloc((N, K), T.f32)
    summed = T.alloc((N, M), T.f32)
    for i, k in T.grid(N, K):
        with T.block("scale"):
            vi, vk = T.axes("SS", i, k)
            scaled[vi, vk] = a[vi, vk] * 2.0
    for i, j, k in T.grid(N, M, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                summed[vi, vj] = 1.0
            summed[vi, vj] += scaled[vi, vk] * b[vk, vj]
    for i, j in T.grid(N, M):
        with T.block("pick"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = T.max(summed[T.min(T.max(ids[vi], 0), N - 1), vj], summed[vi, vj])


SIZES = ("n", "m", "k")


@mirlo.script
def rows_model(a: R.Tensor[("n", "m"), R.f32]):  # noqa: UP037, F821
    return R.call_tir(rows, a)


@mirlo.script
def product_model(a: R.Tensor[("n", "k"), R.f32], b: R.Tensor[("k", "m"), R.f32], ids: R.Tensor[("n",), R.i64]):  # noqa: UP037, F821
    return R.call_tir(product, a, b, ids)


def wanted_rows(a: np.ndarray) -> list[np.ndarray]:
    total = a.sum(1, keepdims=True) + 1
    largest = (a * total).max(1, keepdims=True, initial=-100)
    before = np.concatenate([np.full((len(a), 1), 7, np.float32), a], 1)[:, : a.shape[1]]
    return [a * total + largest + before, (a + np.arange(a.shape[1], dtype=np.float32)).T]


def wanted_product(a: np.ndarray, b: np.ndarray, ids: np.ndarray) -> list[np.ndarray]:
    summed = 2 * a @ b + 1
    return [np.maximum(summed[ids], summed)]


CASES = {"rows": (rows_model, rows, wanted_rows), "product": (product_model, product, wanted_product)}


def arrays_of(name: str, shape: tuple[int, int, int], rng: np.random.Generator) -> list[np.ndarray]:
    """Return inputs of these sizes: small integers, whose sums are exact in any order."""
    n, m, k = shape
    shapes = {"rows": [(n, m)], "product": [(n, k), (k, m)]}[name]
    arrays = [rng.integers(-4, 5, each).astype(np.float32) for each in shapes]
    return [*arrays, rng.integers(0, n, n)] if name == "product" else arrays


def schedule_of(name: str) -> Schedule:
    dims = {"rows": [("n", "m")], "product": [("n", "k"), ("k", "m")]}[name]
    from mirlo.dialects.core.dims import symbol

    types = [TensorType.of(tuple(map(symbol, each)), "f32") for each in dims]
    ids = [TensorType.of((symbol("n"),), "i64")] if name == "product" else []
    return Schedule.of(CASES[name][1], *types, *ids)
