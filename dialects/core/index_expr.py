"""Index expressions: sums of multiples of loop indices, with floor divisions that no rule could simplify.

This is the one algebra of indices. An expression is `constant + Σ coefficient · atom` in canonical form: an atom is a
variable (the number or the name of a loop) or a `FloorDiv`, coefficients are dims, mostly integers, and a remainder is
written with its quotient (`x - x floordiv n * n`), so that sums of both cancel out. Loops are split, merged and cut by
substitution; the coefficients show how an access moves along each loop. Nothing here needs the MLIR bindings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim, estimate_dim
from mirlo.runtime.records import dataclass

Variable = int | str
"""A loop, by its number or by its name. It takes the values from 0 to its extent."""
Extents = Sequence[Dim] | Mapping[Any, Dim]
"""The number of values of each variable."""


class NumberedLoop(Protocol):
    """A loop that has a number."""

    @property
    def id(self) -> int: ...


@dataclass(frozen=True)
class FloorDiv:
    """An `inner floordiv divisor` that no rule could simplify."""

    inner: IndexExpr
    divisor: Dim

    def __hash__(self) -> int:
        return hash((self.inner, self.divisor))

    def __str__(self) -> str:
        return f"({self.inner}) // {self.divisor}"


@dataclass(frozen=True)
class Remainder:
    """An `inner mod divisor`: how a sum that contains a quotient and its dividend is printed and emitted."""

    inner: IndexExpr
    divisor: int

    def __str__(self) -> str:
        return f"({self.inner}) % {self.divisor}"


Atom = int | str | FloorDiv


@dataclass(frozen=True)
class ValueRange:
    """The smallest and the largest value of an expression.

    `is_exact` says that both occur, `is_dense` that all values between them do too.
    """

    low: Dim
    high: Dim
    is_exact: bool = True
    is_dense: bool = True


@dataclass(frozen=True)
class IndexExpr:
    """An expression constant + Σ coefficient · atom; no coefficient is 0."""

    terms: Mapping[Any, Any] = field(default_factory=dict)
    """Coefficients, dims, by `Atom`."""
    constant: Any = 0

    def __init__(self, terms: Mapping[Any, Any] | None = None, constant: Any = 0) -> None:
        # A compilation makes tens of thousands: in a third of the time of the decorator's method.
        values = self.__dict__
        values["terms"] = {} if terms is None else terms
        values["constant"] = constant

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = hash((frozenset(self.terms.items()), self.constant))
            self.__dict__["_hash"] = known  # proofs look the same expressions up again and again
        return known

    def __add__(self, other: IndexExpr | Dim) -> IndexExpr:
        if not isinstance(other, IndexExpr):
            return IndexExpr(self.terms, self.constant + other)
        if not other.terms:
            return IndexExpr(self.terms, self.constant + other.constant)
        terms = dict(self.terms)
        for term, coefficient in other.terms.items():
            total = terms.get(term, 0) + coefficient
            if total == 0:
                del terms[term]
            else:
                terms[term] = total
        return IndexExpr(terms, self.constant + other.constant)

    def __mul__(self, factor: Dim) -> IndexExpr:
        if factor == 1:
            return self
        terms = {t: product for t, c in self.terms.items() if (product := c * factor) != 0}
        return IndexExpr(terms, self.constant * factor)

    def __sub__(self, other: IndexExpr | Dim) -> IndexExpr:
        if not isinstance(other, IndexExpr):
            return IndexExpr(self.terms, self.constant - other)
        if not other.terms:
            return IndexExpr(self.terms, self.constant - other.constant)
        return self + other * -1

    def __str__(self) -> str:
        terms, constant = self.terms_with_remainders()
        parts = [_print_term(atom, count) for atom, count in terms]
        if constant != 0 or not parts:
            parts.append(str(constant))
        return " + ".join(parts)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def divisions(self) -> list[FloorDiv]:
        return [term for term in self.terms if isinstance(term, FloorDiv)]

    @property
    def is_numeric(self) -> bool:
        """Return whether all coefficients and divisors are integers and none is a dynamic dim."""
        divisions = self.divisions
        parts = [self.constant, *self.terms.values(), *(d.divisor for d in divisions)]
        return all(isinstance(part, int) for part in parts) and all(d.inner.is_numeric for d in divisions)

    def coefficient(self, variable: Variable) -> Any:
        """Return the step of the expression along a loop; None if it is not constant."""
        for term in self.terms:
            if isinstance(term, FloorDiv) and variable in term.inner.variables():
                return None
        return self.terms.get(variable, 0)

    def moves_along(self, variable: Variable) -> bool:
        """Return whether the expression has a constant step along a loop, and one that is not 0."""
        return self.coefficient(variable) not in (None, 0)

    def estimated_step(self, variable: Variable) -> int:
        """Return an estimate of the length of the step along a loop; that of 0 where it is not constant."""
        step = self.coefficient(variable)
        return abs(estimate_dim(0 if step is None else step))

    def stride(self, loop: NumberedLoop) -> Any:
        """Return the step of an expression without divisions along a loop."""
        return self.terms.get(loop.id, 0)

    def variables(self) -> set[Any]:
        """Return the variables that it depends on."""
        result: set[Any] = set()
        for term in self.terms:
            if isinstance(term, FloorDiv):
                result |= term.inner.variables()
            else:
                result.add(term)
        return result

    def replace(self, values: Mapping[str, IndexExpr]) -> IndexExpr:
        """Replace these variables; others stay."""
        for term in self.terms:
            if term in values or isinstance(term, FloorDiv):
                return self._replace(values.get)
        return self

    def substitute(self, by: Callable[[Any], IndexExpr], extents: Extents | None = None) -> IndexExpr:
        """Replace every variable; `extents` are those of the new variables, where quotients may use them."""
        return self._replace(by, extents)

    def _replace(self, by: Callable[[Any], IndexExpr | None], extents: Extents | None = None) -> IndexExpr:
        """Replace the variables for which there is an expression."""
        if len(self.terms) == 1 and self.constant == 0:
            ((term, coefficient),) = self.terms.items()
            if not isinstance(term, FloorDiv):  # a loop, or a multiple of one: most are
                replacement = by(term)
                return self if replacement is None else replacement * coefficient
        terms: dict[Any, Any] = {}
        constant = self.constant
        for term, coefficient in self.terms.items():
            if isinstance(term, FloorDiv):
                value = floor_divide(term.inner._replace(by, extents), term.divisor, extents)
            else:
                replacement = by(term)
                if replacement is None:
                    terms[term] = terms.get(term, 0) + coefficient
                    continue
                value = replacement
            constant = constant + value.constant * coefficient
            for atom, count in value.terms.items():
                terms[atom] = terms.get(atom, 0) + count * coefficient
        return IndexExpr({atom: count for atom, count in terms.items() if count != 0}, constant)

    def terms_with_remainders(self) -> tuple[list[tuple[Atom | Remainder, Dim]], Dim]:
        """Return terms, in the order of their text, and constant of the same sum, written with remainders."""
        terms: dict[Atom | Remainder, Dim] = dict(self.terms)
        constant = self.constant
        for division in self.divisions:
            inner, divisor, factor = division.inner, division.divisor, terms.get(division, 0)
            if not isinstance(divisor, int) or not isinstance(factor, int) or not factor or factor % divisor:
                continue
            times = -factor // divisor
            if any(terms.get(term, 0) == 0 for term in inner.terms):
                continue
            for term, coefficient in inner.terms.items():
                terms[term] = terms[term] - coefficient * times
            del terms[division]
            constant = constant - inner.constant * times
            remainder = Remainder(inner, divisor)
            terms[remainder] = terms.get(remainder, 0) + times
        return sorted(((t, c) for t, c in terms.items() if c != 0), key=lambda term: str(term[0])), constant

    def range(self, extents: Extents) -> tuple[Any, Any]:
        """Return bounds of all values, tight for affine expressions; raise `UndecidedDim` if sizes decide them."""
        if any(isinstance(term, FloorDiv) for term in self.terms):
            bounds = self.value_range(extents)
            return bounds.low, bounds.high
        low = high = self.constant
        for term, coefficient in self.terms.items():
            reach = (_extent(extents, term) - 1) * coefficient
            low, high = (low, high + reach) if coefficient >= 0 else (low + reach, high)
        return low, high

    def value_range(self, extents: Extents) -> ValueRange:
        """Return the range of the values, where variables take the values from 0 to these extents."""
        terms: Iterable[tuple[Atom | Remainder, Dim]] = self.terms.items()
        low = high = self.constant
        if any(isinstance(term, FloorDiv) for term in self.terms):
            terms, low = self.terms_with_remainders()
            high = low
        is_exact, seen = True, set[Variable]()
        steps = []
        for term, coefficient in terms:
            if isinstance(term, (FloorDiv, Remainder)):
                part = _range_of_division(term, extents)
                read = term.inner.variables()
            else:
                extent = _extent(extents, term)
                # If a loop has no iteration, any bound holds.
                part = ValueRange(0, extent - 1, isinstance(extent, int) and extent > 0)
                read = {term}
            is_exact = is_exact and part.is_exact and not (seen & read)
            seen |= read
            first, last = part.low * coefficient, part.high * coefficient
            low, high = (low + first, high + last) if coefficient >= 0 else (low + last, high + first)
            steps.append((coefficient, part))
        return ValueRange(low, high, is_exact, is_exact and _leaves_no_gap(steps))


def _extent(extents: Extents, variable: Variable) -> Dim:
    """Return the number of values of a variable; a sequence has those of numbered loops."""
    return extents[variable] if isinstance(extents, (dict, Mapping)) else extents[int(variable)]


def _leaves_no_gap(parts: Sequence[tuple[Dim, ValueRange]]) -> bool:
    """Return whether a sum of multiples of independent ranges takes all values between its bounds."""
    reach: Dim = 0
    for step, part in sorted(((abs(step), part) for step, part in parts), key=lambda item: item[0]):
        if part.low != part.high and (step > reach + 1 or not part.is_dense):
            return False
        reach += step * (part.high - part.low)
    return True


def _range_of_division(term: FloorDiv | Remainder, extents: Extents) -> ValueRange:
    inner, divisor = term.inner.value_range(extents), term.divisor
    first, last = inner.low // divisor, inner.high // divisor
    if isinstance(term, FloorDiv):
        return ValueRange(first, last, inner.is_exact, inner.is_dense)
    if first == last:
        return ValueRange(inner.low - first * divisor, inner.high - first * divisor, inner.is_exact, inner.is_dense)
    # A dense range across a multiple of the divisor contains 0 there and the greatest remainder just before it.
    return ValueRange(0, divisor - 1, inner.is_dense, inner.is_dense and inner.high - inner.low + 1 >= divisor)


def _print_term(atom: Atom | Remainder, count: Dim) -> str:
    text = str(atom) if isinstance(atom, (int, str)) or count == 1 else f"({atom})"
    if count == 1:
        return text
    return f"({count})*{text}" if len(D.terms_of(count)) > 1 else f"{count}*{text}"


def loop_index(name: Variable) -> IndexExpr:
    """Return the expression that is this loop's index."""
    return IndexExpr({name: 1})


def number(value: Dim) -> IndexExpr:
    """Return a constant expression."""
    return IndexExpr({}, value)


def floor_divide(value: IndexExpr, divisor: Dim, extents: Extents | None = None) -> IndexExpr:
    """Return `value floordiv divisor`, without a division if the ranges of the variables allow it."""
    quotient = IndexExpr(
        {t: c // divisor for t, c in value.terms.items() if c % divisor == 0}, value.constant // divisor
    )
    rest = IndexExpr({t: c for t, c in value.terms.items() if c % divisor != 0}, value.constant % divisor)
    within = _quotient_of_range(rest, divisor, extents)
    if within is not None:
        return quotient + within
    if extents is None or not rest.is_numeric or not isinstance(divisor, int) or not _are_static(rest, extents):
        return quotient + IndexExpr({FloorDiv(rest, divisor): 1})
    # (8·i + j) floordiv 32 with 0 ≤ j < 8 is i floordiv 4.
    for scale in sorted({math.gcd(divisor, c) for c in rest.terms.values() if isinstance(c, int)} - {1}, reverse=True):
        fine = IndexExpr({t: c for t, c in rest.terms.items() if c % scale}, rest.constant % scale)
        low, high = fine.range(extents)
        if low >= 0 and high < scale:
            coarse = rest - fine
            terms = {t: c // scale for t, c in coarse.terms.items()}
            return quotient + floor_divide(IndexExpr(terms, coarse.constant // scale), divisor // scale, extents)
    return quotient + IndexExpr({FloorDiv(rest, divisor): 1})


def modulo(value: IndexExpr, divisor: Dim, extents: Extents | None = None) -> IndexExpr:
    """Return `value mod divisor`, which is never negative."""
    result: IndexExpr = value - floor_divide(value, divisor, extents) * divisor
    return result


def ceil_divide(value: IndexExpr, divisor: Dim, extents: Extents | None = None) -> IndexExpr:
    """Return `value ceildiv divisor`."""
    return floor_divide(value + (divisor - 1), divisor, extents)


def _are_static(value: IndexExpr, extents: Extents) -> bool:
    return all(isinstance(_extent(extents, name), int) for name in value.variables())


def _quotient_of_range(value: IndexExpr, divisor: Dim, extents: Extents | None) -> Dim | None:
    """Return the quotient that all values of an expression share, if there is one."""
    if extents is None and value.terms:
        return None
    try:
        low, high = value.range(extents or ())
        if low >= 0 and high < divisor:
            return 0
        return low // divisor if low // divisor == high // divisor else None
    except UndecidedDim:
        return None


def larger(left: IndexExpr, right: IndexExpr, extents: Extents) -> IndexExpr | None:
    """Return the expression that is never smaller than the other one, or None if neither is."""
    try:
        low, high = (left - right).range(extents)
    except UndecidedDim:
        return None
    return left if D.is_certain(lambda: low >= 0) else right if D.is_certain(lambda: high <= 0) else None


def flatten(dims: Iterable[IndexExpr], strides: Iterable[Dim]) -> IndexExpr:
    """Return the position in memory of an element at these indices."""
    terms: dict[Any, Any] = {}
    constant: Any = 0
    for dim, stride in zip(dims, strides, strict=True):
        constant = constant + dim.constant * stride
        for term, coefficient in dim.terms.items():
            terms[term] = terms.get(term, 0) + coefficient * stride
    return IndexExpr({term: coefficient for term, coefficient in terms.items() if coefficient != 0}, constant)


def contiguous_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the strides of a contiguous tensor, in elements."""
    strides: list[Dim] = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)
