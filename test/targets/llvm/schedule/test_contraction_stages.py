"""Functions that compute more than one contraction and what follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernels import Kernel

from mirlo.dialects.tir.compute import exp, maximum


def rng(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def build(body: Any, *arrays: np.ndarray, rule: str = "staged_contractions") -> tuple[Kernel, Any]:
    kernel = Kernel(body, [(a.shape, "f32") for a in arrays], "avx2")
    assert kernel.rule == rule
    return kernel, kernel(*arrays)


def test_two_products() -> None:
    def body(p: Any, a: Any, b: Any, c: Any) -> Any:
        d = p.reduce("add", (20, 40), (30,), lambda i, j, k: a[i, k] * b[k, j])
        e = p.compute((20, 40), lambda i, j: maximum(d[i, j], 0.0))
        return p.reduce("add", (20, 50), (40,), lambda i, j, k: e[i, k] * c[k, j])

    a, b, c = rng(20, 30), rng(30, 40), rng(40, 50)
    kernel, got = build(body, a, b, c)
    np.testing.assert_allclose(got, np.maximum(a @ b, 0) @ c, rtol=1e-4, atol=1e-3)
    assert 'stages = "contraction, contraction"' in kernel.schedule


def test_attention() -> None:
    def body(p: Any, q: Any, k: Any, v: Any) -> Any:
        s = p.reduce("add", (2, 33, 33), (16,), lambda h, i, j, d: q[h, i, d] * k[h, j, d])
        top = p.reduce("max", (2, 33), (33,), lambda h, i, j: s[h, i, j])
        e = p.compute((2, 33, 33), lambda h, i, j: exp(s[h, i, j] - top[h, i]))
        total = p.reduce("add", (2, 33), (33,), lambda h, i, j: e[h, i, j])
        w = p.compute((2, 33, 33), lambda h, i, j: e[h, i, j] / total[h, i])
        return p.reduce("add", (2, 33, 16), (33,), lambda h, i, d, j: w[h, i, j] * v[h, j, d])

    q, k, v = rng(2, 33, 16), rng(2, 33, 16), rng(2, 33, 16)
    _, got = build(body, q, k, v, rule="blocked")
    s = q @ k.transpose(0, 2, 1)
    e = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-4)


def test_an_operand_computed_before() -> None:
    def body(p: Any, a: Any, b: Any) -> Any:
        c = p.compute((20, 30), lambda i, k: a[i, k] * 2.0 + 1.0)
        d = p.reduce("add", (20, 40), (30,), lambda i, j, k: c[i, k] * b[k, j])
        return p.compute((20, 40), lambda i, j: d[i, j] - 1.0)

    a, b = rng(20, 30), rng(30, 40)
    kernel, got = build(body, a, b)
    np.testing.assert_allclose(got, (2 * a + 1) @ b - 1, rtol=1e-4, atol=1e-3)
    assert 'stages = "elementwise, contraction"' in kernel.schedule
