"""Comparison of trees of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


def require_equal(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    """Compare trees of arrays."""
    import jax

    ours, theirs = (jax.tree_util.tree_flatten(tree) for tree in (found, wanted))
    assert ours[1] == theirs[1]
    for a, b in zip(ours[0], theirs[0], strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(np.asarray(a, wide), np.asarray(b, wide), rtol=tolerance, atol=tolerance)
