"""`tir.size`: a dynamic dim inside a prim function, and how its value is computed.

    %n = "tir.size"() {dim = "2*batch + 1"} : () -> index

While a prim function is built, any of its code may use the run-time value of a dim. When it is finished,
`bind_symbols` adds an `index` parameter for each symbol that its dims depend on, computes each distinct dim once at the
start of the function, and records the symbols in `tir.symbols`: callers pass their values in that order. If all dims
depend on a symbol through quotients only (`floordiv(n + 7, 8)`), the parameter is the finest of these instead: kernels
of different levels of a pyramid then have equal code. The function checks nothing: its dims are recorded in
`tir.extents`, and callers make sure that they do not overflow.

A tensor with dynamic dims is in an *unbounded* buffer: one-dimensional, elements in row-major order. Its type has no
sizes, so that it is passed as a pointer alone; the position of an element is computed from dims.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Str
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError, result
from mirlo.dialects.core.types import dim_attributes, dims_of_attribute
from mirlo.dialects.core.value import Value, create, emit_constant
from mirlo.dialects.core.walk import find_named
from mirlo.dialects.tir.block import TirOp
from mirlo.runtime.records import dataclass


@dataclass(frozen=True, order=True)
class SymbolQuotient:
    """The atom `floordiv(symbol + shift, divisor)`."""

    divisor: int
    shift: int
    atom: D.Atom

    @property
    def is_size(self) -> bool:
        return self.shift >= 0


def quotients_by_symbol(dims: Iterable[Dim]) -> dict[str, list[SymbolQuotient]]:
    """Return the quotients of each symbol that occurs in nothing else, if all of them are functions of the first."""
    by_symbol: dict[str, set[SymbolQuotient]] = {}
    others: set[str] = set()
    for dim in dims:
        _collect(dim, by_symbol, others)
    ordered = {name: sorted(quotients) for name, quotients in by_symbol.items() if name not in others}
    return {name: quotients for name, quotients in ordered.items() if _are_functions_of_first(quotients)}


def in_finest(quotients: Sequence[SymbolQuotient], finest: Dim) -> Mapping[D.Atom, Dim]:
    """Return each quotient as a function of the first quotient, whose value is `finest`."""
    first = quotients[0]
    return {
        each.atom: (finest + (each.shift - first.shift) // first.divisor) // (each.divisor // first.divisor)
        for each in quotients
    }


def _are_functions_of_first(quotients: Sequence[SymbolQuotient]) -> bool:
    first = quotients[0]
    return first.is_size and all(
        each.divisor % first.divisor == 0 and (each.shift - first.shift) % first.divisor == 0 for each in quotients
    )


def _collect(dim: Dim, quotients: dict[str, set[SymbolQuotient]], others: set[str]) -> None:
    """Add the quotients in a dim, and the symbols that occur in something else."""
    for atoms, _ in () if isinstance(dim, int) else dim.terms:
        for atom in atoms:
            parts = D.atom_parts(atom)
            if parts is None:
                others.add(atom)
                continue
            function, left, right = parts
            shifted = _shifted_symbol(left) if function == "floordiv" and isinstance(right, int) else None
            if shifted is not None and isinstance(right, int) and right > 0:
                name, shift = shifted
                quotients.setdefault(name, set()).add(SymbolQuotient(right, shift, atom))
            else:
                _collect(left, quotients, others)
                _collect(right, quotients, others)


def _shifted_symbol(dim: Dim) -> tuple[str, int] | None:
    """Return the symbol and the number that a dim is the sum of, or None."""
    if isinstance(dim, int):
        return None
    terms = dict(dim.terms)
    shift = terms.pop((), 0)
    [(atoms, factor), *more] = terms.items()
    if more or factor != 1 or len(atoms) != 1 or D.atom_parts(atoms[0]) is not None:
        return None
    return atoms[0], shift


SYMBOLS = "tir.symbols"
"""Attribute of a buffer-form prim function: the symbols, or quotients of them, whose values are its last parameters."""


class Size(TirOp, name="size"):
    """The run-time value of a dim."""

    output = result()
    dim = Str()

    def check(self) -> None:
        if str(self.operation.results[0].type) != "index":
            raise OpError(f"the result must be an index, got {self.operation.results[0].type}")
        try:
            dim = D.parse(self.dim)
        except ValueError as error:
            raise OpError(str(error)) from None
        if dim is D.UNKNOWN:
            raise OpError("attribute 'dim' is '?', of which no value is known")


class SizeEmitter:
    """Emitter of dims as arithmetic on the values of symbols, or of quotients of them, each distinct dim once."""

    def __init__(self, symbols: Mapping[str, ir.Value]):
        self.symbols = symbols
        self._known: ChainMap[int | str, ir.Value] = ChainMap()

    def nested(self) -> SizeEmitter:
        """Return an emitter for a region inside, which knows the values emitted here before."""
        result = SizeEmitter(self.symbols)
        result._known = self._known.new_child()
        return result

    def emit(self, dim: Dim) -> ir.Value:
        """Return the value of a dim; its first emission must dominate all other uses."""
        key = dim if isinstance(dim, int) else str(dim)
        if key not in self._known:
            self._known[key] = self._emit(dim)
        return self._known[key]

    def _emit(self, dim: Dim) -> ir.Value:
        index = ir.IndexType.get()
        if isinstance(dim, int):
            return emit_constant(dim, index)
        total: Value | None = None
        for atoms, factor in dim.terms:
            is_plain = factor == 1 and len(atoms) > 0
            term = Value(self._atom(atoms[0]) if is_plain else self.emit(factor))
            for atom in atoms[is_plain:]:
                term = term * self._atom(atom)
            total = term if total is None else total + term
        assert total is not None, "a dim has terms"
        return total

    def _atom(self, atom: D.Atom) -> ir.Value:
        if atom not in self._known:
            self._known[atom] = self._emit_atom(atom)
        return self._known[atom]

    def _emit_atom(self, atom: D.Atom) -> ir.Value:
        parts = D.atom_parts(atom)
        if parts is None or atom in self.symbols:
            return self.symbols[atom]
        function, left, right = parts
        index = ir.IndexType.get()
        a, b = self.emit(left), self.emit(right)
        if function in ("min", "max"):
            return create(f"arith.{function}si", index, a, b)
        if not isinstance(right, int):  # never divide by zero, whatever a caller passes
            b = create("arith.maxsi", index, b, self.emit(1))
        quotient = create("arith.floordivsi", index, a, b)
        if function == "floordiv":
            return quotient
        return Value(a) - quotient * b


def sizes_in(function: ir.OpView) -> list[ir.Operation]:
    """Return the `tir.size` operations of a function."""
    return find_named(function, ["tir.size"])


def bind_symbols(function: ir.OpView) -> None:
    """Add an `index` parameter per symbol that the sizes of a buffer-form function depend on, and compute the sizes.

    Parameters are in the order of their use, and the order of the arithmetic does not depend on names, so that
    functions which differ in names of symbols only have the same code.
    """
    existing = sizes_in(function)
    if not existing:
        return
    op = function.operation
    # A function uses a few sizes in many places.
    texts = [size.opview.dim for size in existing]
    of_text = {text: D.parse(text) for text in texts}
    dims = list(dict.fromkeys(of_text.values()))
    add_extents(op, ([dim] for dim in dims if not (isinstance(dim, int) or dim.is_symbol)))
    # Of several symbols in one dim, another dim that has only one of them tells the order, if there is one.
    mentioned = sorted((sorted(D.symbols_of(dim)) for dim in dims), key=len)
    names = list(dict.fromkeys(name for each in mentioned for name in each))
    numbers = [D.symbol(f"s{position:04}") for position in range(len(names))]
    quotients = quotients_by_symbol(dims)
    numbered: dict[D.Atom, Dim] = {}
    for name, number in zip(names, numbers, strict=True):
        numbered.update(in_finest(quotients[name], number) if name in quotients else {name: number})
    entry = op.regions[0].blocks[0]
    values = [entry.add_argument(ir.IndexType.get(), op.location) for _ in names]
    with ir.InsertionPoint.at_block_begin(entry), op.location:
        sizes = SizeEmitter({str(number): value for number, value in zip(numbers, values, strict=True)})
        emitted = {dim: sizes.emit(D.substitute(dim, numbered)) for dim in dims}
        for size, text in zip(existing, texts, strict=True):
            size.results[0].replace_all_uses_with(emitted[of_text[text]])
    for size in existing:
        size.erase()
    taken = (quotients[name][0].atom if name in quotients else name for name in names)
    op.attributes[SYMBOLS] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in taken])


def add_symbols(function: ir.Operation, dims: Sequence[Dim]) -> list[ir.Value]:
    """Add a parameter for the value of each of these dims to a prim function in buffer form; return the parameters."""
    if not dims:
        return []
    entry, kind = function.regions[0].blocks[0], ir.IndexType.get()
    added: list[ir.Value] = [entry.add_argument(kind, function.location) for _ in dims]
    types = [argument.type for argument in entry.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    taken = [*symbols_of_function(function.opview), *dims]
    function.attributes[SYMBOLS] = ir.ArrayAttr.get([ir.StringAttr.get(str(dim)) for dim in taken])
    return added


def symbols_of_function(function: ir.OpView) -> list[Dim]:
    """Return the dims whose values a prim function in buffer form takes as parameters."""
    attributes = function.operation.attributes
    if SYMBOLS not in attributes:
        return []
    return [D.parse(ir.StringAttr(text).value) for text in ir.ArrayAttr(attributes[SYMBOLS])]


def buffer_indices(shape: Sequence[Dim], indices: Sequence[ir.Value]) -> list[ir.Value]:
    """Return the buffer indices of an element of a tensor: its indices, or one linear index if unbounded."""
    if all(isinstance(dim, int) for dim in shape):
        return list(indices)
    position = Value(indices[0])
    for dim, value in zip(shape[1:], indices[1:], strict=True):
        position = position * dim + value
    return [position]


EXTENTS = "tir.extents"
"""Attribute of a prim function, and of a call of external code: lists of dims whose products it uses."""
MAX_BYTES = 1 << 47
"""Most bytes of a tensor: the address space of a process on x86-64, below the range of unbounded buffers."""
MAX_ITERATIONS = 1 << 60
"""Most iterations of a kernel, or elements that are never written to memory: small sums fit into 64 bits."""


def add_extents(op: ir.Operation, products: Iterable[Sequence[Dim]]) -> None:
    """Add products of dims to those recorded on an operation."""
    extents = {tuple(map(str, dims)): list(dims) for dims in extents_of(op)}
    for dims in products:
        factors = [dim for dim in dims if dim != 1]
        if any(not isinstance(dim, int) for dim in factors):
            extents.setdefault(tuple(map(str, factors)), factors)
    if extents:
        op.attributes[EXTENTS] = ir.ArrayAttr.get([dim_attributes(tuple(dims)) for dims in extents.values()])


def extents_of(op: ir.Operation) -> list[tuple[Dim, ...]]:
    """Return the products of dims recorded on an operation."""
    if EXTENTS not in op.attributes:
        return []
    return [dims_of_attribute(entry) for entry in ir.ArrayAttr(op.attributes[EXTENTS])]
