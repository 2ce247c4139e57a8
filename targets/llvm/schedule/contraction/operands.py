"""Operands of a contraction as the kernel reads them: out of bounds they are skipped, or read from a padded copy."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.analysis import TensorAccess
from mirlo.passes.schedule.blocks.contraction.body import ProductInput, is_zero
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, row_major
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class WindowIndex:
    """An index `stride * position + step * tap + offset` that may be outside of `0 .. size - 1`."""

    position: BlockAxis
    tap: BlockAxis
    stride: int
    step: int
    offset: int
    size: int

    def holds(self, position: int, tap: int) -> bool:
        """Return whether this tap is in bounds."""
        return 0 <= self.stride * position + self.step * tap + self.offset < self.size

    def interior(self) -> tuple[int, int]:
        """Return the positions `first .. stop - 1` for which every tap is in bounds."""
        first = -(self.offset // self.stride) if self.offset < 0 else 0
        last = (self.size - 1 - self.offset - self.step * (self.tap.extent - 1)) // self.stride
        return first, max(first, min(last + 1, self.position.extent))


@dataclass(frozen=True)
class ContractionOperand:
    """An operand of the contraction, as the kernel reads it."""

    factor: ProductInput
    access: TensorAccess
    form: IndexExpr
    """Position in the buffer that the kernel reads: the operand, or its padded copy."""
    padded_shape: tuple[int, ...] | None = None
    """Shape of the padded copy, if there is one."""
    padding: tuple[int, ...] = ()
    """Padding before the first element, in each dim of the copy."""
    is_converted: bool = False
    """Whether the kernel reads a converted copy."""
    guards: tuple[WindowIndex, ...] = ()
    """Windows whose products out of bounds are skipped by the bounds of the loop over taps."""
    edge: WindowIndex | None = None
    """The window whose products out of bounds are skipped tile by tile."""

    @property
    def padded_dims(self) -> list[int]:
        """Return the dims along which the copy of the operand has a border; none if there is no such copy."""
        if self.padded_shape is None:
            return []
        pairs = enumerate(zip(self.padded_shape, self.access.shape, strict=True))
        return [dim for dim, (size, old) in pairs if size != old or self.padding[dim]]

    def needs_cast(self, kind: ir.Type) -> bool:
        """Return whether an element must be converted to this type before the product."""
        return bool(self.factor.body_ops) or self.access.element_type != kind


def _are_out_of_bounds(ranges: Sequence[tuple[D.Dim, D.Dim]], shape: Sequence[D.Dim]) -> list[bool]:
    """Return which dims may be read out of bounds, among them those of which dynamic sizes decide."""
    return [
        low < 0 or not D.is_certain(partial(operator.lt, high, size))
        for (low, high), size in zip(ranges, shape, strict=True)
    ]


def plan_operand(
    factor: ProductInput,
    access: TensorAccess,
    axes: Sequence[BlockAxis],
    guarded: Collection[int] = (),
    edge: int | None = None,
) -> ContractionOperand | Decline:
    """Plan how the kernel reads an operand.

    If the padding value is zero, windows over the axes in `guarded`, and the window over the axis `edge`, are read
    in place; every other dim with accesses out of bounds is padded in a copy.
    """
    extents = {axis.id: axis.extent for axis in axes}
    whole = ContractionOperand(factor, access, row_major(access.dims, access.shape))
    if access.outside is None and not all(isinstance(size, int) for size in (*access.shape, *extents.values())):
        return whole  # the operand declares that it has no padding: no access is out of bounds
    ranges = [dim.range(extents) for dim in access.dims]
    beyond = _are_out_of_bounds(ranges, access.shape)
    if not any(beyond):
        return whole
    if access.outside is None:
        return decline("an operand is read beyond its edges")
    shape, before, dims = list(access.shape), [0] * len(access.dims), list(access.dims)
    guards, edge_window = list[WindowIndex](), None
    for d, (low, high) in enumerate(ranges):
        if not beyond[d]:
            continue
        window = _window(access.dims[d], access.shape[d], axes) if is_zero(access.outside) else None
        if window is not None and window.position.id in guarded:
            guards.append(window)
        elif window is not None and window.position.id == edge:
            edge_window = window
        else:
            # A map may pass the end of the tensor only, and begin after its start.
            low = min(low, 0)
            shape[d], before[d], dims[d] = high - low + 1, -low, access.dims[d] + -low
    is_padded = tuple(shape) != access.shape or any(count != 0 for count in before)
    if is_padded and not all(isinstance(size, int) for size in before):
        return decline("how far before its start an operand is read is known at run time only")
    return ContractionOperand(
        factor, access, row_major(dims, shape), tuple(shape) if is_padded else None,
        tuple(before) if is_padded else (), guards=tuple(guards), edge=edge_window,
    )  # fmt: skip


def _window(index: IndexExpr, size: int, axes: Sequence[BlockAxis]) -> WindowIndex | None:
    """Match an index as a window: one spatial and one reduction axis, both with positive steps."""
    moving = sorted((axis for axis in axes if index.stride(axis) != 0), key=lambda axis: axis.reduce)
    if [axis.reduce for axis in moving] != [False, True] or any(index.stride(axis) < 0 for axis in moving):
        return None
    position, tap = moving
    return WindowIndex(position, tap, index.stride(position), index.stride(tap), index.constant, size)
