"""What is around attention: heads and their order, scales of scores."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.tensor import Tensor


def split_heads(x: Tensor, heads: Dim, size: Dim) -> Tensor:
    """Return [batch, heads, length, size] of [batch, length, heads * size]."""
    return swap_heads(x.reshape((*x.shape[:2], heads, size)))


def join_heads(x: Tensor) -> Tensor:
    """Return [batch, length, heads * size] of [batch, heads, length, size]."""
    batch, heads, length, size = x.shape
    return swap_heads(x).reshape((batch, length, heads * size))


def swap_heads(x: Tensor) -> Tensor:
    """Exchange the second dim and the third one."""
    return x.permute((0, 2, 1, 3))
