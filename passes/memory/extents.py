"""Products of run-time sizes in compiled code, and the limits they are checked against.

Sizes are multiplied in 64 bits, in the planned function and at the start of kernels. This is exact because the
planned function first requires that no product exceeds its limit: bytes of tensors, iterations of kernels, and the
terms of dims that are sums. The checks replace zeros by ones, so that a part of a product is never larger than the
product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import lru_cache

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dim_algebra import Atom, Monomial, terms_of
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import compare, create, emit_constant, select
from mirlo.dialects.tir.sizes import MAX_BYTES, MAX_ITERATIONS, SizeEmitter
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


_SATURATED = float(1 << 62)
"""Products are clamped to this: an exact f64 that fits in 64 bits."""


@dataclass(frozen=True)
class SizeProduct:
    """`scale` times the product of dims, which must be at most `limit`."""

    factors: tuple[Dim, ...]
    scale: int
    limit: int
    text: str

    @property
    def symbols(self) -> set[str]:
        return set().union(*map(D.symbols_of, self.factors))

    def emit(self, values: FloatSizes) -> ir.Value:
        """Return the product at the insertion point, as f64."""
        first, *others = self.factors
        product = values.clamped_to_one(first)
        for factor in others:
            product = create("arith.mulf", product.type, product, values.clamped_to_one(factor))
        if self.scale == 1:
            return product
        return create("arith.mulf", product.type, product, values.constant(float(self.scale)))


def emit_excess(
    products: Sequence[SizeProduct], numbers: Sequence[int], values: FloatSizes
) -> tuple[ir.Value, ir.Value]:
    """Return the number of the first product above its limit, and that product, clamped to 2^62; 0 and 0 for none.

    Without branches: a function may require a thousand products.
    """
    index = ir.IndexType.get()
    number: ir.Value = emit_constant(0, index)
    excess = values.constant(0.0)
    for product, own in reversed(list(zip(products, numbers, strict=True))):
        value = product.emit(values)
        is_above = compare("gt", value, values.constant(float(product.limit)))
        number = select(is_above, emit_constant(own, index), number)
        excess = select(is_above, value, excess)
    saturated = create("arith.minimumf", excess.type, excess, values.constant(_SATURATED))
    i64 = ir.IntegerType.get_signless(64)
    return number, create("arith.index_cast", index, create("arith.fptosi", i64, saturated))


@dataclass(frozen=True)
class NonnegativeDim:
    """A dim that must not be negative."""

    dim: Dim
    text: str

    @property
    def symbols(self) -> frozenset[str]:
        return D.symbols_of(self.dim)


class FloatSizes:
    """Emitter of sizes as f64, each computed once."""

    def __init__(self, sizes: SizeEmitter) -> None:
        self.sizes = sizes
        self._known: dict[str, ir.Value] = {}
        self._constants: dict[float, ir.Value] = {}

    def constant(self, number: float) -> ir.Value:
        """Return a constant, emitted once."""
        if number not in self._constants:
            self._constants[number] = emit_constant(number, ir.F64Type.get())
        return self._constants[number]

    def clamped_to_one(self, dim: Dim) -> ir.Value:
        """Return max(dim, 1)."""
        key = str(dim)
        if key not in self._known:
            index, i64 = ir.IndexType.get(), ir.IntegerType.get_signless(64)
            value = create("arith.maxsi", index, self.sizes.emit(dim), emit_constant(1, index))
            self._known[key] = create("arith.sitofp", ir.F64Type.get(), create("arith.index_cast", i64, value))
        return self._known[key]


@dataclass
class SizeProducts:
    """The products of one function, without those that others imply."""

    bound_by: Callable[[str], int]
    """The place of the operation that binds a symbol; -1 for symbols that are known before the call."""
    _largest: dict[tuple[str, ...], SizeProduct] = field(default_factory=dict)
    _parts: set[str] = field(default_factory=set)

    def add(self, dims: Sequence[Dim], scale: int, limit: int, text: str) -> None:
        """Require that a product of dims is at most the limit, and that the dims themselves can be computed."""
        factors: list[Dim] = []
        for dim in dims:
            if isinstance(dim, int):
                scale *= max(dim, 1)
            else:
                factors.append(dim)
                self.add_dim(dim, text)
        if factors:
            self._keep(SizeProduct(tuple(sorted(factors, key=str)), scale, limit, text))

    def add_dim(self, dim: Dim, text: str, limit: int = MAX_ITERATIONS) -> None:
        """Require that each term of a dim is at most the limit, recursively for the dims in it."""
        if isinstance(dim, int) or (limit == MAX_ITERATIONS and (dim.is_symbol or str(dim) in self._parts)):
            return
        self._parts.add(str(dim))
        for atoms, scale in dim.terms:
            for atom in atoms:
                parts = D.atom_parts(atom)
                for part in parts[1:] if parts is not None else ():
                    self.add_dim(part, text)
            if atoms:
                self._keep(SizeProduct(tuple(D.parse(atom) for atom in atoms), abs(scale), limit, text))

    def _keep(self, extent: SizeProduct) -> None:
        key = tuple(map(str, extent.factors))
        known = self._largest.get(key)
        if known is None or extent.scale * known.limit > known.scale * extent.limit:
            self._largest[key] = extent

    def required(self) -> list[SizeProduct]:
        """Return the checks that keep all products within their limits."""
        extents = [(Counter(key), extent) for key, extent in self._largest.items()]
        having: dict[str, list[tuple[Counter[str], SizeProduct]]] = {}
        for entry in extents:
            for factor in entry[0]:
                having.setdefault(factor, []).append(entry)
        required = []
        for factors, extent in extents:
            # Whatever implies an extent has its rarest factor.
            others = min((having[factor] for factor in factors), key=len)
            if not any(extent is not other and self._implies(more, other, factors, extent) for more, other in others):
                required.append(extent)
        return self._without_bounded(required)

    def _without_bounded(self, required: Sequence[SizeProduct]) -> list[SizeProduct]:
        """Return the products without those that the limits of products of symbols bound."""
        limits = KnownLimits()
        plain = [extent for extent in required if all(map(_is_symbol, extent.factors))]
        others = [extent for extent in required if not all(map(_is_symbol, extent.factors))]
        kept: set[int] = set()
        for extent in (*plain, *others):
            position = self._known_at(extent)
            if not all(map(_is_symbol, extent.factors)):
                most = _largest_value(extent, limits, position)
                if most is not None and most <= extent.limit:
                    continue
            kept.add(id(extent))
            # The other factors are at least one.
            symbols = [str(factor) for factor in extent.factors if _is_symbol(factor)]
            if symbols:
                limits.add(symbols, extent.limit / extent.scale, position)
        return [extent for extent in required if id(extent) in kept]

    def _implies(self, more: Counter[str], other: SizeProduct, factors: Counter[str], extent: SizeProduct) -> bool:
        """Return whether an extent is within its limit whenever the other one is, which is checked no later."""
        if not factors <= more or extent.scale * other.limit > other.scale * extent.limit:
            return False
        return self._known_at(other) <= self._known_at(extent)

    def _known_at(self, extent: SizeProduct) -> int:
        """Return the position of the operation after which all symbols of an extent are known."""
        return max(map(self.bound_by, extent.symbols), default=-1)


def _is_symbol(dim: Dim) -> bool:
    return not isinstance(dim, int) and dim.is_symbol


def _largest_value(extent: SizeProduct, limits: KnownLimits, place: int) -> float | None:
    """Return a number that a product does not exceed at a place; None if there is none."""
    bound = number(extent.scale)
    try:
        for factor in extent.factors:
            bound = bound * bound_of(factor).at_least_one()
    except TooManyTerms:
        return None
    return limits.number_of(bound, place)


__all__ = ["MAX_BYTES", "MAX_ITERATIONS", "SizeProduct", "SizeProducts", "NonnegativeDim", "FloatSizes"]
