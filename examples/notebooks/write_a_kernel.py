# %% [markdown]
# # Write a kernel
#
# Write loops in Python, let Mirlo schedule them, then arrange them yourself and compare.

# %%
import numpy as np

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType

# %% [markdown]
# The function is parsed, never executed. Its dims are symbols: one definition serves all sizes.

# %%
M, N, K = T.dims("M", "N", "K")


@mirlo.prim_func
def matmul(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j, k in T.grid(M, N, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


SIZE = 192


@mirlo.script
def model(a: R.Tensor[(SIZE, SIZE), R.f32], b: R.Tensor[(SIZE, SIZE), R.f32]):
    return R.relu(R.call_tir(matmul, a, b) + 1.0)


# %% [markdown]
# Product, sum and `relu` become one kernel, in vectors, with panels and tiles for this CPU.

# %%
a, b = np.random.default_rng(0).standard_normal((2, SIZE, SIZE), np.float32)
expected = np.maximum(a @ b + 1, 0)
compiled = mirlo.compile(model)
np.testing.assert_allclose(compiled(a, b), expected, rtol=1e-3, atol=1e-3)
print(compiled.profile(a, b).table())

# %% [markdown]
# Now by hand. Each primitive preserves the result, or says why it does not apply. `print(s)` shows the loops.

# %%
kind = TensorType.of((SIZE, SIZE), "f32")
s = Schedule.of(matmul, kind, kind)
i, j, k = s.loops("matmul")
jo, io, ji, ii = s.tile((j, i), (32, 6))
jv, jl = s.split(ji, (None, 16))
s.reorder(jo, io, k, ii, jv, jl)
tile = s.cache_write("matmul", "local")
s.reverse_compute_at(tile, io)
s.decompose_reduction("matmul", k)
for loop in (ii, jv):
    s.unroll(loop)
s.vectorize(jl)
print(s)


# %%
@mirlo.script
def product(a: R.Tensor[(SIZE, SIZE), R.f32], b: R.Tensor[(SIZE, SIZE), R.f32]):
    return R.call_tir(matmul, a, b)


by_hand = mirlo.compile(product, schedules={"matmul": s})
np.testing.assert_allclose(by_hand(a, b), a @ b, rtol=1e-3, atol=1e-3)
print(by_hand.profile(a, b).table())
