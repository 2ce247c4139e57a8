"""Positions that come from data: each is clamped into its axis, wrapped, or tested, before an element is accessed.

A rule that accesses an element at a position that it has read passes the position through one of these functions.
They do not lead out of an axis whatever the data are. An axis without elements has no position inside: an operator
whose result has elements all the same refuses that with `require_elements` in its `infer`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute.expr import INDEX, Expr, all_of, clamp, constant, lift, maximum, minimum, select


def from_end(index: Expr, size: Dim) -> Expr:
    """Return the position of an index, which counts from the end if it is negative; it may still be outside."""
    position = index.cast(INDEX)
    return position if index.dtype.is_unsigned else select(position < 0, position + size, position)


def within(index: Expr, size: Dim) -> Expr:
    """Return the position in an axis of this size, which is not empty, that is nearest to an index."""
    return clamp(index.cast(INDEX), 0, lift(size, INDEX) - 1)


def at_most_last(index: Expr, size: Dim | Expr) -> Expr:
    """Return an index that is less than a size, or the last position: also for an index that is negative.

    It costs one instruction, and is 0 where the size is 0. Use it for an index that is inside by construction, such as
    one of a permutation.
    """
    least_one = maximum(size, 1) if isinstance(size, Expr) else constant(D.maximum(size, 1), INDEX)
    return minimum(index.cast("u64"), (least_one - 1).cast("u64")).cast(INDEX)


def wrapped(index: Expr, size: Dim) -> Expr:
    """Return the remainder of an index by a size; 0 if that is 0."""
    divisor = constant(max(size, 1), INDEX) if isinstance(size, int) else maximum(constant(size, INDEX), 1)
    return index.cast(INDEX) % divisor


def is_within(position: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """Return whether a position is inside of the first axes of a shape, for what is written there only then."""
    pairs = zip(position, shape, strict=False)
    return all_of([test for index, size in pairs for test in (index >= 0, index < size)])
