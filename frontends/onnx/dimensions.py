"""Arithmetic of dims as a model's integer operators do it: exact, or not at all."""

from __future__ import annotations

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, SymbolicDim


class Undecided(Exception):
    """What was asked depends on the numbers that symbols will stand for."""


def quotient(total: Dim, part: Dim) -> Dim | None:
    """`total / part` where that is exact whatever the symbols are, else None."""
    if isinstance(part, int):
        if part == 0 or total is D.UNKNOWN:
            return None
        exact = D.apply("mod", total, part) == 0
        return D.apply("floordiv", total, part) if exact else None
    if total == part:
        return 1
    if isinstance(total, int) or D.UNKNOWN in (total, part) or len(part.terms) != 1:
        return 0 if total == 0 else None
    divisor, factor = part.terms[0]
    result: Dim = 0
    for atoms, count in total.terms:
        left = list(atoms)
        for atom in divisor:
            if atom not in left:
                return None
            left.remove(atom)
        if count % factor:
            return None
        term: Dim = count // factor
        for atom in left:
            term = term * SymbolicDim((((atom,), 1),))
        result = result + term
    return result


def divide(left: Dim, right: Dim) -> Dim:
    """Integer division that rounds towards zero."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            raise Undecided
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    exact = quotient(left, right)
    if exact is not None:
        return exact
    if not (never_negative(left) and never_negative(right)):
        raise Undecided
    return D.apply("floordiv", left, right)


def remainder(left: Dim, right: Dim) -> Dim:
    if right == 0 or not (never_negative(left) and never_negative(right)):
        raise Undecided
    return D.apply("mod", left, right)


def equal(left: Dim, right: Dim) -> bool:
    return _sign(left - right) == 0


def less(left: Dim, right: Dim) -> bool:
    return _sign(left - right) < 0


def never_negative(dim: Dim) -> bool:
    """Whether a dim is at least zero whatever its symbols, themselves at least zero, are."""
    terms = (((), dim),) if isinstance(dim, int) else dim.terms
    return dim is not D.UNKNOWN and all(factor >= 0 for _, factor in terms)


def _sign(difference: Dim) -> int:
    if isinstance(difference, int):
        return (difference > 0) - (difference < 0)
    if difference is D.UNKNOWN:
        raise Undecided
    constant = sum(factor for atoms, factor in difference.terms if not atoms)
    # Symbols are at least zero: enough to know that `batch + 1` is more than 0, which decides most comparisons with -1.
    if constant > 0 and never_negative(difference):
        return 1
    if constant < 0 and never_negative(difference * -1):
        return -1
    raise Undecided
