"""The algebra of dims: integer expressions over named symbols in canonical form.

A symbolic dim is a polynomial with integer coefficients over atoms, in canonical form: equal expressions are equal
Python objects and print the same text. An atom is a symbol (`batch`) or an operation that is not polynomial
(`floordiv(batch + 1, 2)`, `max(n, 4)`). A symbol stands for a size and is never negative. A dim about which nothing
is known is `UNKNOWN`, which equals no other dim.

The halves n//2 and (n + 1)//2 add up to n, so that sums with either can be written with the other. Canonical form
writes such a sum with the half whose coefficient is positive, if no coefficient of n becomes negative: n - n//2 is
(n + 1)//2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Union

from mirlo.dialects.core import dim_text as text
from mirlo.dialects.core.dim_text import is_symbol_name
from mirlo.dialects.core.errors import OpError
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


Dim = Union[int, "SymbolicDim"]


@dataclass(frozen=True)
class SymbolicDim:
    """A non-constant dim: a sorted sum of products of atoms with coefficients."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        known: str | None = self.__dict__.get("_text")
        if known is None:
            known = self.__dict__["_text"] = self._text_of_terms()
        return known

    def _text_of_terms(self) -> str:
        if self is UNKNOWN:
            return "?"
        text = ""
        for atoms, factor in self.terms:
            sign = " - " if factor < 0 else " + "
            size = abs(factor)
            body = "*".join(([str(size)] if size != 1 or not atoms else []) + list(atoms))
            text = text + sign + body if text else ("-" if factor < 0 else "") + body
        return text

    def __repr__(self) -> str:
        return f"Dim({self})"

    def __eq__(self, other: object) -> bool:
        if self is UNKNOWN or other is UNKNOWN:
            return False
        return isinstance(other, SymbolicDim) and self.terms == other.terms

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = hash(self.terms)  # of strings in tuples, which do not keep theirs
        return known

    def __bool__(self) -> bool:
        """Return True for a dim that is never 0; raise `UndecidedDim` for one that may be."""
        if self is not UNKNOWN and (is_nonnegative(self - 1) or is_nonnegative(-1 - self)):
            return True
        raise UndecidedDim(f"whether {self} is 0 depends on the sizes at run time")

    def __index__(self) -> int:
        """Raise `UndecidedDim`: `range(dim)`, numpy and operations of MLIR need a number."""
        return self._undecided()

    def _undecided(self, *other: object) -> int:
        raise UndecidedDim(f"the size {self} is known at run time only")

    if not TYPE_CHECKING:  # type checkers refuse these
        __truediv__ = __rtruediv__ = __and__ = __rand__ = __rshift__ = __lshift__ = _undecided

    def __add__(self, other: Dim) -> Dim:
        return _combine(self, other, 1) if _is_dim(other) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _combine(self, other, -1) if _is_dim(other) else NotImplemented

    def __rsub__(self, other: int) -> Dim:
        return _combine(self * -1, other, 1)

    def __mul__(self, other: Dim) -> Dim:
        if not _is_dim(other):
            return NotImplemented
        if self is UNKNOWN or other is UNKNOWN:
            return UNKNOWN
        return self._scaled(other) if isinstance(other, int) else _multiply(self, other)

    __rmul__ = __mul__

    def _scaled(self, by: int) -> Dim:
        if by in (0, 1):
            return self if by else 0
        return _scale(self, by)

    def __neg__(self) -> Dim:
        return self * -1

    def __abs__(self) -> Dim:
        return self if self >= 0 else -self

    def __lt__(self, other: Dim) -> bool:
        return decide_less(self, other)

    def __gt__(self, other: Dim) -> bool:
        return decide_less(other, self)

    def __le__(self, other: Dim) -> bool:
        return not decide_less(other, self)

    def __ge__(self, other: Dim) -> bool:
        return not decide_less(self, other)

    def __floordiv__(self, other: Dim) -> Dim:
        return apply("floordiv", self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> Dim:
        return apply("floordiv", other, self)

    def __divmod__(self, other: Dim) -> tuple[Dim, Dim]:
        return (self // other, self % other) if _is_dim(other) else NotImplemented

    def __rdivmod__(self, other: int) -> tuple[Dim, Dim]:
        return other // self, other % self

    def __mod__(self, other: Dim) -> Dim:
        return apply("mod", self, other) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: int) -> Dim:
        return apply("mod", other, self)

    def __reduce__(self) -> tuple[Callable[..., SymbolicDim], tuple[object, ...]]:
        """Keep `UNKNOWN` a singleton in copies and pickles."""
        return (_restore, (self.terms,))

    @property
    def is_symbol(self) -> bool:
        """Return whether this dim is a single symbol."""
        return (
            len(self.terms) == 1
            and self.terms[0][1] == 1
            and len(self.terms[0][0]) == 1
            and (atom_parts(self.terms[0][0][0]) is None)
        )

    def symbols(self) -> frozenset[str]:
        """Return the names of the symbols that this dim depends on."""
        known: frozenset[str] | None = self.__dict__.get("_symbols")
        if known is None:
            names = (name for atoms, _ in self.terms for atom in atoms for name in text.SYMBOL.findall(atom))
            known = self.__dict__["_symbols"] = frozenset(name for name in names if name not in text.FUNCTIONS)
        return known


MAX_TERMS = 1024
"""The most terms of a sum: models have some 20."""
MAX_PRODUCTS = 4096
"""The most products of terms that one multiplication makes."""
MAX_FACTORS = 256
"""The most atoms of a product, with powers: a tensor has at most 64 dims, each of which may be a square."""
MAX_BITS = 128
"""The most bits of a coefficient: a size has 64, and a bound of one may be multiplied by a divisor."""
MAX_CHARACTERS = 8192
"""The most characters of an atom: models have some 400. Where both operands hold the last result, they double."""
MAX_NESTING = 64
"""The most operations in each other: their text is parsed, and Python's parser and stack end at some 100."""


class DimTooLarge(OpError):
    """A dim that would be too long an expression: chains of a few operators come to gigabytes."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a size would be an expression with more than {what}, which is not supported")


class UndecidedDim(Exception):
    """Raised by a comparison of dims whose outcome depends on the values of symbols."""


def decide_less(left: Dim, right: Dim) -> bool:
    """Return whether left < right for all values of the symbols; raise `UndecidedDim` if it depends on them."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    if left is not UNKNOWN and right is not UNKNOWN:
        if is_nonnegative(right - left - 1):
            return True
        if is_nonnegative(left - right):
            return False
    raise UndecidedDim(f"whether {left} is less than {right} depends on the sizes at run time")


def _is_dim(value: object) -> bool:
    return isinstance(value, (int, SymbolicDim))


def terms_of(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return (((), dim),) if isinstance(dim, int) else dim.terms


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept: Mapping[Monomial, int] = {atoms: factor for atoms, factor in terms.items() if factor}
    if len(kept) > MAX_TERMS:
        raise DimTooLarge(f"{MAX_TERMS} terms")
    _check_bits(kept.values())
    for atoms in kept:
        if _has_quotient(atoms):
            return _make_balanced(frozenset(kept.items()))
    return _ordered(kept)


def _check_bits(factors: Iterable[int]) -> None:
    """Raise `DimTooLarge` if a coefficient has more than `MAX_BITS` bits."""
    if any(abs(factor) >> MAX_BITS for factor in factors):
        raise DimTooLarge(f"{MAX_BITS} bits in a number")


@lru_cache(maxsize=16384)
def _has_quotient(atoms: Monomial) -> bool:
    return any(atom.startswith("floordiv(") for atom in atoms)


@lru_cache(maxsize=16384)
def _make_balanced(terms: frozenset[tuple[Monomial, int]]) -> Dim:
    """Return the sum of terms, some of which have quotients."""
    return _ordered(balanced(dict(terms), _pairs_of, _reached_from))


def _ordered(kept: Mapping[Monomial, int]) -> Dim:
    if not kept:
        return 0
    if len(kept) == 1:
        ((atoms, factor),) = kept.items()
        return SymbolicDim(((atoms, factor),)) if atoms else factor
    ordered = sorted(kept.items(), key=lambda item: (-len(item[0]), item[0]))
    return SymbolicDim(tuple(ordered))


@lru_cache(maxsize=16384)
def _pairs_of(atoms: Monomial) -> tuple[Pair, ...]:
    """Return the pairs of halves that a product of atoms belongs to."""
    return pairs_of(atoms, _halves_of, _monomial)


@lru_cache(maxsize=16384)
def _reached_from(atoms: Monomial) -> Reached | None:
    """Return the products that a product of atoms can become when halves in it are replaced."""
    return reached_from(atoms, _pairs_of)


@lru_cache(maxsize=4096)
def _halves_of(atom: Atom) -> Halves | None:
    """Return the pair that a quotient belongs to: x // 2k and (x + k) // 2k, which add up to x // k."""
    _, left, divisor = atom_parts(atom) or ("", 0, 0)
    if isinstance(left, int) or not isinstance(divisor, int) or divisor <= 0 or divisor % 2:
        return None
    half = divisor // 2
    start = left - half if dict(left.terms).get((), 0) >= half else left
    whole = apply("floordiv", start, half)
    if isinstance(whole, int) or len(whole.terms) != 1 or whole.terms[0][1] != 1:
        return None
    smaller, larger = (_atom("floordiv", dividend, divisor).terms[0][0][0] for dividend in (start, start + half))
    return Halves(smaller, larger, whole.terms[0][0], divisor)


@lru_cache(maxsize=16384)
def _monomial(atoms: Monomial) -> Monomial:
    """Return a product of atoms in canonical order; `min(1, n)` times itself or times `n` is the other operand."""
    for atom in atoms:
        limited = _size_below_one(atom)
        if limited is not None:
            rest = list(atoms)
            rest.remove(atom)
            if atom in rest or limited in rest:
                return _monomial(tuple(rest))
    return tuple(sorted(atoms))


def _size_below_one(atom: Atom) -> Atom | None:
    """Return the atom of the size that `min(1, size)` limits, or None."""
    parts = atom_parts(atom) if atom.startswith("min(") else None
    if parts is None or 1 not in parts[1:]:
        return None
    size = parts[1] if parts[2] == 1 else parts[2]
    is_atom = len(terms_of(size)) == 1 and len(terms_of(size)[0][0]) == 1
    return terms_of(size)[0][0][0] if is_atom and is_nonnegative(size) else None


def _combine(left: Dim, right: Dim, sign: int) -> Dim:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    return left if isinstance(right, int) and right == 0 else _add_multiple(left, right, sign)


# A model asks for the same few thousand sums and products again and again, for each of its kernels.
@lru_cache(maxsize=16384)
def _scale(dim: SymbolicDim, by: int) -> Dim:
    terms = tuple((atoms, factor * by) for atoms, factor in dim.terms)
    _check_bits(factor for _, factor in terms)
    # The order of terms does not depend on factors, but which quotients are balanced does.
    return _make(dict(terms)) if any(_has_quotient(atoms) for atoms, _ in terms) else SymbolicDim(terms)


@lru_cache(maxsize=16384)
def _multiply(left: SymbolicDim, right: SymbolicDim) -> Dim:
    if len(left.terms) * len(right.terms) > MAX_PRODUCTS:
        raise DimTooLarge(f"{MAX_PRODUCTS} products of terms")
    if len(left.terms[0][0]) + len(right.terms[0][0]) > MAX_FACTORS:  # the first term has most
        raise DimTooLarge(f"{MAX_FACTORS} factors")
    result: dict[Monomial, int] = {}
    for atoms, factor in left.terms:
        for other_atoms, other_factor in right.terms:
            key = _monomial(atoms + other_atoms)
            result[key] = result.get(key, 0) + factor * other_factor
    return _make(result)


@lru_cache(maxsize=16384)
def _add_multiple(left: Dim, right: Dim, sign: int) -> Dim:
    result = dict(terms_of(left))
    for atoms, factor in terms_of(right):
        result[atoms] = result.get(atoms, 0) + sign * factor
    return _make(result)


UNKNOWN = SymbolicDim(((("?",), 1),))
"""A dim about which nothing is known."""


def _restore(terms: tuple[tuple[Monomial, int], ...]) -> SymbolicDim:
    return UNKNOWN if terms == UNKNOWN.terms else SymbolicDim(terms)


@lru_cache(maxsize=4096)
def symbol(name: str) -> SymbolicDim:
    """Return the dim that consists of this symbol."""
    if not is_symbol_name(name):
        raise ValueError(
            f"'{name}' is not a name for a dim: expected letters, digits and '_', not starting with a digit, in parts "
            f"joined by '.', other than Python's keywords and {', '.join(text.FUNCTIONS)}"
        )
    return SymbolicDim((((name,), 1),))


def apply(function: str, left: Dim, right: Dim) -> Dim:
    """Apply floordiv, mod, min or max to two dims, and simplify where that is exact."""
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if function in ("floordiv", "mod") and right == 0:
        raise ValueError(f"{function} of {left} by 0")
    if isinstance(left, int) and isinstance(right, int):
        return text.FUNCTIONS[function](left, right)
    return _apply(function, left, right)


@lru_cache(maxsize=16384)
def _apply(function: str, left: Dim, right: Dim) -> Dim:
    simplified = _SIMPLIFY[function](left, right)
    return _atom(function, left, right) if simplified is None else simplified


def _atom(function: str, left: Dim, right: Dim) -> SymbolicDim:
    arguments = [str(left), str(right)]
    if function in ("min", "max"):
        arguments.sort()
    atom = f"{function}({arguments[0]}, {arguments[1]})"
    if len(atom) > MAX_CHARACTERS:
        raise DimTooLarge(f"{MAX_CHARACTERS} characters")
    if len(atom) > MAX_NESTING * len("min(,)") and text.nesting(atom) > MAX_NESTING:
        raise DimTooLarge(f"{MAX_NESTING} operations in each other")
    return SymbolicDim((((atom,), 1),))


_MOST_DIVISIONS = 4
"""Most divisions of the coefficients of a dim that is divided."""


def _simplify_floordiv(left: Dim, right: Dim) -> Dim | None:
    if not isinstance(right, int) or right < 0:
        return _divide_exactly(left, right)
    whole: Dim = 0
    rest = left
    for _ in range(_MOST_DIVISIONS):  # sums of remainders of halves may have other coefficients
        whole += _make({atoms: factor // right for atoms, factor in terms_of(rest)})
        rest = _make({atoms: factor % right for atoms, factor in terms_of(rest)})
        if all(0 <= factor < right for _, factor in terms_of(rest)):
            break
    if isinstance(rest, int):
        return whole
    if 2 * rest.terms[0][1] > right:  # of a quotient and its remainder, the one with smaller coefficients
        multiple = _make({atoms: 1 for atoms, _ in rest.terms if atoms})
        return whole + multiple - apply("floordiv", multiple * right - rest + (right - 1), right)
    nested = _nested_floordiv(rest, right)
    return whole + (_atom("floordiv", rest, right) if nested is None else nested)


def _nested_floordiv(left: SymbolicDim, right: int) -> Dim | None:
    """Simplify floordiv(floordiv(x, a) + c, b) to floordiv(x + a * c, a * b)."""
    terms = dict(left.terms)
    constant = terms.pop((), 0)
    [(atoms, factor), *more] = terms.items()
    parts = atom_parts(atoms[0])
    if more or factor != 1 or len(atoms) != 1 or parts is None or parts[0] != "floordiv":
        return None
    _, inner, divisor = parts
    if not isinstance(divisor, int) or divisor < 0:
        return None
    return apply("floordiv", inner + divisor * constant, divisor * right)


def _simplify_mod(left: Dim, right: Dim) -> Dim | None:
    """Write a remainder by a constant with the quotient, so that expressions in both cancel out."""
    if isinstance(right, int):
        return left - apply("floordiv", left, right) * right
    return None if _divide_exactly(left, right) is None else 0


def _divide_exactly(left: Dim, right: Dim) -> Dim | None:
    """Return the quotient of two polynomials, or None if there is a remainder.

    Terms are in graded lexicographic order.
    """
    lead_atoms, lead_factor = terms_of(right)[0]
    quotient: Dim = 0
    while left != 0:
        atoms, factor = terms_of(left)[0]
        rest = list(atoms)
        for atom in lead_atoms:
            if atom not in rest:
                return None
            rest.remove(atom)
        if factor % lead_factor:
            return None
        step = _make({tuple(rest): factor // lead_factor})
        quotient, left = quotient + step, left - step * right
    return quotient


def _simplify_max(left: Dim, right: Dim) -> Dim | None:
    difference = left - right
    return left if is_nonnegative(difference) else right if is_nonnegative(difference * -1) else None


def _simplify_min(left: Dim, right: Dim) -> Dim | None:
    larger = _simplify_max(left, right)
    if larger is not None:
        return left + right - larger
    for one, other in ((left, right), (right, left)):  # min(1, min(4, n)) is min(1, n)
        if isinstance(one, int) and one >= LARGEST:  # where a slice to the end ends
            return other
        parts = _single_atom(other)
        if parts is None or parts[0] != "min":
            continue
        for inner, rest in (parts[1:], parts[:0:-1]):
            if is_nonnegative(inner - one):
                return apply("min", one, rest)
    return None


def _single_atom(dim: Dim) -> tuple[str, Dim, Dim] | None:
    """Return the function and arguments of a dim that is a single `floordiv`, `mod`, `min` or `max`."""
    if isinstance(dim, int) or len(dim.terms) != 1 or dim.terms[0][1] != 1 or len(dim.terms[0][0]) != 1:
        return None
    return atom_parts(dim.terms[0][0][0])


_SIMPLIFY: dict[str, Callable[[Dim, Dim], Dim | None]] = {
    "floordiv": _simplify_floordiv,
    "mod": _simplify_mod,
    "min": _simplify_min,
    "max": _simplify_max,
}


_MAX_BOUNDS = 3
"""The most quotients that are replaced by their bounds, one after another: the search is exponential."""


def is_nonnegative(dim: Dim, bounds: int = _MAX_BOUNDS) -> bool:
    """Return whether a dim is non-negative for all values of its symbols.

    At most this many quotients are replaced by their bounds: fewer for a search that asks many such questions.
    """
    if isinstance(dim, int):
        return dim >= 0
    return dim is not UNKNOWN and search_bounds(dim, bounds)[0]


LARGEST = 2**63 - 1
"""The largest size: sizes have 64 bits."""
_MAX_QUOTIENTS = 6
"""The most quotients of a dim whose bounds are searched though it can be written with fewer: more take seconds."""


MAX_BOUND_STEPS = 4_000
"""The most terms of dims that a search for bounds looks at, some 20 ms: searches of models look at 300."""


@lru_cache(maxsize=16384)
def search_bounds(dim: SymbolicDim, bounds: int) -> tuple[bool, int]:
    """Return whether a dim is proven not to be negative, and how many terms the search looked at."""
    search = _BoundSearch()
    return search.is_nonnegative(dim, bounds), search.steps


class _BoundSearch:
    """A search for bounds that prove that a dim is not negative; its result depends on the dim only."""

    def __init__(self) -> None:
        self.steps = 0
        self._known: dict[tuple[Dim, int], bool] = {}

    def is_nonnegative(self, dim: Dim, bounds: int) -> bool:
        """Return whether a dim is proven not to be negative with this many quotients replaced."""
        key = dim, bounds
        if key not in self._known:
            self._known[key] = self._search(dim, bounds)
        return self._known[key]

    def _search(self, dim: Dim, bounds: int) -> bool:
        terms = terms_of(dim)
        self.steps += len(terms)
        if all(factor >= 0 and all(map(_is_nonnegative_atom, atoms)) for atoms, factor in terms):
            return True
        if bounds <= 0:
            return False
        for form in _forms(dim):
            for lowers in chain(_lower_bounds(form), _min_max_cases(form)):
                if self.steps > MAX_BOUND_STEPS:
                    return False
                if all(self.is_nonnegative(lower, bounds - 1) for lower in lowers):
                    return True
        return False


def _forms(dim: Dim) -> list[Dim]:
    """Return the ways to write a dim in which bounds of its quotients are searched."""
    quotients = sum(_has_quotient(atoms) for atoms, _ in terms_of(dim))
    shorter = folded(dict(terms_of(dim)), _reached_from) if quotients > 1 else None
    if shorter is None:
        return [dim]
    return [_ordered(shorter), dim] if quotients <= _MAX_QUOTIENTS else [_ordered(shorter)]


def _min_max_cases(dim: Dim) -> Iterator[list[Dim]]:
    """Yield cases with each operand of a minimum or maximum in its place.

    The dim is non-negative if all dims of one case are.
    """
    for atoms, factor in terms_of(dim):
        parts = atom_parts(atoms[0]) if len(atoms) == 1 else None
        if parts is None or parts[0] not in ("min", "max"):
            continue
        rest = dim - SymbolicDim(((atoms, factor),))
        sides = [rest + side * factor for side in parts[1:]]
        yield sides
        if (parts[0] == "max") == (factor > 0):  # no less than with either operand
            yield from ([side] for side in sides)


def _lower_bounds(dim: Dim) -> Iterator[list[Dim]]:
    """Yield multiples of lower bounds of a dim, each with one of its quotients eliminated."""
    quotients = [
        (atoms[0], factor, parts)
        for atoms, factor in terms_of(dim)
        if len(atoms) == 1 and (parts := atom_parts(atoms[0])) is not None and parts[0] == "floordiv"
    ]
    for atom, factor, (_, dividend, divisor) in quotients:
        if not isinstance(divisor, int) or divisor <= 0:
            continue
        rest = dim - SymbolicDim((((atom,), 1),)) * factor
        if factor > 0:  # a quotient is at least (dividend - divisor + 1) / divisor
            yield [rest * divisor + (dividend - divisor + 1) * factor]
            continue
        for other, _, (_, finer, step) in quotients:  # floordiv(x + k, a * b) is floordiv(floordiv(x, a) + k / a, b)
            apart = dividend - finer
            if other != atom and isinstance(step, int) and step > 0 and divisor % step == 0 and isinstance(apart, int):
                larger = SymbolicDim((((other,), 1),)) - (-apart // step)
                yield [rest * (divisor // step) + larger * factor]
        yield [rest * divisor + dividend * factor]


def _is_nonnegative_atom(atom: Atom) -> bool:
    parts = atom_parts(atom)
    if parts is None:
        return True
    function, left, right = parts
    if function == "max":
        return is_nonnegative(left) or is_nonnegative(right)
    return is_nonnegative(right) and (function == "mod" or is_nonnegative(left))


@lru_cache(maxsize=4096)
def atom_parts(atom: Atom) -> tuple[str, Dim, Dim] | None:
    """Return the function and arguments of an atom that is not a symbol."""
    if "(" not in atom:
        return None
    function, (left, right) = text.arguments(atom, symbol, apply)
    return function, left, right


@lru_cache(maxsize=4096)
def parse(expression: str) -> Dim:
    """Parse a dim from its text, as `str` prints it."""
    if expression.strip() == "?":
        return UNKNOWN
    result: Dim = text.evaluate(expression, symbol, apply)
    return result


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Return the dim with some symbols, or other atoms, replaced."""
    if isinstance(dim, int) or dim is UNKNOWN:
        return dim
    total: Dim = 0
    for atoms, factor in dim.terms:
        term: Dim = factor
        for atom in atoms:
            term = term * _substitute_atom(atom, values)
        total = total + term
    return total


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if atom in values:
        return values[atom]
    parts = atom_parts(atom)
    if parts is None:
        return SymbolicDim((((atom,), 1),))
    function, left, right = parts
    return apply(function, substitute(left, values), substitute(right, values))
