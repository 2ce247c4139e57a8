"""A function of tensor operators, `relax.call_packed` and control flow, cut into steps.

Tensor operators are gathered in parts, each as large as can be: a part holds all operators of one *level*, the number
of times that the path to an operator changes from host functions back to tensors. Branches and loops with host
functions or objects inside become steps with blocks; others stay in the parts, whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.driver.programs import CALL, is_host, main_of, needs_program
from mirlo.driver.programs.outline import ProgramOutliner, determined_symbols, dim_symbols, read_by, symbols_in
from mirlo.passes.graph.constants import constant_value, is_constant
from mirlo.passes.locations import node_of
from mirlo.passes.memory.storage_assignment import BIND, BINDS, ERASE, MATCH
from mirlo.passes.session import Session
from mirlo.runtime.compiled_program import HOST, IF, PART, WHILE, CompiledBlock, ProgramStep
from mirlo.runtime.errors import MirloError
from mirlo.runtime.records import dataclass

CARRIED_ALONG = ("relax.constant", "tensor.extract", ERASE)
"""Operations that are repeated wherever their results are used."""


class ProgramError(MirloError, ValueError):
    """A model with host functions that cannot be cut into parts."""

    error_code = "MIR0601"
    remedy = "Export the model without the use of sequences or strings that the message names."


@dataclass
class ProgramDraft:
    """The result of a partition: the steps, and a module for each part."""

    body: CompiledBlock
    registers: int
    constants: dict[int, str]
    parts: list[ir.Module]


def partition(module: ir.Module, session: Session) -> ProgramDraft:
    """Cut the function `@main` of a module; the parts are modules of its context."""
    main = main_of(module)
    assert main is not None
    cutter = _Cutter(session)
    body = cutter.block(main.operation.regions[0].blocks[0])
    return ProgramDraft(body, cutter.count, cutter.constants, cutter.parts)


def modules_on_tensors(module: ir.Module, session: Session) -> list[ir.Module]:
    """Return the modules that passes run on: the parts of a model that works on objects, else the model itself."""
    if not needs_program(module):
        return [module]
    with module.context, ir.Location.unknown():
        return partition(module, session).parts


@dataclass
class _Cutter:
    session: Session
    count: int = 0
    registers: dict[ir.Value, int] = field(default_factory=dict)
    constants: dict[int, str] = field(default_factory=dict)
    parts: list[ir.Module] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    """Parts by their text: equal ones are compiled once."""
    visible: list[ir.Value] = field(default_factory=list)
    """The values that have been computed, of the blocks around as well."""
    binders: dict[str, ir.Operation] = field(default_factory=dict)
    """The operations of parts before that bind symbols to elements of a tensor."""

    def new(self, value: ir.Value) -> int:
        self.registers[value] = self.count
        self.visible.append(value)
        self.count += 1
        return self.count - 1

    def register(self, value: ir.Value) -> int:
        """Return the register of a value at run time; constants exist from the beginning."""
        value = source_of(value)
        if value not in self.registers:
            array = constant_value(value, self.session)
            if array is None:
                raise ProgramError(f"a value of type {value.type} cannot be handed from a part to a host function")
            param = value.owner.opview.param
            name = param if param is not None else self.session.params.add_unique("constant", array)
            self.registers[value] = self.count
            self.constants[self.count] = name
            self.count += 1
        return self.registers[value]

    def block(self, block: ir.Block) -> CompiledBlock:
        seen = len(self.visible)
        arguments = tuple(self.new(argument) for argument in block.arguments)
        *operations, terminator = [op.operation for op in block.operations]
        steps = tuple(self._steps([op for op in operations if op.name not in CARRIED_ALONG], terminator))
        results = tuple(self.register(value) for value in terminator.operands)
        del self.visible[seen:]
        return CompiledBlock(arguments, steps, results)

    def _steps(self, operations: Sequence[ir.Operation], terminator: ir.Operation) -> list[ProgramStep]:
        reads = [_reads(op) for op in operations]
        named = [symbols_in(op) for op in operations]
        known = {name for value in self.visible for name in dim_symbols(value)}
        levels = _levels(operations, named, known)
        _sink(operations, reads, named, known, levels)
        steps: list[ProgramStep] = []
        for level in range(max(levels, default=-1) + 1):
            members = [i for i, own_level in enumerate(levels) if own_level == level and not _is_step(operations[i])]
            if members:
                inside = set(members)
                outside = {value for i, values in enumerate(reads) if i not in inside for value in values}
                outside.update(_reads(terminator))
                later = {name for i, names in enumerate(named) if i not in inside for name in names}
                steps += self._part([operations[i] for i in members], outside, later)
            for i, op in enumerate(operations):
                if levels[i] == level and op.name == MATCH and _is_step(op):
                    # The same array: a part that reads it finds the sizes in its shape.
                    self.registers[op.results[0]] = self.register(op.operands[0])
                    self.visible.append(op.results[0])
                elif levels[i] == level and _is_step(op):
                    steps.append(self._host(op))
        return steps

    def _part(self, operations: Sequence[ir.Operation], outside: set[ir.Value], symbols: set[str]) -> list[ProgramStep]:
        """Return a subgraph of these operations with the results that are used outside.

        `symbols` are those in types outside: a tensor that determines one is a result, too, or the sizes themselves.
        """
        results = [value for op in operations for value in op.results if value in outside]
        binders = {name: op for op in operations if op.name == BIND for name in op.opview.symbols}
        self.binders |= binders
        if not results and not binders.keys() & symbols:
            return []
        determined = {name for value in (*self.visible, *results) for name in determined_symbols(value)}
        for value in (value for op in operations for value in op.results if value not in outside):
            news = (determined_symbols(value) & symbols) - determined
            if news:
                determined |= news
                results.append(value)
        sizes = {op.operands[0] for name, op in binders.items() if name in symbols - determined}
        results += [value for op in operations for value in op.results if value in sizes and value not in results]
        if not results:
            return []
        for value in results:
            if TensorType.from_mlir(value.type) is None:
                raise ProgramError(f"a value of type {value.type} cannot be handed from a part to a host function")
        outliner = ProgramOutliner(operations, results, self.visible, self.binders)
        text = outliner.module.operation.get_asm()
        if text not in self.known:
            self.known[text] = len(self.parts)
            self.parts.append(outliner.module)
        inputs = tuple(self.register(value) for value in outliner.inputs)
        return [ProgramStep(PART, inputs, tuple(map(self.new, results)), part=self.known[text])]

    def _host(self, op: ir.Operation) -> ProgramStep:
        if op.name == CALL:
            view = op.opview
            return ProgramStep(
                HOST,
                tuple(map(self.register, op.operands)),
                tuple(map(self.new, op.results)),
                function=view.function,
                options=view.options,
                kinds=tuple(_kind_text(value.type) for value in op.results),
                source=node_of(op.location) or "",
            )
        if op.name not in ("scf.if", "scf.while"):
            raise ProgramError(f"'{op.name}' cannot work on objects: only relax.call_packed, scf.if and scf.while can")
        inputs = tuple(map(self.register, op.operands))
        blocks = tuple(self.block(region.blocks[0]) for region in op.regions)
        kind = IF if op.name == "scf.if" else WHILE
        return ProgramStep(kind, inputs, tuple(map(self.new, op.results)), blocks=blocks)


def _levels(operations: Sequence[ir.Operation], named: Sequence[set[str]], known: set[str]) -> list[int]:
    """Tensor operators of level n come before the host functions of level n, and after those of level n - 1.

    An operator comes after the one that determines its sizes, even if it does not read it; some are `known` before.
    """
    seen = set(known)
    levels_of_values: dict[ir.Value, tuple[int, bool]] = {}
    bound: dict[str, tuple[int, bool]] = {}
    levels: list[int] = []
    last_host = 0
    for op, names in zip(operations, named, strict=True):
        on_host = _is_step(op)
        operands = [levels_of_values[value] for value in _reads(op) if value in levels_of_values]
        operands += [bound[name] for name in names if name in bound]
        level = max((at + (from_host and not on_host) for at, from_host in operands), default=0)
        if on_host:  # host functions may have effects: their order stays
            level = last_host = max(level, last_host)
        levels.append(level)
        levels_of_values.update((value, (level, on_host)) for value in op.results)
        determined = op.opview.symbols if op.name in BINDS else names if on_host else ()
        bound |= {name: (level, on_host) for name in determined if name not in seen}
        seen |= names
    return levels


def _sink(
    operations: Sequence[ir.Operation],
    reads: Sequence[Sequence[ir.Value]],
    named: Sequence[set[str]],
    known: set[str],
    levels: list[int],
) -> None:
    """Raise operators to the level of their first reader, which saves a part to call if no earlier level needs one.

    Symbols are carried from part to part by tensors whose types have them. So an operator that is the first to name a
    symbol is not raised above others that name it, and stays in the part that binds the symbol.
    """
    news: list[set[str]] = []
    seen = set(known)
    bound: set[str] = set()
    for op, names in zip(operations, named, strict=True):
        news.append(names - seen)
        seen |= names
        bound.update(op.opview.symbols if op.name in BINDS else ())
    readers: dict[ir.Value, int] = {}
    users: dict[str, int] = {}
    for i in reversed(range(len(operations))):
        op = operations[i]
        wanted = [readers[value] for value in op.results if value in readers]
        if wanted and not news[i] & bound and op.name not in BINDS and not _is_step(op):
            levels[i] = max(levels[i], min([*wanted, *(users[name] for name in news[i] if name in users)]))
        for value in reads[i]:
            readers[value] = min(levels[i], readers.get(value, levels[i]))
        for name in named[i]:
            users[name] = min(levels[i], users.get(name, levels[i]))


def _reads(op: ir.Operation) -> list[ir.Value]:
    """Return the values that an operation captures, except those of operations that are duplicated at each use."""
    return [source for value in read_by(op) if (source := source_of(value)) is not None and not is_constant(source)]


def _is_step(op: ir.Operation) -> bool:
    """Return whether an operation is a step of the program rather than of a part."""
    if op.name == MATCH:
        value = op.operands[0]
        return not isinstance(value, ir.OpResult) or is_host(value.owner.operation)
    return is_host(op)


def source_of(value: ir.Value) -> ir.Value:
    """Return the tensor that a scalar was extracted from, or whose dims were erased, else the value itself."""
    while isinstance(value, ir.OpResult) and value.owner.name in ("tensor.extract", ERASE):
        value = value.owner.operands[0]
    return value


def _kind_text(mlir_type: ir.Type) -> str:
    """Return the kind that a host function must return for this type; "" for an object of any kind."""
    tensor_type = TensorType.from_mlir(mlir_type)
    return "" if tensor_type is None else str(tensor_type)
