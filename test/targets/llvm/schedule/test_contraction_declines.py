"""The kernels that the rule of contractions declines, and the reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import Kernel

from mirlo.dialects.tir.compute import maximum


def largest(p: Any, a: Any, b: Any) -> Any:
    return p.reduce("max", (9, 8), (7,), lambda i, j, k: a[i, k] * b[k, j])


def differences(p: Any, a: Any, b: Any) -> Any:
    return p.reduce("add", (9, 8), (7,), lambda i, j, k: a[i, k] - b[k, j])


def weighted(p: Any, a: Any, b: Any) -> Any:
    return p.reduce("add", (9, 8), (7,), lambda i, j, k: a[i, k] * (b[k, j] * a[i, k]))


def by_index(p: Any, a: Any, b: Any) -> Any:
    return p.reduce("add", (9, 8), (7,), lambda i, j, k: a[i, k] * (b[k, j] + k.cast("f32")))


def two_sums(p: Any, a: Any, b: Any) -> Any:
    c = p.reduce("add", (9, 8), (7,), lambda i, j, k: a[i, k] * b[k, j])
    return p.reduce("add", (9,), (8,), lambda i, j: c[i, j])


def spread_sum(p: Any, a: Any, b: Any) -> Any:
    c = p.reduce("add", (9, 8), (7,), lambda i, j, k: a[i, k] * b[k, j])
    return p.compute((9, 8, 2), lambda i, j, k: c[i, j] + k.cast("f32"))


def rest_of_index(p: Any, a: Any, b: Any) -> Any:
    return p.reduce("add", (9, 8), (7,), lambda i, j, k: a[i, (i + k) % 7] * b[k, j])


def columns(p: Any, a: Any, b: Any) -> Any:
    return p.reduce("add", (9, 8), (7,), lambda i, j, k: b[k, j] * b[k, j])


def one_row(p: Any, a: Any, b: Any) -> Any:
    c = p.reduce("add", (9, 8), (7,), lambda i, j, k: a[i, k] * b[k, j])
    return p.compute((9, 8), lambda i, j: maximum(c[0, j], 0.0))


def reference(body: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = a @ b
    i, k = np.arange(9)[:, None], np.arange(7)[None, :]
    return {
        largest: lambda: (a[:, :, None] * b[None]).max(1),
        differences: lambda: (a[:, :, None] - b[None]).sum(1),
        weighted: lambda: (a * a) @ b,
        by_index: lambda: a @ (b + np.arange(7)[:, None]),
        two_sums: lambda: c.sum(1),
        spread_sum: lambda: c[..., None] + np.arange(2),
        rest_of_index: lambda: a[i, (i + k) % 7] @ b,
        columns: lambda: np.broadcast_to((b * b).sum(0), (9, 8)),
        one_row: lambda: np.broadcast_to(np.maximum(c[:1], 0), (9, 8)),
    }[body]()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (largest, "the body does not add to the accumulator"),
        (differences, "the body adds something else than a product"),
        (weighted, "a factor of the product reads several operands"),
        (by_index, "the body computes with the index of an axis"),
        (two_sums, "not exactly one reduction (reductions=2)"),
        (spread_sum, "a block reads the contraction's result in another order"),
        (rest_of_index, "an operand's position is not linear in the axes"),
        (columns, "an axis of the output indexes neither operand"),
        (one_row, "a block reads the contraction's result in another order"),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_declines(body: Any, reason: str) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(s).astype(np.float32) for s in ((9, 7), (7, 8)))
    kernel = Kernel(body, [(a.shape, "f32"), (b.shape, "f32")], "avx2")
    found = [text for text in kernel.declines if text.startswith("contraction")]
    assert len(found) == 1 and reason in found[0], kernel.declines
    np.testing.assert_allclose(kernel(a, b), reference(body, a, b), rtol=1e-4, atol=1e-4)
