"""Halves of dims: n//2 and (n + 1)//2 add up to n, so that sums with either can be written with the other.

Canonical form writes such a sum with the half whose coefficient is positive, if no coefficient of n becomes negative:
n - n//2 is (n + 1)//2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mirlo.runtime.records import dataclass

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


Pair = tuple[int, Monomial, Monomial, Monomial]
"""A divisor; products of other atoms with the smaller half, with the larger half and with the whole."""


def pairs_of(
    atoms: Monomial, halves_of: Callable[[Atom], Halves | None], order: Callable[[Monomial], Monomial]
) -> tuple[Pair, ...]:
    """Return the pairs that a product belongs to, one per quotient in it that is a half."""
    pairs: list[Pair] = []
    for atom in dict.fromkeys(atoms):
        halves = halves_of(atom) if atom.startswith("floordiv(") else None
        if halves is None:
            continue
        others = list(atoms)
        others.remove(atom)
        parts = [order((*others, *part)) for part in ((halves.smaller,), (halves.larger,), halves.whole)]
        pairs.append((halves.divisor, parts[0], parts[1], parts[2]))
    return tuple(pairs)


@dataclass(frozen=True)
class Reached:
    """What a product can become when halves in it are replaced, again and again."""

    pairs: frozenset[Pair]
    monomials: frozenset[Monomial]
    """The product and all that replaces it."""


Reach = Callable[[Monomial], Reached | None]
"""Gives what a product can become; None if that is more than `MAX_MONOMIALS` products."""


def reached_from(atoms: Monomial, pairs_of: Callable[[Monomial], tuple[Pair, ...]]) -> Reached | None:
    """Return what a product can become."""
    pairs: set[Pair] = set()
    waiting, seen = [atoms], {atoms}
    while waiting:
        for pair in pairs_of(waiting.pop()):
            pairs.add(pair)
            waiting += set(pair[1:]) - seen
            seen.update(pair[1:])
        if len(seen) > MAX_MONOMIALS:
            return None
    return Reached(frozenset(pairs), frozenset(seen))


def balanced(
    terms: Mapping[Monomial, int], pairs_of: Callable[[Monomial], tuple[Pair, ...]], reached_from: Reach
) -> Mapping[Monomial, int]:
    """Return the terms of a sum with the halves that its canonical form has."""
    if not any(_changes(terms, atoms, count, pair) for atoms, count in terms.items() for pair in pairs_of(atoms)):
        return terms
    pairs = _all_pairs(terms, reached_from)
    if not pairs:
        return terms
    counts = dict(terms)
    is_changed = True
    while is_changed:  # with the smaller halves only, equal sums are the same
        is_changed = False
        for smaller, larger, whole in pairs:
            if counts.get(larger):
                _replace(counts, larger, smaller, whole)
                is_changed = True
    is_changed = True
    while is_changed:  # a product of two halves takes a round for each; the wholes of halves have fewer halves in them
        is_changed = False
        for smaller, larger, whole in pairs:  # halves of n come before its quarters, which are halves of those
            count = counts.get(smaller)  # of most, none
            if count and _is_better_with_larger(count, counts.get(whole, 0)):
                _replace(counts, smaller, larger, whole)
                is_changed = True
    return {atoms: factor for atoms, factor in counts.items() if factor}


def folded(terms: Mapping[Monomial, int], reached_from: Reach) -> Mapping[Monomial, int] | None:
    """Return a sum with a larger half in place of a chain of smaller ones; None if that has no fewer terms.

    Canonical form writes 8 * ((n + 7)//8) - n as 7 * n - 8 * (n//2) - 8 * ((n + 1)//4) - 8 * ((n + 3)//8).
    """
    pairs = _all_pairs(terms, reached_from)
    for at in reversed(range(len(pairs))):
        if terms.get(pairs[at][0], 0) >= 0:
            continue
        counts = dict(terms)
        _replace(counts, *pairs[at])
        for smaller, larger, whole in reversed(pairs[:at]):
            both = max(counts.get(smaller, 0), counts.get(larger, 0))
            if both < 0:
                for half in (smaller, larger):
                    counts[half] -= both
                counts[whole] = counts.get(whole, 0) + both
        kept = {atoms: factor for atoms, factor in counts.items() if factor}
        if len(kept) < len(terms):
            return kept
    return None


def _changes(terms: Mapping[Monomial, int], atoms: Monomial, count: int, pair: Pair) -> bool:
    """Return whether a term is not the half of its pair that the canonical form has: most sums have no such term."""
    _, smaller, larger, whole = pair
    return atoms == larger or (atoms == smaller and _is_better_with_larger(count, terms.get(whole, 0)))


def _is_better_with_larger(count: int, rest: int) -> bool:
    return count < 0 <= rest + count or rest < 0 < count


def _all_pairs(terms: Mapping[Monomial, int], reached_from: Reach) -> list[list[Monomial]]:
    """Return the smaller half, the larger half and the whole of all terms, and of what replaces them."""
    pairs: set[Pair] = set()
    seen: set[Monomial] = set()
    for atoms in terms:
        reached = reached_from(atoms)
        if reached is None:
            return []
        pairs |= reached.pairs
        seen |= reached.monomials
    return [pair for _, *pair in sorted(pairs)] if len(seen) <= MAX_MONOMIALS else []


def _replace(terms: dict[Monomial, int], half: Monomial, other: Monomial, whole: Monomial) -> None:
    """Replace one half by the whole without the other half."""
    count = terms.pop(half, 0)
    terms[other] = terms.get(other, 0) - count
    terms[whole] = terms.get(whole, 0) + count
