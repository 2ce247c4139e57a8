"""Arithmetic of dims as a model's integer operators do it: exact, or not at all."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim


class Undecided(Exception):
    """What was asked depends on the numbers that symbols will stand for."""


def quotient(total: Dim, part: Dim) -> Dim | None:
    """`total / part` where that is exact whatever the symbols are, else None."""
    if part == 0:
        return None
    return D.apply("floordiv", total, part) if D.apply("mod", total, part) == 0 else None


def divide(left: Dim, right: Dim) -> Dim:
    """Integer division that rounds towards zero."""
    if right == 0:
        raise Undecided
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    exact = quotient(left, right)
    if exact is not None:
        return exact
    if not (D.is_nonnegative(left) and D.is_nonnegative(right)):
        raise Undecided
    return D.apply("floordiv", left, right)


def remainder(left: Dim, right: Dim) -> Dim:
    """The remainder of a division that rounds down, which has the sign of the divisor."""
    if right == 0 or not (isinstance(right, int) or (D.is_nonnegative(left) and D.is_nonnegative(right))):
        raise Undecided
    return D.apply("mod", left, right)


def equal(left: Dim, right: Dim) -> bool:
    return _sign(left - right) == 0


def less(left: Dim, right: Dim) -> bool:
    difference = right - left
    if not isinstance(difference, int) and D.is_nonnegative(left - right):
        return False  # the difference may be zero, but not less
    return _sign(difference) > 0


def _sign(difference: Dim) -> int:
    if isinstance(difference, int):
        return (difference > 0) - (difference < 0)
    # Symbols are at least zero: enough to know that `batch + 1` is more than 0, which decides most comparisons with -1.
    if D.is_nonnegative(difference - 1):
        return 1
    if D.is_nonnegative(difference * -1 - 1):
        return -1
    raise Undecided
