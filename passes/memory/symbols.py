"""Run-time sizes in a planned function: values of symbols, sizes computed from them, and their checks.

The run time passes the dims of the inputs to compiled code in the *call record*. Before a call it runs the size
function (`@main_sizes`), which checks them, and writes the size of the arena and the dims of the outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import cached_property

from mirlo.dialects.bindings import arith, func, ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import compare
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.sizes import SizeEmitter
from mirlo.dialects.tir.view import PRIM_FUNC
from mirlo.passes.memory.extents import FloatSizes, NonnegativeDim, SizeProduct, emit_excess
from mirlo.passes.memory.names import SIZES_SUFFIX
from mirlo.passes.memory.packed import RECORD_WORDS
from mirlo.passes.registry import PassError
from mirlo.runtime.records import dataclass

SYMBOLS = "relax.symbols"
"""Attribute of a planned function: the dims of its inputs that the run time writes into the call record, in order."""
SIZES = "relax.sizes"
"""Attribute of a planned function: the dims that compiled code writes into the record after those of the inputs; the
first is the size of the arena."""
CHECKS = "relax.checks"
"""Attribute of a planned function: the error texts for failed size checks, by number."""
MAX_SHOWN_DIMS = "relax.shown"
"""Attribute of a planned function: for each error text, the symbols whose values are shown with it."""
LATE = "relax.late"
"""Attribute of a planned function: the sizes that compiled code writes during the call, not before."""


@dataclass
class SizeCheck:
    """A check of sizes before a call: left == right, or left <= right."""

    left: Dim
    right: Dim
    text: str
    is_equality: bool = True
    shown: tuple[str, ...] = ()
    """The symbols whose values are shown instead of the value of `left`."""


@dataclass
class FunctionSymbols:
    """The symbols of one function: those of its inputs, and those that operations bind during the call."""

    inputs: list[str]
    """The text of each distinct dynamic dim of the inputs, in order: most are plain symbols."""
    bounds: dict[str, Dim]
    """Upper bounds of data-dependent symbols; UNKNOWN for no bound."""
    places: dict[str, int] = field(default_factory=dict)
    """The number of the operation that binds a data-dependent symbol, in the order of the program."""
    sizes: list[Dim] = field(default_factory=list)
    """The sizes written into the record after the inputs' dims."""
    checks: list[SizeCheck] = field(default_factory=list)
    solved: dict[str, Dim] = field(default_factory=dict)
    """Symbols that are not a dim of an input, each with the input dim that determines it."""
    extents: list[SizeProduct] = field(default_factory=list)
    """Requirements on products of sizes that are known before the call."""
    late: list[SizeProduct | NonnegativeDim] = field(default_factory=list)
    """Requirements on data-dependent sizes."""
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Error texts of products and of data-dependent sizes, numbered after the checks: each with the symbols whose
    values are shown."""

    @staticmethod
    def of(function: ir.OpView, inputs: Sequence[ir.Value], binds: Iterable[ir.Operation]) -> FunctionSymbols:
        """Create the symbols from the types of the inputs, and the operations that bind symbols."""
        dims = [dim for value in inputs for dim in dims_of(value.type) if not isinstance(dim, int)]
        texts = list(dict.fromkeys(map(str, dims)))
        bounds: dict[str, Dim] = {}
        indices: dict[str, int] = {}
        for number, op in enumerate(binds):
            view = op.opview
            for i, name in enumerate(view.symbols):
                limits = getattr(view, "bounds", ())
                bound = limits[i] if limits else D.UNKNOWN
                if name in texts or (name in bounds and (bound != bounds[name] or not _is_in_loop(op, function))):
                    raise PassError(f"symbol '{name}' is bound twice", op.location)
                bounds[name] = bound
                indices.setdefault(name, number)
        result = FunctionSymbols(texts, bounds, indices)
        waiting = [dim for dim in dict.fromkeys(dims) if not dim.is_symbol]
        while waiting:
            rest = []
            for dim in waiting:
                missing = sorted(dim.symbols() - set(texts) - set(result.solved))
                if len(missing) == 1 and _linear_in(dim, missing[0]) is not None:
                    result.solved[missing[0]] = dim
                elif missing:
                    rest.append(dim)
                    continue
                result.checks.append(SizeCheck(dim, dim, f"the dim '{dim}' of an input"))
            if len(rest) == len(waiting):
                unknown = min(rest[0].symbols() - set(texts) - set(result.solved))
                raise PassError(
                    f"an input has the dim '{rest[0]}', but no input has '{unknown}' itself for a dim: name the dim "
                    "with one symbol",
                    function.location,
                )
            waiting = rest
        return result

    @cached_property
    def plain(self) -> list[str]:
        """Return the inputs' dims that are plain symbols."""
        return [text for text in self.inputs if D.is_symbol_name(text)]

    @cached_property
    def early(self) -> set[str]:
        """Return the symbols whose values are known before the call."""
        return {*self.plain, *self.solved}

    @property
    def any(self) -> bool:
        return bool(self.inputs or self.bounds)

    @property
    def words(self) -> int:
        """Return the number of words of the call record, including the allocation function at the end."""
        return RECORD_WORDS + (len(self.inputs) + len(self.sizes) + 1 if self.any else 0)

    def slot(self, dim: Dim) -> int:
        """Return the word of the record that holds a dim."""
        text = str(dim)
        if text in self.inputs:
            return RECORD_WORDS + self.inputs.index(text)
        return RECORD_WORDS + len(self.inputs) + list(map(str, self.sizes)).index(text)

    def text_number(self, text: str, shown: Iterable[str] = ()) -> int:
        """Return the number of the error text for an invalid data-dependent size; these follow the checks."""
        self.texts.setdefault(text, tuple(sorted(shown)))
        return len(self.checks) + list(self.texts).index(text)

    def is_early(self, dim: Dim) -> bool:
        """Return whether the dim is known before the call."""
        return D.symbols_of(dim) <= self.early

    def is_checked(self, low: Dim, high: Dim, text: str) -> bool:
        """Return whether low <= high is checked before the call, with an error of this text."""
        return any((each.left, each.right, each.text) == (low, high, text) for each in self.checks)

    def bound_by(self, name: str) -> int:
        """Return the number of the operation that binds a symbol; -1 for one that is known before the call."""
        return self.places.get(name, -1)

    def bounded(self, size: Dim) -> Dim:
        """Return an upper bound of a size that is known before the call, or UNKNOWN."""
        return self._bounded(size, frozenset())

    @cached_property
    def _early_bounds(self) -> dict[str, Dim]:
        """Return the bounds of symbols that are known before the call, with earlier bounds substituted.

        A thousand results may each be at most as large as the one before, so each bound is computed once.
        """
        bounds: dict[str, Dim] = {}
        for name, bound in self.bounds.items():
            if bound is D.UNKNOWN:
                continue
            late = D.symbols_of(bound) - self.early
            if not late:
                bounds[name] = bound
            elif late <= bounds.keys() and _grows(bound):
                bounds[name] = D.substitute(bound, {each: bounds[each] for each in late})
        return bounds

    def _bounded(self, size: Dim, used: frozenset[str]) -> Dim:
        """Return an upper bound of a size; `used` are the symbols whose bounds contain it."""
        late = sorted(D.symbols_of(size) - self.early)
        if not late:
            return size
        if used.intersection(late) or any(self.bounds.get(name, D.UNKNOWN) is D.UNKNOWN for name in late):
            return D.UNKNOWN
        if _grows(size):
            bounds = {name: self._early_bounds.get(name, self.bounds[name]) for name in late}
            return self._bounded(D.substitute(size, bounds), used.union(late))
        parts = _linear_parts(size, late)
        if parts is not None:
            name, factor, rest = parts
            bound, most, others = (
                self._bounded(self.bounds[name], used | {name}),
                *self._all_bounded((factor, rest), used),
            )
            if bound is D.UNKNOWN or most is D.UNKNOWN or others is D.UNKNOWN:
                return D.UNKNOWN
            return others + D.maximum(most, 0) * bound  # no symbol is negative
        terms = [D.product([factor, *map(D.parse, atoms)]) for atoms, factor in D.terms_of(size)]
        if len(terms) > 1:
            factors = self._all_bounded(terms, used)
            return D.UNKNOWN if any(each is D.UNKNOWN for each in factors) else sum(factors[1:], start=factors[0])
        return self._bounded_product(size, used)

    def _bounded_product(self, size: Dim, used: frozenset[str]) -> Dim:
        """Return an upper bound of a product with a function of sizes among its factors."""
        ((atoms, factor),) = D.terms_of(size)
        if factor < 0:
            return 0 if D.is_nonnegative(-size) else D.UNKNOWN
        for i, atom in enumerate(atoms):
            parts, others = D.atom_parts(atom), [*atoms[:i], *atoms[i + 1 :]]
            rest = D.product([factor, *map(D.parse, others)])
            if parts is None or not D.is_nonnegative(rest):
                continue
            function, left, right = parts
            if function == "floordiv":
                return self._bounded_quotient(left, right, others, factor, used)
            factors = self._all_bounded((left * rest, right * rest), used)
            known = [each for each in factors if each is not D.UNKNOWN]
            if len(known) == 2:
                return D.apply(function, *known)
            return known[0] if known and function == "min" else D.UNKNOWN
        return D.UNKNOWN

    def _bounded_quotient(self, left: Dim, right: Dim, others: list[str], factor: int, used: frozenset[str]) -> Dim:
        """Return an upper bound of factor * others * (left // right), where others has `right` as a factor."""
        ((atoms, count), *more) = D.terms_of(left) or (((), 0),)
        inner = D.atom_parts(atoms[0]) if count == 1 and len(atoms) == 1 and not more else None
        if inner is not None and inner[0] == "floordiv":
            left, right = inner[1], inner[2] * right  # both divisors are positive
        terms = D.terms_of(right)
        if len(terms) != 1 or terms[0][1] <= 0:
            return D.UNKNOWN
        ((divisors, count),) = terms
        for each in map(_above_one, divisors):
            if each not in others:
                return D.UNKNOWN
            others.remove(each)
        bound = self._bounded(left, used)
        rest = self._bounded(D.product([factor, *map(D.parse, others)]), used)
        return D.UNKNOWN if bound is D.UNKNOWN or rest is D.UNKNOWN else rest * D.maximum(bound // count, 0)

    def _all_bounded(self, sizes: Sequence[Dim], used: frozenset[str]) -> list[Dim]:
        return [self._bounded(size, used) for size in sizes]

    def load(self, record: ir.Value) -> dict[str, ir.Value]:
        """Return the values of the inputs' symbols at the insertion point."""
        values = {name: load_word(record, self.slot(D.symbol(name))) for name in self.plain}
        for name, dim in self.solved.items():
            factor = _linear_in(dim, name)
            assert factor is not None
            rest = SizeEmitter(values).emit(dim - D.symbol(name) * factor)
            total = arith.SubIOp(load_word(record, self.slot(dim)), rest).result
            # A remainder is checked like all dims that are computed from others.
            values[name] = arith.FloorDivSIOp(total, emit_constant(factor, ir.IndexType.get())).result
        return values

    def annotate(self, function: ir.Operation) -> None:
        if not self.any:
            return
        texts = {
            SYMBOLS: self.inputs,
            SIZES: [str(dim) for dim in self.sizes],
            LATE: [str(dim) for dim in self.sizes if not self.is_early(dim)],
            CHECKS: [*(check.text for check in self.checks), *self.texts],
            MAX_SHOWN_DIMS: [
                " ".join(names) for names in (*(check.shown for check in self.checks), *self.texts.values())
            ],
        }
        for key, values in texts.items():
            function.attributes[key] = ir.ArrayAttr.get([ir.StringAttr.get(text) for text in values])

    def build_function(self, name: str, after: ir.Operation) -> None:
        """Build the size function: it checks the input dims in the record, and writes all sizes known then."""
        kind = ir.MemRefType.get([self.words], ir.IntegerType.get_signless(64))
        with after.location, ir.InsertionPoint(after):
            function = func.FuncOp(name + SIZES_SUFFIX, ir.FunctionType.get([kind], []))
            function.operation.attributes[PRIM_FUNC] = ir.UnitAttr.get()
            record = function.add_entry_block().arguments[0]
            with ir.InsertionPoint(function.operation.regions[0].blocks[0]):
                sizes = SizeEmitter(self.load(record))
                code: ir.Value = emit_constant(0, ir.IndexType.get())
                offset = code
                for i, check in reversed(list(enumerate(self.checks))):
                    left, right = load_or_emit(self, sizes, record, check.left), sizes.emit(check.right)
                    fails = compare("ne" if check.is_equality else "gt", left, right)
                    code = arith.SelectOp(fails, emit_constant(-1 - i, ir.IndexType.get()), code).result
                    offset = arith.SelectOp(fails, left, offset).result
                values, index = FloatSizes(sizes), ir.IndexType.get()
                numbers = [-1 - self.text_number(extent.text) for extent in self.extents]
                number, excess = emit_excess(self.extents, numbers, values)
                fails = compare("gt", excess, emit_constant(0, index))
                code = arith.SelectOp(fails, number, code).result
                offset = arith.SelectOp(fails, excess, offset).result
                store_word(code, record, 0)
                store_word(offset, record, 1)
                for dim in self.sizes:
                    if self.is_early(dim):
                        store_word(sizes.emit(dim), record, self.slot(dim))
                func.ReturnOp([])


def _is_in_loop(op: ir.Operation, function: ir.OpView) -> bool:
    """Return whether what an operation binds is seen in the body of a loop only."""
    parent = op.parent
    return parent is not None and parent != function and parent.operation.name == "scf.for"


def load_or_emit(symbols: FunctionSymbols, sizes: SizeEmitter, record: ir.Value, dim: Dim) -> ir.Value:
    """Return the value of an input's dim: loaded from the record, not computed."""
    return load_word(record, symbols.slot(dim)) if str(dim) in symbols.inputs else sizes.emit(dim)


def load_word(record: ir.Value, slot: int) -> ir.Value:
    """Load a word of the record as an index."""
    word = memref.LoadOp(record, [emit_constant(slot, ir.IndexType.get())]).result
    return create("arith.index_cast", ir.IndexType.get(), word)


def store_word(value: ir.Value, record: ir.Value, slot: int) -> None:
    word = create("arith.index_cast", ir.IntegerType.get_signless(64), value)
    memref.StoreOp(word, record, [emit_constant(slot, ir.IndexType.get())])


def _above_one(atom: str) -> str:
    """Return `n` for a divisor `max(1, n)`, which is no less than `n`; other divisors are unchanged."""
    parts = D.atom_parts(atom)
    if parts is None or parts[0] != "max" or 1 not in parts[1:]:
        return atom
    return str(parts[2] if parts[1] == 1 else parts[1])


def _linear_in(dim: Dim, name: str) -> int | None:
    """Return the positive coefficient of a symbol if the dim is linear in it, else None."""
    if isinstance(dim, int):
        return None
    factors = [factor for atoms, factor in dim.terms if atoms == (name,)]
    rest = [atoms for atoms, _ in dim.terms if atoms != (name,)]
    alone = not any(name in D.symbols_of(D.parse(atom)) for atoms in rest for atom in atoms)
    return factors[0] if len(factors) == 1 and factors[0] > 0 and alone else None


def _linear_parts(size: Dim, names: Sequence[str]) -> tuple[str, Dim, Dim] | None:
    """Return one of these symbols that a size is linear in, the sum of its factors, and the rest."""
    terms = () if isinstance(size, int) else size.terms
    for name in names:
        with_it = [(atoms, factor) for atoms, factor in terms if name in atoms]
        others = [atom for atoms, _ in terms for atom in atoms if atom != name]
        if not with_it or any(atoms.count(name) > 1 for atoms, _ in with_it):
            continue
        if any(name in D.symbols_of(D.parse(atom)) for atom in others):
            continue
        total: Dim = 0
        for atoms, factor in with_it:
            total = total + D.product([factor, *(D.parse(atom) for atom in atoms if atom != name)])
        return name, total, size - total * D.symbol(name)
    return None


def _grows(size: Dim) -> bool:
    """Return whether a size is monotonic in its symbols, and not negative."""
    if isinstance(size, int):
        return size >= 0
    return all(factor >= 0 and all(map(_atom_grows, atoms)) for atoms, factor in size.terms)


def _atom_grows(atom: str) -> bool:
    parts = D.atom_parts(atom)
    if parts is None:
        return True
    function, left, right = parts
    if function in ("min", "max"):
        return _grows(left) and _grows(right)
    return function == "floordiv" and isinstance(right, int) and right > 0 and _grows(left)
