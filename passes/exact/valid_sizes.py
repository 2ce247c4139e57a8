"""Sizes at which a kernel may be called: those at which the dims that its callers check are not negative."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from mirlo.dialects.core.dims import Dim, atom_parts, is_nonnegative, substitute, symbols_of, terms_of

Facts = tuple[Dim, ...]
"""Dims that are not negative."""
Sizes = dict[str, int]
USUAL = 3
"""The size of symbols that are not chosen."""
MOST_STEPS = 2000
"""The most dims that are computed in a search for sizes."""
NEAR = 8
"""How far from a size all others are tried."""
WORST = -(1 << 62)
"""Stands for a dim that has no value, such as a quotient by 0."""


class ValidSizes:
    """The sizes at which facts hold: of symbols, and of the symbols that facts relate them to."""

    def __init__(self, symbols: Iterable[str], facts: Iterable[Dim]):
        self.facts = related(symbols, facts)
        own = list(dict.fromkeys(symbols))
        others = {name for fact in self.facts for name in symbols_of(fact)} - set(own)
        self.symbols = [*own, *sorted(others)]
        numbers = {number for fact in self.facts for number in _numbers(fact)}
        self._numbers = sorted({abs(number) + d for number in numbers for d in (-1, 0, 1)} - {-1})
        self._steps = 0

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether all facts hold at sizes of all symbols."""
        return all(_value(fact, sizes) >= 0 for fact in self.facts)

    def nearest(self, sizes: Mapping[str, int], tried: Sequence[int] = (), fixed: Iterable[str] = ()) -> Sizes | None:
        """Return sizes at which all facts hold, with few changes of those that are given; None if none are found.

        `tried` are sizes to change to, besides those that solve a fact and those in facts; `fixed` ones stay.
        """
        self._steps = MOST_STEPS
        values = {name: sizes.get(name, USUAL) for name in self.symbols}
        free = [name for name in reversed(self.symbols) if name not in set(fixed)]
        return self._repaired(values, free, sorted({*tried, *self._numbers}))

    def _repaired(self, values: Sizes, free: Sequence[str], tried: Sequence[int]) -> Sizes | None:
        """Change the sizes of some free symbols, each once, until all facts hold."""
        broken = next((fact for fact in self.facts if _value(fact, values) < 0), None)
        if broken is None:
            return values
        used = symbols_of(broken)
        for name in free:
            if name in used:
                left = [each for each in free if each != name]
                for size in self._candidates(broken, name, values, tried):
                    repaired = self._repaired({**values, name: size}, left, tried)
                    if repaired is not None:
                        return repaired
        return None

    def _candidates(self, fact: Dim, name: str, values: Sizes, tried: Sequence[int]) -> Iterator[int]:
        """Yield sizes of a symbol that make a fact hold, near ones first; then those that bring it nearest to that."""
        now = values[name]
        before = _value(fact, values)
        slope = _value(fact, {**values, name: now + 1}) - before
        solved = {now + sign * (-before // abs(slope) + d) for sign in (-1, 1) for d in (0, 1)} if slope else set()
        pool = {*tried, *values.values(), *range(now - NEAR, now + NEAR + 1), *solved} - {now}
        reached: list[tuple[int, int, int]] = []
        for size in sorted(pool, key=lambda size: (abs(size - now), size)):
            if size < 0:
                continue
            if self._steps <= 0:
                return
            self._steps -= 1
            value = _value(fact, {**values, name: size})
            if value >= 0:
                yield size
            elif value > before:
                reached.append((-value, abs(size - now), size))
        yield from (size for *_, size in sorted(reached)[:2])


def _value(fact: Dim, sizes: Mapping[str, int]) -> int:
    value: Dim = WORST
    with suppress(ArithmeticError):
        value = substitute(fact, sizes)
    return value if isinstance(value, int) else WORST


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
