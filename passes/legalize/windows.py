"""Sliding windows: positions of their elements, shared by convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import le
from typing import TypeVar

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import channel_axis, padding_pairs, per_dim, spatial_axes
from mirlo.dialects.tir.compute import INDEX, Expr, constant, maximum, minimum
from mirlo.runtime.records import dataclass

Member = TypeVar("Member")


@dataclass(frozen=True)
class SlidingWindows:
    """Windows over the spatial dims of a batch of images."""

    layout: str
    sizes: tuple[Dim, ...]
    counts: tuple[Dim, ...]
    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[Dim, ...]
    ends: tuple[Dim, ...]

    @staticmethod
    def of(
        op: ir.OpView, shape: Sequence[Dim], kernel: Sequence[Dim], output: Sequence[Dim], layout: str
    ) -> SlidingWindows:
        """Return the windows of an operator with the attributes strides, padding and dilations."""
        rank = len(shape)
        spatial = spatial_axes(layout, rank)
        pads = padding_pairs(op.padding, rank - 2)
        return SlidingWindows(
            layout,
            sizes=tuple(shape[i] for i in spatial),
            counts=tuple(output[i] for i in spatial),
            kernel=tuple(kernel),
            strides=per_dim(op.strides, rank - 2, 1, 1, "strides"),
            dilations=per_dim(op.dilations, rank - 2, 1, 1, "dilations"),
            begins=tuple(begin for begin, _ in pads),
            ends=tuple(end for _, end in pads),
        )

    def split(self, axes: Sequence[Expr]) -> tuple[Expr, Expr, Sequence[Expr]]:
        """Return batch, channel and spatial axes of the output."""
        channel = channel_axis(self.layout, len(self.sizes) + 2)
        return axes[0], axes[channel], [axes[i] for i in spatial_axes(self.layout, len(self.sizes) + 2)]

    def join(self, batch: Member, channel: Member, spatial: Sequence[Member]) -> list[Member]:
        """Return indices in the layout."""
        return [batch, channel, *spatial] if self.layout == "NC*" else [batch, *spatial, channel]

    def source(self, at: Sequence[Expr], inner: Sequence[Expr]) -> list[Expr]:
        """Return the position of element `inner` of window `at`; it may be outside."""
        result = []
        for i, (o, k) in enumerate(zip(at, inner, strict=True)):
            index = o * self.strides[i] if self.strides[i] > 1 else o
            if self.kernel[i] != 1:
                index = index + (k * self.dilations[i] if self.dilations[i] > 1 else k)
            result.append(index - self.begins[i])
        return result

    @property
    def leaves(self) -> bool:
        """Return whether some window extends beyond an edge."""
        return any(begin != 0 for begin in self.begins) or not D.is_certain(
            lambda: all(self._reach(i) <= size for i, size in enumerate(self.sizes))
        )

    def _reach(self, i: int) -> Dim:
        """Return one past the last element that a window of dim `i` reads."""
        return (self.counts[i] - 1) * self.strides[i] + (self.kernel[i] - 1) * self.dilations[i] + 1 - self.begins[i]

    def occupied(self, at: Sequence[Expr], padded: bool) -> Expr | Dim:
        """Count the elements of window `at` inside of the operand; with `padded`, including padding."""
        fixed: Dim = 1
        varying: Expr | None = None
        for i, o in enumerate(at):
            low = -self.begins[i] if padded else 0
            high = self.sizes[i] + (self.ends[i] if padded else 0)
            if low <= -self.begins[i] and D.is_certain(partial(le, self._reach(i), high)):
                fixed = fixed * self.kernel[i]
                continue
            count = self._count(i, o, low, high)
            varying = count if varying is None else varying * count
        if varying is None:
            return fixed
        return varying if fixed == 1 else varying * fixed

    def _count(self, i: int, o: Expr, low: Dim, high: Dim) -> Expr:
        """Count the k of the window with low <= start + k * dilation < high."""
        start = o * self.strides[i] - self.begins[i]
        dilation = self.dilations[i]
        first = maximum((constant(low, INDEX) - start + (dilation - 1)) // dilation, 0)
        past = minimum((constant(high, INDEX) - start + (dilation - 1)) // dilation, self.kernel[i])
        return past - first
