"""Ranges of values, and the scales and zero points of their codes."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.frontends.tensor import Tensor, maximum, minimum


def range_with_zero(x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the least and the largest element along axes, or 0 if that lies further out."""
    return minimum(x.min(axes, keepdims=True), 0), maximum(x.max(axes, keepdims=True), 0)


def zero_point(low: Tensor, scale: Tensor, least: float, most: float) -> Tensor:
    """Return the code of 0, so that the least value has the least code."""
    return (least - (low / scale).round()).clip(least, most)
