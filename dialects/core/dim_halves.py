"""Halves of dims: n//2 and (n + 1)//2 add up to n, so that sums with either can be written with the other.

Canonical form writes such a sum with the half whose coefficient is positive, if no coefficient of n becomes negative:
n - n//2 is (n + 1)//2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

Atom = str
Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Halves:
    """Two quotients and their sum, a product of atoms."""

    smaller: Atom
    larger: Atom
    whole: Monomial
    divisor: int


MAX_MONOMIALS = 60
"""The most products of halves that one sum is searched for."""


def balanced(
    terms: Mapping[Monomial, int], halves_of: Callable[[Atom], Halves | None], order: Callable[[Monomial], Monomial]
) -> Mapping[Monomial, int]:
    """Return the terms of a sum with the halves that its canonical form has."""
    pairs = _pairs(terms, halves_of, order)
    if not pairs:
        return terms
    made = dict(terms)
    while any(made.get(larger) for _, larger, _ in pairs):  # with the smaller halves only, equal sums are the same
        for smaller, larger, whole in pairs:
            _replace(made, larger, smaller, whole)
    for smaller, larger, whole in pairs:  # halves of n come before its quarters, which are halves of those
        count, rest = made.get(smaller, 0), made.get(whole, 0)
        if count < 0 <= rest + count or rest < 0 < count:
            _replace(made, smaller, larger, whole)
    return {atoms: factor for atoms, factor in made.items() if factor}


def _pairs(
    terms: Mapping[Monomial, int], halves_of: Callable[[Atom], Halves | None], order: Callable[[Monomial], Monomial]
) -> list[tuple[Monomial, ...]]:
    """Return the smaller half, the larger half and the whole of all terms, and of what replaces them."""
    found: set[tuple[int, Monomial, Monomial, Monomial]] = set()
    waiting, seen = list(terms), set(terms)
    while waiting:
        made = _halves_in(waiting.pop(), halves_of, order)
        found.update(made)
        new = {atoms for _, *pair in made for atoms in pair} - seen
        waiting += new
        seen |= new
        if len(seen) > MAX_MONOMIALS:
            return []
    return [tuple(pair) for _, *pair in sorted(found)]


@lru_cache(maxsize=4096)
def _halves_in(
    atoms: Monomial, halves_of: Callable[[Atom], Halves | None], order: Callable[[Monomial], Monomial]
) -> tuple[tuple[int, Monomial, Monomial, Monomial], ...]:
    """Return each half in a product: its divisor, and the product with the smaller half, the larger half, the whole."""
    found = []
    for atom in set(atoms):
        halves = halves_of(atom) if atom.startswith("floordiv(") else None
        if halves is not None:
            others = list(atoms)
            others.remove(atom)
            parts = ((halves.smaller,), (halves.larger,), halves.whole)
            smaller, larger, whole = (order((*others, *part)) for part in parts)
            found.append((halves.divisor, smaller, larger, whole))
    return tuple(found)


def _replace(terms: dict[Monomial, int], half: Monomial, other: Monomial, whole: Monomial) -> None:
    """Replace one half by the whole without the other half."""
    count = terms.pop(half, 0)
    terms[other] = terms.get(other, 0) - count
    terms[whole] = terms.get(whole, 0) + count
