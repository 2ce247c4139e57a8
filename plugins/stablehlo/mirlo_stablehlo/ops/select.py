"""`select_and_scatter`, the gradient of pooling."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mirlo.extend.frontend import DTYPES, Tensor, UnsupportedOperation, where
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.ops.shape import padded
from mirlo_stablehlo.regions import apply, combiner
from mirlo_stablehlo.registry import converter

MAX_WINDOW = 1024
"""Most elements of a window, since each creates a slice of the operand."""


@dataclass(frozen=True)
class _Tap:
    """An offset within a window, the same in all windows."""

    offsets: tuple[int, ...]
    valid: np.ndarray
    """The windows in which the tap is not padding, as a shape that broadcasts to the source's."""


class _Windows:
    """The windows of an operand, and the element that each selects."""

    def __init__(self, op: StablehloOperation) -> None:
        self.op = op
        self.x, self.source, self.start = op.operands
        self.rank = self.x.rank
        ones = [1] * self.rank
        self.window, self.strides = op.ints("window_dimensions", ones), op.ints("window_strides", ones)
        padding = op.ints("padding", [0] * (2 * self.rank))
        self.low, self.high = padding[::2], padding[1::2]
        self.select, self.scatter = (region.blocks[0] for region in op.op.regions)
        # Along the other axes, of any size, each element is a window.
        self.axes = [
            i for i in range(self.rank) if (self.window[i], self.strides[i], self.low[i], self.high[i]) != (1, 1, 0, 0)
        ]
        if any(
            not isinstance(size, int) for axis in self.axes for size in (self.x.shape[axis], self.source.shape[axis])
        ):
            raise UnsupportedOperation("has windows over a dynamic dim")
        if prod(self.window) > MAX_WINDOW:
            raise UnsupportedOperation(f"has windows of {prod(self.window)} elements: up to {MAX_WINDOW} are supported")

    def size(self, axis: int) -> int:
        size = self.x.shape[axis]
        assert isinstance(size, int)
        return size

    def count(self, axis: int) -> int:
        """Return the number of windows along an axis."""
        count = self.source.shape[axis]
        assert isinstance(count, int)
        return count

    def taps(self) -> Iterator[_Tap]:
        """Return the taps of a window, the last dim varying fastest."""
        for offsets in itertools.product(*(range(size) for size in self.window)):
            valid = np.ones([1] * self.rank, bool)
            for axis in self.axes:
                at = offsets[axis] + self.strides[axis] * np.arange(self.count(axis)) - self.low[axis]
                shape = [-1 if i == axis else 1 for i in range(self.rank)]
                valid = valid & ((at >= 0) & (at < self.size(axis))).reshape(shape)
            yield _Tap(offsets, valid)

    def chosen(self) -> Tensor:
        """Return the index of the tap that each window selects."""
        op, index = self.op, DTYPES["i32"]
        zeros = [0] * self.rank
        wide = padded(op, self.x, op.constant(0, self.x.dtype), self.low, self.high, zeros)
        best: Tensor | None = None
        number, seen = op.constant(0, index, self.source.shape), np.zeros([1] * self.rank, bool)
        for at, tap in enumerate(self.taps()):
            new = self._sliced(wide, tap.offsets)
            if best is None:
                best, seen = new, tap.valid
                continue
            (keep,) = apply(op, self.select, [best, new])
            keep = self._masked(operator.or_, self._masked(operator.and_, keep, seen), ~tap.valid)
            best = where(keep, best, new)
            number = where(keep, number, at)
            seen = seen | tap.valid
        return number

    def _masked(self, combine: Callable[[Tensor, Tensor], Tensor], flags: Tensor, mask: np.ndarray) -> Tensor:
        """Return bools combined by `and` or `or` with a mask, unless the mask has no effect."""
        if bool(np.all(mask == (combine is operator.and_))):
            return flags
        return combine(flags, self.op.constant(mask, "bool"))

    def _sliced(self, wide: Tensor, offsets: Sequence[int]) -> Tensor:
        """Return the element of each window at one tap."""
        if not self.axes:
            return wide
        sizes = [self.count(i) if i in self.axes else dim for i, dim in enumerate(wide.shape)]
        return wide.part(offsets, sizes, self.strides)

    def spread(self, values: Tensor, offsets: Sequence[int]) -> Tensor:
        """Scatter a value per window to the operand's element at one tap of that window."""
        low, high, interior = ([0] * self.rank for _ in range(3))
        for axis in self.axes:
            interior[axis] = self.strides[axis] - 1
            low[axis] = offsets[axis] - self.low[axis]
            high[axis] = self.size(axis) - low[axis] - (self.count(axis) - 1) * self.strides[axis] - 1
        return padded(self.op, values, self.op.constant(0, values.dtype), low, high, interior)


@converter("select_and_scatter")
def select_and_scatter(op: StablehloOperation) -> Tensor:
    """Convert `select_and_scatter`: find the tap that each window selects, then add up the values of each tap."""
    windows = _Windows(op)
    if any(size == 0 for size in windows.source.shape):
        return windows.start.reshape(()).expand(windows.x.shape)
    is_sum = combiner(windows.scatter) == "add" and windows.source.dtype.is_float
    chosen, total = windows.chosen(), None if is_sum else windows.start.expand(windows.x.shape)
    for at, tap in enumerate(windows.taps()):
        here = chosen.equals(at)
        values = where(here, windows.source, 0)
        spread = windows.spread(values, tap.offsets)
        if total is None:
            total = spread
        elif is_sum:
            total = total + spread
        else:
            flags = windows.spread(here.cast("i8"), tap.offsets)
            (both,) = apply(op, windows.scatter, [total, spread])
            total = where(flags.cast("bool"), both, total)
    assert total is not None
    is_zero = windows.start.constant is not None and not np.any(windows.start.constant)
    return total if not is_sum or is_zero else total + windows.start
