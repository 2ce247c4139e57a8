"""Operands of blocks as strided arrays: elements are read and written in the order of axes, without indices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.memory import Array
from mirlo.runtime.records import dataclass

Ranges = Mapping[int, range]
"""The indices of each axis that are read or written."""


@dataclass(frozen=True)
class _Term:
    """A part of an index: a factor times an axis, its quotient by a divisor, or the rest."""

    axis: int
    factor: int
    divisor: int = 1
    is_rest: bool = False


@dataclass(frozen=True)
class _Step:
    """The elements in memory between indices of an axis that differ by `divisor`, and by one below it."""

    divisor: int
    outer: int
    inner: int


class StridedOperand:
    """An operand whose map is a sum of axes, and of quotients and rests of axes by a constant."""

    def __init__(
        self, steps: Mapping[int, _Step], start: int, before: Sequence[int], padded: Sequence[int], shape: Sequence[int]
    ):  # fmt: skip
        self._steps, self._start = steps, start
        self._before, self._padded, self._shape = before, padded, shape

    @staticmethod
    def of(map_: Any, shape: Sequence[int], domain: Sequence[int], has_edges: bool) -> StridedOperand | None:
        """Return the operand of a map, None if it is another one; with `has_edges`, it is zero beyond its edges."""
        indices = [list(_terms(expression, 1)) for expression in map_.results]
        if any(term is None for terms in indices for term in terms):
            return None
        terms = [[term for term in each if term is not None] for each in indices]
        divisors: dict[int, set[int]] = {axis: set() for axis in range(len(domain))}
        for term in (term for each in terms for term in each if term.axis >= 0 and term.divisor > 1):
            divisors[term.axis].add(term.divisor)
        if any(len(each) > 1 for each in divisors.values()):
            return None
        divisor = {axis: max(each, default=1) for axis, each in divisors.items()}
        ends = [_ends(each, domain, divisor) for each in terms]
        before = [max(0, -least) for least, _ in ends]
        padded = [first + max(size, most + 1) for first, size, (_, most) in zip(before, shape, ends, strict=True)]
        if not has_edges and list(padded) != list(shape):
            return None
        strides = [math.prod(padded[i + 1 :]) for i in range(len(padded))]
        outer, inner = dict.fromkeys(divisor, 0), dict.fromkeys(divisor, 0)
        start = sum(first * stride for first, stride in zip(before, strides, strict=True))
        for each, stride in zip(terms, strides, strict=True):
            for term in each:
                step = term.factor * stride
                if term.axis < 0:
                    start += step
                elif term.divisor == 1:
                    outer[term.axis] += step * divisor[term.axis]
                    inner[term.axis] += step
                elif term.is_rest:
                    inner[term.axis] += step
                else:
                    outer[term.axis] += step
        steps = {axis: _Step(divisor[axis], outer[axis], inner[axis]) for axis in divisor}
        return StridedOperand(steps, start, before, padded, shape)

    def divisor(self, axis: int) -> int:
        """Return the number of which the first index of a range is a multiple."""
        return self._steps[axis].divisor

    def is_contiguous(self, axis: int) -> bool:
        """Return whether consecutive indices of an axis are consecutive elements."""
        return self._steps[axis].inner == 1

    def padded(self, numbers: Array) -> Array:
        """Return the elements with zeros beyond the edges, as far as they are read."""
        if list(self._padded) == list(self._shape):
            return numbers
        result = np.zeros(self._padded, numbers.dtype)
        inside = tuple(slice(first, first + size) for first, size in zip(self._before, self._shape, strict=True))
        result[inside] = numbers.reshape(self._shape)
        return result.reshape(-1)

    def view(self, numbers: Array, axes: Sequence[int], ranges: Ranges) -> Array:
        """Return the elements of `padded` by the indices of axes: two dims for an axis with a divisor."""
        start, extents, strides = self._start, [], []
        for axis in axes:
            step, part = self._steps[axis], ranges[axis]
            start += part.start // step.divisor * step.outer
            extents.append(-(-len(part) // step.divisor))
            strides.append(step.outer)
            if step.divisor > 1:
                extents.append(step.divisor)
                strides.append(step.inner)
        size = numbers.itemsize
        view: Array = np.ndarray(extents, numbers.dtype, numbers.data, start * size, [each * size for each in strides])
        return view

    def is_whole(self, axes: Sequence[int], ranges: Ranges) -> bool:
        """Return whether a view has no more elements than the ranges: each is a multiple of its divisor."""
        return all(len(ranges[axis]) % self._steps[axis].divisor == 0 for axis in axes)

    def without_surplus(self, elements: Array, axes: Sequence[int], ranges: Ranges) -> Array:
        """Return the elements of a contiguous copy of a view, in one dim for each axis."""
        extents = [-(-len(ranges[axis]) // self.divisor(axis)) * self.divisor(axis) for axis in axes]
        return elements.reshape(extents)[tuple(slice(len(ranges[axis])) for axis in axes)]


def _ends(terms: Sequence[_Term], domain: Sequence[int], divisor: Mapping[int, int]) -> tuple[int, int]:
    """Return the least and the greatest index, where axes end at multiples of their divisors."""
    least = most = 0
    for term in terms:
        first, last = (0, _last(term, domain, divisor)) if term.axis >= 0 else (1, 1)
        least += min(term.factor * first, term.factor * last)
        most += max(term.factor * first, term.factor * last)
    return least, most


def _last(term: _Term, domain: Sequence[int], divisor: Mapping[int, int]) -> int:
    count = -(-domain[term.axis] // divisor[term.axis])
    if term.divisor == 1:
        return divisor[term.axis] * count - 1
    return term.divisor - 1 if term.is_rest else count - 1


def _terms(expression: ir.AffineExpr, factor: int) -> Iterator[_Term | None]:
    """Yield the terms of an index; None for any other expression."""
    if isinstance(expression, ir.AffineDimExpr):
        yield _Term(expression.position, factor)
    elif isinstance(expression, ir.AffineConstantExpr):
        yield _Term(-1, factor * expression.value)
    elif isinstance(expression, ir.AffineAddExpr):
        yield from _terms(expression.lhs, factor)
        yield from _terms(expression.rhs, factor)
    elif isinstance(expression, ir.AffineSymbolExpr) or not isinstance(expression.rhs, ir.AffineConstantExpr):
        yield None
    elif isinstance(expression, ir.AffineMulExpr):
        yield from _terms(expression.lhs, factor * expression.rhs.value)
    elif not isinstance(expression.lhs, ir.AffineDimExpr) or isinstance(expression, ir.AffineCeilDivExpr):
        yield None
    else:
        yield _Term(expression.lhs.position, factor, expression.rhs.value, isinstance(expression, ir.AffineModExpr))
