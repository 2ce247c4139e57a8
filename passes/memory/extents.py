"""Products of run-time sizes in compiled code, and the limits they are checked against.

Sizes are multiplied in 64 bits, in the planned function and at the start of kernels. This is exact because the
planned function first requires that no product exceeds its limit: bytes of tensors, iterations of kernels, and the
terms of dims that are sums. The checks replace zeros by ones, so that a part of a product is never larger than the
product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dim_algebra import terms_of
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, compare, create, emit_constant, select
from mirlo.dialects.tir.extents import MAX_BYTES, MAX_ITERATIONS
from mirlo.dialects.tir.sizes import SizeEmitter

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

    def emit(self, values: FloatSizes) -> Any:
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
    number: Any = emit_constant(0, index)
    excess: ir.Value = values.constant(0.0)
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
    def symbols(self) -> set[str]:
        return D.symbols_of(self.dim)


class FloatSizes:
    """Emitter of sizes as f64, each computed once."""

    def __init__(self, sizes: SizeEmitter) -> None:
        self.sizes = sizes
        self._known: dict[str, Value] = {}
        self._constants: dict[float, ir.Value] = {}

    def constant(self, number: float) -> Any:
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

    is_early: Callable[[Dim], bool]
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
        found = [(Counter(key), extent) for key, extent in self._largest.items()]
        having: dict[str, list[tuple[Counter[str], SizeProduct]]] = {}
        for entry in found:
            for factor in entry[0]:
                having.setdefault(factor, []).append(entry)
        required = []
        for factors, extent in found:
            # Whatever implies an extent has its rarest factor.
            others = min((having[factor] for factor in factors), key=len)
            if not any(extent is not other and self._implies(more, other, factors, extent) for more, other in others):
                required.append(extent)
        return self._without_bounded(required)

    def _without_bounded(self, required: Sequence[SizeProduct]) -> list[SizeProduct]:
        """Return the products without those of computed dims (`2*n - 8`) that a product of symbols bounds."""
        plain = [extent for extent in required if all(_is_symbol(factor) for factor in extent.factors)]
        having: dict[str, list[tuple[Counter[str], SizeProduct]]] = {}
        for extent in plain:
            entry = Counter(map(str, extent.factors)), extent
            for name in entry[0]:
                having.setdefault(name, []).append(entry)
        kept = []
        for extent in required:
            if not all(_is_symbol(factor) for factor in extent.factors):
                scale, symbols = extent.scale, Counter[str]()
                for factor in extent.factors:
                    bound = _magnitude(factor)
                    scale, symbols = scale * bound[0], symbols + bound[1]
                bounded = SizeProduct(extent.factors, scale, extent.limit, extent.text)
                others = min((having.get(name, []) for name in symbols), key=len, default=[])
                if any(self._implies(more, other, symbols, bounded) for more, other in others):
                    continue
            kept.append(extent)
        return kept

    def _implies(self, more: Counter[str], other: SizeProduct, factors: Counter[str], extent: SizeProduct) -> bool:
        """Return whether an extent, checked no later, is within its limit whenever the other one is."""
        if not factors <= more or extent.scale * other.limit > other.scale * extent.limit:
            return False
        return _late(other.factors, self.is_early) == _late(extent.factors, self.is_early)


def _is_symbol(dim: Dim) -> bool:
    return not isinstance(dim, int) and dim.is_symbol


def _magnitude(dim: Dim) -> tuple[int, Counter[str]]:
    """Return a bound of max(|dim|, 1): a number times the product of these symbols, each replaced by 1 if it is 0."""
    total, symbols = 0, Counter[str]()
    for atoms, factor in terms_of(dim):
        scale, own = max(abs(factor), 1), Counter[str]()
        for atom in atoms:
            parts = D.atom_parts(atom)
            if parts is None:
                own[atom] += 1
                continue
            function, left, right = parts
            if function == "mod" and isinstance(right, int):
                scale *= max(abs(right), 1)
                continue
            # The quotient, the minimum and the maximum are at most their operands together, and 1 for the rounding.
            (first, one), (second, other) = _magnitude(left), _magnitude(right)
            scale *= first + 1 if function == "floordiv" and isinstance(right, int) else first + second + 1
            own += one | other
        total, symbols = total + scale, symbols | own
    return max(total, 1), symbols


def _late(dims: Iterable[Dim], is_early: Callable[[Dim], bool]) -> set[str]:
    """Return the data-dependent symbols of these dims."""
    return {name for dim in dims for name in D.symbols_of(dim) if not is_early(D.symbol(name))}


__all__ = ["MAX_BYTES", "MAX_ITERATIONS", "SizeProduct", "SizeProducts", "NonnegativeDim", "FloatSizes"]
