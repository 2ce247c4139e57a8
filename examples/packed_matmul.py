"""A matrix product written by hand, packed and tiled, against the plain nest: `python examples/packed_matmul.py`.

The plain nest reads a column of `b` for each element of the result. The other one first packs `b` into panels of `W`
columns, each contiguous, and then computes tiles of `H` rows by `W` columns: the tile stays in registers while one row
of a panel after the other passes by.
"""

import numpy as np

import mirlo
from mirlo import R, T

M = N = K = 512
H, W = 6, 64


@mirlo.prim_func(buffers=True)
def naive(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        total = T.f32(0.0)
        for k in range(K):
            total += a[i, k] * b[k, j]
        c[i, j] = total


@mirlo.prim_func
def tiled(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    panel = T.alloc((K, W), T.f32)
    tile = T.alloc((H, W), T.f32, scope="local")
    for jo in range(0, N, W):
        for k in range(K):
            for j in T.vectorized(W):
                panel[k, j] = b[k, jo + j]
        for io in range(0, M, H):
            for i in T.unrolled(H):
                for j in T.vectorized(W):
                    tile[i, j] = 0.0
            for k in range(K):
                for i in T.unrolled(H):
                    for j in T.vectorized(W):
                        tile[i, j] += a[T.min(io + i, M - 1), k] * panel[k, j]
            for i in T.unrolled(H):
                if io + i < M:
                    for j in T.vectorized(W):
                        c[io + i, jo + j] = tile[i, j]


@mirlo.script
def plain_model(a: R.Tensor[(M, K), R.f32], b: R.Tensor[(K, N), R.f32]):
    return R.call_tir(naive, a, b)


@mirlo.script
def tiled_model(a: R.Tensor[(M, K), R.f32], b: R.Tensor[(K, N), R.f32]):
    return R.call_tir(tiled, a, b)


def main() -> float:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (K, N)))
    times = []
    for model in (plain_model, tiled_model):
        executable = mirlo.compile(model)
        np.testing.assert_allclose(executable(a, b), a @ b, rtol=1e-3, atol=1e-3)
        times.append(executable.profile(a, b, repeats=3).rows[0].microseconds)
    rates = [2 * M * N * K / time / 1e3 for time in times]
    ratio = times[0] / times[1]
    print(f"plain {rates[0]:.1f} GFLOP/s, packed and tiled {rates[1]:.1f} GFLOP/s: {ratio:.0f} times as fast")
    return ratio


if __name__ == "__main__":
    main()
