"""Conditions on sizes that an operator's `infer` states once, for all sizes.

    require_at_most(count, size, f"dim {i} of indices {indices} must not exceed that of the operand {x}")

A condition between numbers is checked where it is stated. One that depends on run-time sizes is collected: the pass
`require-dims` makes the call check it, with the same text. Equal dims are no such condition: `DimsDiffer` is raised for
those that are not known to be equal, and the import decides what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import UNKNOWN, Dim, UndecidedDim
from mirlo.dialects.core.errors import OpError
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Condition:
    """A condition on run-time sizes: low <= high."""

    low: Dim
    high: Dim
    text: str
    """What an error says where the condition does not hold."""


_COLLECTED: ContextVar[list[Condition] | None] = ContextVar("_COLLECTED", default=None)
"""The conditions of the inference that runs, where they are collected."""


@contextmanager
def collect_conditions() -> Iterator[list[Condition]]:
    """Collect the conditions that are stated inside and that run-time sizes decide."""
    collected: list[Condition] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def repeat_conditions(conditions: Iterable[Condition]) -> None:
    """State conditions again that were collected for an equal operation."""
    collected = _COLLECTED.get()
    if collected is not None:
        collected.extend(conditions)


def require_at_most(low: Dim, high: Dim, text: str) -> None:
    """Require low <= high: raise an error of this text, or have the call check what run-time sizes decide."""
    if low is UNKNOWN or high is UNKNOWN:
        return
    try:
        holds = low <= high
    except UndecidedDim:
        collected = _COLLECTED.get()
        if collected is not None:
            collected.append(Condition(low, high, text))
        return
    if not holds:
        raise OpError(text)


def require_equal(left: Dim, right: Dim, text: str) -> None:
    """Require that two dims are equal where the result does not depend on it.

    `require_equal_dims` is for dims of which one becomes a dim of the result.
    """
    require_at_most(left, right, text)
    require_at_most(right, left, text)


def require_multiple(dim: Dim, factor: Dim, text: str) -> None:
    """Require that a dim is a multiple of another one; everything but 0 is no multiple of 0."""
    if factor == 0:
        raise OpError(text)
    if dim is UNKNOWN or factor is UNKNOWN:
        return
    divisor = factor if isinstance(factor, int) else D.maximum(factor, 1)
    require_at_most(dim % divisor, 0, text)
    if not isinstance(factor, int):
        require_at_most(D.minimum(dim, 1), factor, text)


def require_between(dim: Dim, others: tuple[Dim, Dim], text: str) -> None:
    """Require that a dim is one of two."""
    require_at_most(D.product([_differ(dim, other) for other in others]), 0, text)


def require_elements(size: Dim, count: tuple[Dim, ...], text: str) -> None:
    """Require that an axis of this size is not empty, unless a result of this shape has no elements."""
    any_element: Dim = 1
    for dim in count:
        any_element = UNKNOWN if dim is UNKNOWN else D.minimum(any_element, dim)
        if any_element is UNKNOWN:
            return
    require_at_most(any_element, size, text)


def require_part(dim: Dim, begin: Dim, count: Dim, stride: int, text: str) -> None:
    """Require that the positions begin, begin + stride, ... (this many) are within an axis of this size.

    No sum in these conditions overflows if the others hold.
    """
    if any(each is UNKNOWN for each in (dim, begin, count)):
        return
    room = D.ceildiv(dim - begin, stride) if stride > 0 else begin // -stride + 1
    before_the_edge = begin + 1 if stride > 0 else dim - begin
    if D.is_certain(lambda: count <= room) and D.is_certain(lambda: before_the_edge >= 1):
        return
    require_at_most(count, D.maximum(room, 0), text)
    require_at_most(D.minimum(count, 1), D.maximum(before_the_edge, 0), text)


def _differ(left: Dim, right: Dim) -> Dim:
    """Return 0 for equal dims, else 1."""
    return D.minimum(1, D.maximum(left - right, right - left))
