"""The calls of kernels: the sizes of their parameters, and the checks that their callers make of these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from operator import itemgetter

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import operation_class
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.sizes import symbols_of_function
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.locations import node_labels
from mirlo.runtime.records import dataclass

Shapes = tuple[tuple[Dim, ...] | None, ...]
"""The shapes of operands and results; None for what is no tensor."""


CALLERS = "_of_caller"
"""The end of the names that symbols of a caller get whose own ones are those of others in the kernel."""


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel: its operands and results, and dims that are not negative where it runs."""

    shapes: Shapes
    facts: tuple[Dim, ...] = ()
    tables: tuple[tuple[int, ir.Attribute], ...] = ()
    """The operands that are small constants of integers: their positions and elements."""


@dataclass(frozen=True)
class KnownOperands:
    """Facts about the operands of a kernel: sizes of parameters, dims that are not negative, constants."""

    sizes: Mapping[int, Dim]
    """The numbers of elements of parameters, by position."""
    facts: Sequence[Dim]
    tables: Mapping[int, ir.Attribute]
    """The elements of parameters that are constants, by position."""


@dataclass
class Calls:
    """The calls of one kernel, and the nodes that they compute."""

    nodes: list[str] = field(default_factory=list)
    calls: dict[KernelCall, None] = field(default_factory=dict)
    symbols: frozenset[str] = frozenset()
    """The symbols that the kernel takes the values of."""

    def known_operands(self, workspace: Dim) -> Iterator[KnownOperands]:
        """Yield the facts about the operands, once for each distinct kind of call of the kernel."""
        seen: set[tuple[object, ...]] = set()
        for call in self.calls or [KernelCall(())]:
            sizes = {i: D.product(shape) for i, shape in enumerate(call.shapes) if shape is not None}
            if call.shapes and workspace != 0:
                sizes[len(call.shapes)] = workspace
            key = (*sizes.items(), *call.facts, *call.tables)
            if key not in seen:
                seen.add(key)
                dims = [dim for shape in call.shapes for dim in shape or () if not isinstance(dim, int)]
                yield KnownOperands(sizes, [*dict.fromkeys(dims), *call.facts], dict(call.tables))


def find_calls(module: ir.Operation) -> dict[str, Calls]:
    """Return the calls of prim functions in a module, by function."""
    functions = [member for member in module.regions[0].blocks[0].operations if member.operation.name == "func.func"]
    by_callee = {
        symbol_name(function): Calls(symbols=frozenset(_symbols_of_kernel(function)))
        for function in functions
        if is_prim_func(function.operation)
    }
    for function in functions:
        if not is_prim_func(function.operation):
            for op, facts in calls_in(function.operation):
                _add_call(op, facts, by_callee)
    return by_callee


def _symbols_of_kernel(function: ir.OpView) -> set[str]:
    return {name for dim in symbols_of_function(function) for name in D.symbols_of(dim)}


class CheckedDims:
    """Dims that are not negative, in the order of their checks; each is found by one of its symbols."""

    def __init__(self, dims: Iterable[Dim] = ()) -> None:
        self._by_symbol: dict[str, list[tuple[int, Dim, frozenset[str]]]] = {}
        self._dims: list[Dim] = []
        self.extend(dims)

    def __iter__(self) -> Iterator[Dim]:
        return iter(self._dims)

    def extend(self, dims: Iterable[Dim]) -> None:
        """Add dims that later checks of the caller make not negative."""
        for dim in dims:
            symbols = D.symbols_of(dim)
            rarest = min(symbols, key=lambda name: len(self._by_symbol.get(name, ())), default="")
            self._by_symbol.setdefault(rarest, []).append((len(self._dims), dim, symbols))
            self._dims.append(dim)

    def of_symbols(self, symbols: Collection[str]) -> tuple[Dim, ...]:
        """Return the dims that have none but these symbols."""
        pairs = [
            (position, dim)
            for name in ("", *symbols)
            for position, dim, own in self._by_symbol.get(name, ())
            if own.issubset(symbols)
        ]
        return tuple(dim for _, dim in sorted(pairs, key=itemgetter(0)))


def calls_in(function: ir.Operation) -> Iterator[tuple[ir.Operation, CheckedDims]]:
    """Yield the calls of kernels in a graph function, each with dims that are not negative where it runs."""
    for region in function.regions:
        for block in region.blocks:
            yield from _calls_in(block, _facts_of_inputs(block))


def _calls_in(block: ir.Block, known: Iterable[Dim]) -> Iterator[tuple[ir.Operation, CheckedDims]]:
    """Visit the operations of a block in order: the checks of one hold for those after it, and inside of them."""
    facts = CheckedDims(known)
    for member in block.operations:
        op = member.operation
        if op.name == "relax.call_tir":
            yield op, facts
        else:
            facts.extend(_checked_by(op))
        for region in op.regions:
            for inner in region.blocks:
                yield from _calls_in(inner, facts)


def facts_before(op: ir.Operation) -> list[Dim]:
    """Return the dims that are not negative where an operation runs: those that are checked before it."""
    facts: list[Dim] = []
    inside: ir.Operation | None = op
    while inside is not None and inside.parent is not None and inside.name != "func.func":
        for member in inside.block.operations:
            if member.operation == inside:
                break
            facts += _checked_by(member.operation)
        inside = inside.parent.operation
    return facts


def facts_in(function: ir.Operation) -> list[Dim]:
    """Return the dims that are not negative after the operations of a function, which otherwise end the call."""
    (block,) = function.regions[0].blocks
    types = [TensorType.from_mlir(argument.type) for argument in block.arguments]
    sizes = [dim for kind in types if kind is not None for dim in kind.shape if isinstance(dim, D.SymbolicDim)]
    return [*sizes, *(fact for member in block.operations for fact in _checked_by(member.operation))]


def _facts_of_inputs(block: ir.Block) -> list[Dim]:
    """Return the facts that are checked of dims of inputs before anything is computed."""
    types = [TensorType.from_mlir(argument.type) for argument in block.arguments]
    early = {name for kind in types if kind is not None for dim in kind.shape for name in D.symbols_of(dim)}
    facts = []
    for member in block.operations:
        facts += [fact for fact in _checked_by(member.operation) if D.symbols_of(fact) <= early]
    return facts


def _checked_by(op: ir.Operation) -> list[Dim]:
    """Return the dims that are not negative after an operation, which otherwise ends the call."""
    kind = operation_class(op.name)
    if kind is None or Trait.CHECKS_DIMS not in kind.TRAITS:
        return []
    checked: list[Dim] = op.opview.checked_dims
    return checked


def _add_call(op: ir.Operation, facts: CheckedDims, by_callee: dict[str, Calls]) -> None:
    calls = by_callee.setdefault(op.opview.callee, Calls())
    calls.nodes += node_labels(op.location)
    types = [TensorType.from_mlir(value.type) for value in (*op.operands, *op.results)]
    shapes: Shapes = tuple(None if kind is None else kind.shape for kind in types)
    taken = {name for symbol in calls.symbols for name in D.symbols_of(op.opview.in_caller(D.symbol(symbol)))}
    symbols = {name for shape in shapes for dim in shape or () for name in D.symbols_of(dim)} | taken
    relevant = facts.of_symbols(symbols)
    if op.opview.symbols:
        shapes = tuple(None if shape is None else dims_in_callee(op, shape) for shape in shapes)
        relevant = dims_in_callee(op, relevant)
    tables = tuple((i, table) for i, value in enumerate(op.operands) if (table := _integers_of(value)) is not None)
    calls.calls[KernelCall(shapes, relevant, tables)] = None


def dims_in_callee(call: ir.Operation, dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return dims of the caller of a kernel with the names that their symbols have in the kernel."""
    pairs = list(zip(call.opview.symbols, call.opview.sizes, strict=True))
    own = {str(size): D.symbol(name) for name, size in pairs if isinstance(size, D.SymbolicDim) and size.is_symbol}
    others = {name for name, _ in pairs} - set(own)
    named: dict[D.Atom, Dim] = {**{name: D.symbol(f"{name}{CALLERS}") for name in others}, **own}
    return tuple(D.substitute(dim, named) for dim in dims)


def _integers_of(value: ir.Value) -> ir.Attribute | None:
    """Return the elements of a constant of integers in the IR."""
    op = value.owner
    if isinstance(op, ir.Block) or op.operation.name != "relax.constant":
        return None
    elements = op.opview.value
    return elements if elements is not None and isinstance(elements.type.element_type, ir.IntegerType) else None
