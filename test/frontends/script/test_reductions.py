"""Reductions of any kind are right, whatever the schedules make of their blocks."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mirlo

M, N, K = 24, 40, 72

MODULE = """
@mirlo.script
class Module:
    @T.prim_func
    def update(a: T.Buffer[(24, 72), "f32"], b: T.Buffer[(72, 40), "f32"], c: T.Out[(24, 40), "f32"]):
        for i, j, k in T.grid(24, 40, 72):
            with T.block("update"):
                vi, vj, vk = T.axes("SSR", i, j, k)
                with T.init():
                    c[vi, vj] = 1.0
                c[vi, vj] = UPDATE

    @R.function
    def main(a: R.Tensor[(24, 72), "f32"], b: R.Tensor[(72, 40), "f32"]):
        return R.relu(R.call_tir(update, a, b))
"""

UPDATES = {
    "c + a * b": lambda c, a, b: c + a * b,
    "c * 0.5 + a * b": lambda c, a, b: c * 0.5 + a * b,
    "c + a * b * c": lambda c, a, b: c + a * b * c,
    "a * b - c": lambda c, a, b: a * b - c,
    "c * a + b": lambda c, a, b: c * a + b,
    "T.max(c, a * b)": lambda c, a, b: np.maximum(c, a * b),
    "c * c * 0.1 + a * b": lambda c, a, b: c * c * 0.1 + a * b,
    "a * b": lambda c, a, b: a * b,
    "(c + a * b) * 0.9": lambda c, a, b: (c + a * b) * 0.9,
    "c + a if b > 0 else c * 0.9": lambda c, a, b: np.where(b > 0, c + a, c * 0.9),
}


@pytest.mark.parametrize("update", UPDATES)
def test_update(update) -> None:
    elements = {"c": "c[vi, vj]", "a": "a[vi, vk]", "b": "b[vk, vj]"}
    text = re.sub(r"\b[abc]\b", lambda found: elements[found[0]], update)
    executable = mirlo.compile(mirlo.parse_script(MODULE.replace("UPDATE", text)))
    generator = np.random.default_rng(0)
    a, b = (0.3 * generator.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (K, N)))
    c = np.ones((M, N))
    for k in range(K):
        c = UPDATES[update](c, a[:, k : k + 1].astype(np.float64), b[k : k + 1].astype(np.float64))
    np.testing.assert_allclose(executable(a, b), np.maximum(c, 0), rtol=1e-3, atol=1e-3)
