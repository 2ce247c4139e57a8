"""Weights that come from memory: the next panel is fetched while this one is computed with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels import Kernel

from mirlo.targets.llvm.machine import Machine

SMALL_CACHE = Machine("small cache", 64, 32, masked=True, l1_bytes=4096, l2_bytes=8192)


@pytest.mark.parametrize(("m", "n", "k"), [(40, 128, 50), (33, 100, 64), (5, 96, 40)])
def test_products_from_panels(m: int, n: int, k: int) -> None:
    width = 32

    def body(p: Any, x: Any, w: Any) -> Any:
        return p.reduce("add", (m, n), (k,), lambda i, j, kk: x[i, kk] * w[j // width, kk, j % width])

    generator = np.random.default_rng(0)
    x = generator.standard_normal((m, k)).astype(np.float32)
    w = generator.standard_normal((-(-n // width), k, width)).astype(np.float32)
    kernel = Kernel(body, [(x.shape, "f32"), (w.shape, "f32")], SMALL_CACHE)
    want = x @ w.transpose(1, 0, 2).reshape(k, -1)[:, :n]
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-4)
    # One tile of rows reads each panel once, as it comes: there is nothing to spread.
    assert ("memref.prefetch" in kernel.text) == (m > 16)
