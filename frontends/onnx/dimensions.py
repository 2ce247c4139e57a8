"""Arithmetic on dims as a model's integer operators perform it: exact, or not at all."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim


class Undecided(Exception):
    """The answer depends on the values of symbols."""


def quotient(total: Dim, part: Dim) -> Dim | None:
    """Return `total / part` if it is exact for all values of the symbols, else None."""
    if part == 0:
        return None
    return D.apply("floordiv", total, part) if D.apply("mod", total, part) == 0 else None


MULTIPLE = "_times"
"""The end of the name of a symbol that stands for a quotient."""


def divisor_of(dim: Dim) -> int | None:
    """Return the number of which a dim must be a multiple, if it is that number of times a quotient's symbol."""
    terms = D.terms_of(dim)
    if len(terms) != 1 or len(terms[0][0]) != 1 or not terms[0][0][0].endswith(f"_per_{terms[0][1]}{MULTIPLE}"):
        return None
    return terms[0][1]


def divide(left: Dim, right: Dim) -> Dim:
    """Return the integer quotient, rounded towards zero."""
    if right == 0:
        raise Undecided
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    exact = quotient(left, right)
    if exact is not None:
        return exact
    if not D.is_nonnegative(right):
        raise Undecided
    if D.is_nonnegative(left):
        return D.apply("floordiv", left, right)
    if isinstance(right, int) and D.is_nonnegative(left + (right - 1)):  # less than one divisor below zero
        return D.maximum(D.apply("floordiv", left, right), 0)
    raise Undecided


def remainder(left: Dim, right: Dim) -> Dim:
    """Return the remainder of a floor division, which has the sign of the divisor."""
    if right == 0 or not (isinstance(right, int) or (D.is_nonnegative(left) and D.is_nonnegative(right))):
        raise Undecided
    return D.apply("mod", left, right)


def equal(left: Dim, right: Dim) -> bool:
    return _sign(left - right) == 0


def less(left: Dim, right: Dim) -> bool:
    difference = right - left
    if not isinstance(difference, int) and D.is_nonnegative(left - right):
        return False  # the difference may be zero, but not negative
    return _sign(difference) > 0


def _sign(difference: Dim) -> int:
    if isinstance(difference, int):
        return (difference > 0) - (difference < 0)
    # Symbols are non-negative: enough to know that `batch + 1` is positive, which decides most comparisons with -1.
    if D.is_nonnegative(difference - 1):
        return 1
    if D.is_nonnegative(difference * -1 - 1):
        return -1
    raise Undecided
