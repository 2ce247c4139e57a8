"""Sizes at which a kernel may be called: those at which the dims that its callers check are not negative."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from mirlo.dialects.core.dim_text import FUNCTIONS
from mirlo.dialects.core.dims import UNKNOWN, Atom, Dim, atom_parts, is_nonnegative, symbols_of, terms_of

Facts = tuple[Dim, ...]
"""Dims that are not negative."""
Sizes = dict[str, int]
DimFunction = Callable[[Mapping[str, int]], int]
"""Computes a dim from the sizes of its symbols."""
USUAL = 3
"""The size of symbols that are not chosen."""
MOST_STEPS = 2000
"""The most dims that are computed in a search for sizes."""
FAILED_STEPS, FEW_STEPS = 10_000, 300
"""After this many steps in searches that found nothing, a search has few: most that find sizes take less."""
NEAR = 8
"""How far from a size all others are tried."""
WORST = -(1 << 62)
"""Stands for a dim that has no value, such as a quotient by 0."""


class ValidSizes:
    """The sizes at which facts hold: of symbols, and of the symbols that facts relate them to."""

    def __init__(self, symbols: Iterable[str], facts: Iterable[Dim]):
        self.facts = related(symbols, facts)
        own = list(dict.fromkeys(symbols))
        self._used = [symbols_of(fact) for fact in self.facts]
        """The symbols of each fact."""
        self.symbols = [*own, *sorted(set().union(*self._used) - set(own))]
        numbers = {number for fact in self.facts for number in _numbers(fact)}
        self._numbers = sorted({abs(number) + d for number in numbers for d in (-1, 0, 1)} - {-1})
        self._functions = [_function_of(fact) for fact in self.facts]
        self._with = {name: [i for i, used in enumerate(self._used) if name in used] for name in self.symbols}
        """The positions of the facts about each symbol."""
        self._steps = self._failed = 0

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether all facts hold at sizes of all symbols."""
        return all(_value(function, sizes) >= 0 for function in self._functions)

    def nearest(self, sizes: Mapping[str, int], tried: Sequence[int] = (), fixed: Iterable[str] = ()) -> Sizes | None:
        """Return sizes at which all facts hold, with few changes of those that are given; None if none are found.

        `tried` are sizes to change to, besides those that solve a fact and those in facts; `fixed` ones stay.
        """
        self._steps = granted = MOST_STEPS if self._failed < FAILED_STEPS else FEW_STEPS
        start = {name: sizes.get(name, USUAL) for name in self.symbols}
        free = [name for name in reversed(self.symbols) if name not in set(fixed)]
        repaired = self._repaired(start, [None] * len(self.facts), free, sorted({*tried, *self._numbers}))
        if repaired is None:
            self._failed += granted - self._steps
        return repaired

    @property
    def failed_steps(self) -> int:
        """Return how many steps the searches took that found nothing."""
        return self._failed

    def _repaired(
        self, sizes: Sizes, values: list[int | None], free: Sequence[str], tried: Sequence[int]
    ) -> Sizes | None:
        """Change the sizes of some free symbols, each once, until all facts hold.

        `values` are those of the facts at these sizes, None where they are not computed yet.
        """
        broken = self._first_broken(sizes, values)
        if broken is None:
            return sizes
        position, before = broken
        for name in free:
            if name in self._used[position]:
                left = [each for each in free if each != name]
                for size in self._candidates(self._functions[position], before, name, sizes, tried):
                    changed = list(values)
                    for i in self._with[name]:
                        changed[i] = None
                    repaired = self._repaired({**sizes, name: size}, changed, left, tried)
                    if repaired is not None:
                        return repaired
        return None

    def _first_broken(self, sizes: Sizes, values: list[int | None]) -> tuple[int, int] | None:
        """Return the position of the first fact that does not hold, and its value; compute values that are missing."""
        for i, value in enumerate(values):
            if value is None:
                value = values[i] = _value(self._functions[i], sizes)
            if value < 0:
                return i, value
        return None

    def _candidates(
        self, fact: DimFunction, before: int, name: str, sizes: Sizes, tried: Sequence[int]
    ) -> Iterator[int]:
        """Yield sizes of a symbol that make a fact hold, near ones first; then those that bring it nearest to that."""
        now, changed = sizes[name], dict(sizes)
        changed[name] = now + 1
        slope = _value(fact, changed) - before
        solved = {now + sign * (-before // abs(slope) + d) for sign in (-1, 1) for d in (0, 1)} if slope else set()
        pool = {*tried, *sizes.values(), *range(now - NEAR, now + NEAR + 1), *solved} - {now}
        reached: list[tuple[int, int, int]] = []
        for size in sorted(pool, key=lambda size: (abs(size - now), size)):
            if size < 0:
                continue
            if self._steps <= 0:
                return
            self._steps -= 1
            changed[name] = size
            value = _value(fact, changed)
            if value >= 0:
                yield size
            elif value > before:
                reached.append((-value, abs(size - now), size))
        yield from (size for *_, size in sorted(reached)[:2])


def _value(function: DimFunction, sizes: Mapping[str, int]) -> int:
    try:
        return function(sizes)
    except ArithmeticError:
        return WORST


@lru_cache(maxsize=4096)
def _function_of(dim: Dim) -> DimFunction:
    """Return a function that computes a dim from the sizes of its symbols."""
    if dim is UNKNOWN:
        return lambda sizes: WORST
    terms = [(factor, [_function_of_atom(atom) for atom in atoms]) for atoms, factor in terms_of(dim)]

    def value(sizes: Mapping[str, int]) -> int:
        total = 0
        for product, factors in terms:
            for factor in factors:
                product *= factor(sizes)
            total += product
        return total

    return value


@lru_cache(maxsize=4096)
def _function_of_atom(atom: Atom) -> DimFunction:
    parts = atom_parts(atom)
    if parts is None:
        return itemgetter(atom)
    compute, left, right = FUNCTIONS[parts[0]], _function_of(parts[1]), _function_of(parts[2])
    return lambda sizes: compute(left(sizes), right(sizes))


def related(symbols: Iterable[str], facts: Iterable[Dim]) -> list[Dim]:
    """Return the facts about symbols, and about symbols that these facts relate them to, without those of all sizes."""
    names, kept = set(symbols), dict[Dim, None]()
    left = {fact: symbols_of(fact) for fact in facts if not is_nonnegative(fact)} if names else {}
    while new := {fact: used for fact, used in left.items() if used & names}:
        kept |= dict.fromkeys(new)
        left = {fact: used for fact, used in left.items() if fact not in new}
        names = names.union(*new.values())
    return list(kept)


def _numbers(dim: Dim) -> Iterator[int]:
    """Yield the numbers in a dim."""
    for atoms, factor in terms_of(dim):
        yield factor
        for atom in atoms:
            parts = atom_parts(atom)
            for part in parts[1:] if parts is not None else ():
                yield from _numbers(part)
