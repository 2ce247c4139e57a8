"""Upper bounds of sizes: sums of products of symbols, and numbers that known limits of such products give.

In bounds, a symbol that is zero counts as one: a product is never larger than one with more factors. Bounds are
floats, up to `ROUNDING`: the limits of sizes are far below 2^63.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dim_algebra import Atom, Monomial, terms_of
from mirlo.dialects.core.dims import Dim
from mirlo.runtime.records import dataclass

MOST_TERMS = 64
"""Terms above which a bound is not pursued: nested sums multiply."""
ROUNDING = 1 + 1e-9
"""A number above the error of all roundings in a bound."""


@dataclass(frozen=True)
class SizeBound:
    """A sum of products of symbols with positive factors."""

    terms: dict[Monomial, float]

    def __add__(self, other: SizeBound) -> SizeBound:
        terms = dict(self.terms)
        for symbols, factor in other.terms.items():
            terms[symbols] = terms.get(symbols, 0.0) + factor
        return SizeBound(_checked(terms))

    def __mul__(self, other: SizeBound) -> SizeBound:
        terms: dict[Monomial, float] = {}
        for left, first in self.terms.items():
            for right, second in other.terms.items():
                symbols = tuple(sorted(left + right))
                terms[symbols] = terms.get(symbols, 0.0) + first * second
        return SizeBound(_checked(terms))

    def at_least_one(self) -> SizeBound:
        """Return a bound that is at least one."""
        return self if any(factor >= 1 for factor in self.terms.values()) else self + number(1)


class TooManyTerms(Exception):
    """Raised for a bound of more than `MOST_TERMS` terms."""


def number(value: float) -> SizeBound:
    """Return the bound of a number."""
    return SizeBound({(): abs(float(value))})


def bound_of(dim: Dim) -> SizeBound:
    """Return a bound of |dim|."""
    total = SizeBound({})
    for atoms, factor in terms_of(dim):
        term = number(factor)
        for atom in atoms:
            term = term * _bound_of_atom(atom)
        total = total + term
    return total


@lru_cache(maxsize=4096)
def _bound_of_atom(atom: Atom) -> SizeBound:
    parts = D.atom_parts(atom)
    if parts is None:
        return SizeBound({(atom,): 1.0})
    function, left, right = parts
    if function == "mod" and isinstance(right, int):
        return number(right)
    if function == "floordiv" and isinstance(right, int):
        return bound_of(left) * number(1 / right) + number(1)
    if function == "min" and D.is_nonnegative(left) and D.is_nonnegative(right):
        return bound_of(left if isinstance(left, int) else right)
    # The quotient, the minimum and the maximum are at most their operands together, and 1 for the rounding.
    return bound_of(left) + bound_of(right) + number(1)


def _checked(terms: dict[Monomial, float]) -> dict[Monomial, float]:
    if len(terms) > MOST_TERMS:
        raise TooManyTerms
    return terms


@dataclass
class KnownLimits:
    """Numbers that products of symbols do not exceed, each from some place of the program on."""

    _limits: dict[str, list[tuple[Counter[str], float, int]]] = field(default_factory=dict)

    def add(self, symbols: Iterable[str], limit: float, place: int) -> None:
        """Record that a product of symbols does not exceed a number."""
        entry = Counter(symbols), limit, place
        for name in entry[0]:
            self._limits.setdefault(name, []).append(entry)

    def number_of(self, bound: SizeBound, place: int) -> float | None:
        """Return a number that a bound does not exceed at a place; None if nothing limits some of its terms."""
        total = 0.0
        for symbols, factor in bound.terms.items():
            limit = self._limit_of(symbols, place) if symbols else 1.0
            if limit is None:
                return None
            total += factor * limit
        return total

    def _limit_of(self, symbols: Monomial, place: int) -> float | None:
        wanted = Counter(symbols)
        entries = min((self._limits.get(name, []) for name in wanted), key=len)
        return min((limit for more, limit, known in entries if known <= place and wanted <= more), default=None)
