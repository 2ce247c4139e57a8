"""Proofs that a dim is not negative where facts about sizes hold; goals about indices are reduced to such dims.

A goal is proven as a sum of multiples of facts and of a dim that the algebra of dims shows not to be negative. The
search is exponential, and dims of a model may have many terms: it counts the terms and facts that it looks at, and its
result depends on the goal and the facts only.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, DimTooLarge, Monomial, SymbolicDim

MAX_DIM_STEPS = 2_000
"""The most terms and facts that one search looks at, 50 ms: proofs of models look at 40, searches in vain at 300."""
TERMS_OF_A_STEP = 5
"""Number of terms that the algebra of dims processes in the time of a step here."""
MAX_BOUNDS = 2
"""The most quotients of a dim that are replaced by their bounds."""


class DimProof(NamedTuple):
    """The outcome of a search."""

    holds: bool
    steps: int
    """What it looked at: the same whether the outcome is known already or not."""


@lru_cache(maxsize=65536)
def prove_dim(goal: Dim, facts: tuple[Dim, ...], depth: int = 3) -> DimProof:
    """Prove that a dim is not negative if these are not: it is a sum of multiples of them and a non-negative dim."""
    if isinstance(goal, int):
        return DimProof(goal >= 0, 0)
    search = _Search()
    return DimProof(search.holds(goal, facts, depth), min(search.steps, MAX_DIM_STEPS))


@lru_cache(maxsize=4096)
def decided_dims(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the dims that have minima and maxima, without those that the other facts decide."""
    # A dim does not decide about itself: `d - min(d, 1)` is no proof that d is at least 1.
    simple, search = _without_choices(dims), _Search()
    return tuple(dict.fromkeys(search.decided(dim, simple) for dim in dims if _has_choice(dim)))


def is_nonnegative(dim: Dim, bounds: int = 1) -> bool:
    """Return whether a dim is not negative for all sizes, as the algebra of dims sees with few steps."""
    return dim >= 0 if isinstance(dim, int) else D.is_nonnegative(dim, bounds)


class _Search:
    """A search with the steps that it took."""

    def __init__(self) -> None:
        self.steps = 0
        self._known: dict[tuple[Dim, tuple[Dim, ...], int], bool] = {}
        self._decided: dict[tuple[Dim, tuple[Dim, ...]], Dim] = {}

    def holds(self, goal: Dim, facts: tuple[Dim, ...], depth: int) -> bool:
        if isinstance(goal, int):
            return goal >= 0
        key = goal, facts, depth
        if key not in self._known:
            self.steps += len(goal.terms) + len(facts)
            if self._is_exhausted:
                return False
            try:
                self._known[key] = self._search(goal, facts, depth)
            except DimTooLarge:
                self._known[key] = False
        return self._known[key]

    @property
    def _is_exhausted(self) -> bool:
        return self.steps > MAX_DIM_STEPS

    def _search(self, goal: SymbolicDim, facts: tuple[Dim, ...], depth: int) -> bool:
        if _is_refuted(goal, facts):
            return False
        if not _is_refuted(goal, ()):
            is_shown, terms = D.search_bounds(goal, MAX_BOUNDS)
            self.steps += terms // TERMS_OF_A_STEP
            if is_shown:
                return True
        if _is_nonnegative_above(goal, facts):
            return True
        if not depth:
            return False
        if depth > 1 and _has_choice(goal):
            decided = self.decided(goal, _without_choices(facts))
            if decided != goal:
                return self.holds(decided, facts, depth)
        return (
            self._holds_by_facts(goal, facts, depth - 1)
            or self._holds_in_cases(goal, facts, depth - 1)
            or self._holds_by_quotients(goal, facts, depth - 1)
        )

    def _holds_by_facts(self, goal: SymbolicDim, facts: tuple[Dim, ...], depth: int) -> bool:
        """Return whether a dim is a sum of a multiple of a fact and of a dim that is not negative."""
        for fact in facts:
            for atoms, factor in fact.terms if isinstance(fact, SymbolicDim) else ():
                for quotient, multiple in _multiples(goal, atoms, factor):
                    if self.holds(goal * multiple - fact * quotient, facts, depth):
                        return True
                    if self._is_exhausted:
                        return False
        return False

    def _holds_in_cases(self, goal: SymbolicDim, facts: tuple[Dim, ...], depth: int) -> bool:
        """Return whether a dim is not negative with either operand of one of its minima or maxima in its place."""
        for atoms, factor in goal.terms:
            parts = D.atom_parts(atoms[0]) if len(atoms) == 1 else None
            if parts is None or parts[0] not in ("min", "max"):
                continue
            rest = goal - SymbolicDim(((atoms, factor),))
            if all(self.holds(rest + side * factor, facts, depth) for side in parts[1:]):
                return True
            if self._is_exhausted:
                return False
        return False

    def _holds_by_quotients(self, goal: SymbolicDim, facts: tuple[Dim, ...], depth: int) -> bool:
        """Return whether a dim is not negative by a bound of one of its quotients, whose dividend facts may bound."""
        for atoms, factor in goal.terms if facts else ():
            parts = D.atom_parts(atoms[0]) if len(atoms) == 1 else None
            if parts is None or parts[0] != "floordiv" or not isinstance(parts[2], int) or parts[2] <= 0:
                continue
            bound = parts[1] - (parts[2] - 1) if factor > 0 else parts[1]
            rest = goal - SymbolicDim(((atoms, factor),))
            if self.holds(rest * parts[2] + bound * factor, facts, depth):
                return True
            if self._is_exhausted:
                return False
        return False

    def decided(self, dim: Dim, facts: tuple[Dim, ...]) -> Dim:
        """Return a dim with the smaller, or larger, operand for each minimum, or maximum, that these facts decide."""
        if isinstance(dim, int) or not _has_choice(dim):
            return dim
        key = dim, facts
        if key not in self._decided:
            self._decided[key] = self._decide(dim, facts)
        return self._decided[key]

    def _decide(self, dim: SymbolicDim, facts: tuple[Dim, ...]) -> Dim:
        total: Dim = 0
        try:
            for atoms, factor in dim.terms:
                total = total + D.product([self._decided_atom(atom, facts) for atom in atoms]) * factor
        except DimTooLarge:
            return dim
        return total

    def _decided_atom(self, atom: str, facts: tuple[Dim, ...]) -> Dim:
        parts = D.atom_parts(atom)
        if parts is None:
            return D.parse(atom)
        function, left, right = parts[0], self.decided(parts[1], facts), self.decided(parts[2], facts)
        if function in ("min", "max"):
            difference = left - right
            if self.holds(difference, facts, 1):
                return left if function == "max" else right
            if self.holds(difference * -1, facts, 1):
                return right if function == "max" else left
        return D.apply(function, left, right)


def _without_choices(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the dims without minima and maxima."""
    return tuple(dim for dim in dims if not _has_choice(dim))


def _has_choice(dim: Dim) -> bool:
    return not isinstance(dim, int) and any(_is_choice(atoms) for atoms, _ in dim.terms)


@lru_cache(maxsize=16384)
def _is_choice(atoms: Monomial) -> bool:
    """Return whether there is a minimum or maximum in a product of atoms."""
    return any("min(" in atom or "max(" in atom for atom in atoms)


@lru_cache(maxsize=16384)
def _is_refuted(goal: SymbolicDim, facts: tuple[Dim, ...]) -> bool:
    """Return whether a dim is negative for some sizes for which the facts hold: no search finds a proof then."""
    for sample in range(len(_SAMPLES)):
        value = _value_in(goal, sample)
        if value is not None and value < 0 and all((_value_in(fact, sample) or 0) >= 0 for fact in facts):
            return True
    return False


_SAMPLES = (1, 2, 3, 3, 4, 4, 9, 9, 40, 40, 300, 300)
"""Sizes are tried that are smaller than these."""


@lru_cache(maxsize=65536)
def _value_in(dim: Dim, sample: int) -> int | None:
    """Return the value of a dim where its symbols have certain values; None if it has none there."""
    total = 0
    for atoms, factor in D.terms_of(dim):
        for atom in atoms:
            value = _atom_in(atom, sample)
            if value is None:
                return None
            factor *= value
        total += factor
    return total


@lru_cache(maxsize=65536)
def _atom_in(atom: str, sample: int) -> int | None:
    parts = D.atom_parts(atom)
    if parts is None:
        return zlib.crc32(f"{sample} {atom}".encode()) % _SAMPLES[sample]
    left, right = _value_in(parts[1], sample), _value_in(parts[2], sample)
    if left is None or right is None or (right == 0 and parts[0] in ("floordiv", "mod")):
        return None
    result = D.apply(parts[0], left, right)
    assert isinstance(result, int)
    return result


def _is_nonnegative_above(goal: SymbolicDim, facts: tuple[Dim, ...]) -> bool:
    """Return whether a dim has no negative term if its atoms are counted from their least values.

    So products of differences are proven: `a*b - 4*a - 4*b + 16` is `(a - 4)*(b - 4)`, and 0 or more from 4 on.
    """
    least = _least_values(facts)
    if not least or all(factor >= 0 for _, factor in goal.terms):
        return False
    names = dict.fromkeys(atom for atoms, _ in goal.terms for atom in atoms)
    if not all(atom in least or is_nonnegative(D.parse(atom)) for atom in names):
        return False
    # Symbols of their own: what holds between quotients and their dividends does not hold from there on.
    above = {atom: D.symbol(f"above{i}") + least.get(atom, 0) for i, atom in enumerate(names)}
    total: Dim = 0
    for atoms, factor in goal.terms:
        total = total + D.product([above[atom] for atom in atoms]) * factor
    return all(factor >= 0 for _, factor in D.terms_of(total))


@lru_cache(maxsize=4096)
def _least_values(facts: tuple[Dim, ...]) -> dict[str, int]:
    """Return the least values, above 0, of atoms that single facts bound."""
    least: dict[str, int] = {}
    for fact in facts:
        terms = dict(D.terms_of(fact))
        constant = terms.pop((), 0)
        if constant >= 0 or len(terms) != 1:
            continue
        ((atoms, factor),) = terms.items()
        if len(atoms) == 1 and factor > 0:
            least[atoms[0]] = max(least.get(atoms[0], 0), -(constant // factor))
    return least


def weaker(dim: Dim) -> Iterable[Dim]:
    """Yield simpler dims that are not negative if this one is not."""
    if isinstance(dim, int):
        return
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    if constant >= 0:
        return
    # What is subtracted is not negative, and a product is at least 1 only if its factors are.
    positive = {atoms: factor for atoms, factor in terms.items() if factor > 0}
    taken = [SymbolicDim(((atoms, 1),)) for atoms, factor in terms.items() if factor < 0]
    if taken and all(map(is_nonnegative, taken)):
        kept: Dim = constant
        for term in positive.items():
            kept = kept + SymbolicDim((term,))
        yield kept
    if not taken and len(positive) == 1:
        ((atoms, _),) = positive.items()
        factors = [D.parse(atom) for atom in atoms]
        if len(factors) > 1 and all(map(is_nonnegative, factors)):
            yield from (factor - 1 for factor in factors)
    for atoms, factor in positive.items():
        parts = D.atom_parts(atoms[0]) if len(atoms) == 1 else None
        if parts is not None and parts[0] == "floordiv" and isinstance(parts[2], int) and parts[2] > 0:
            yield (dim - SymbolicDim(((atoms, factor),))) * parts[2] + parts[1] * factor


def _multiples(goal: SymbolicDim, atoms: Monomial, factor: int) -> Iterable[tuple[Dim, int]]:
    """Yield factors for a fact and a goal with which a term of the fact cancels out one of the goal."""
    for goal_atoms, goal_factor in goal.terms:
        taken, whole = Counter(atoms), Counter(goal_atoms)
        if not atoms or goal_factor * factor <= 0 or not taken <= whole:
            continue
        quotient = D.product([D.parse(atom) for atom in (whole - taken).elements()]) * abs(goal_factor)
        if is_nonnegative(quotient):
            yield quotient, abs(factor)
