"""Comparison of an accelerator's simulator with what its commands mean, and of whole programs with their functions.

A simulator in Python that is generic in its numbers runs on residues, others on integers. A command intrinsic is
compared with the block that describes it, on tiles with drawn sizes, strides and places. A program is a schedule: its
commands, executed by a simulator, compute what the function means that was scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DType, dtype_of_mlir
from mirlo.dialects.core.index_expr import IndexExpr, contiguous_strides
from mirlo.dialects.tir.view import PrimView, is_tensor_form
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.command_memory import CommandMemories, SimulationError, addresses
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.field_number import NumberField
from mirlo.passes.exact.function_calls import FunctionCalls
from mirlo.passes.exact.kernel_definition import BlockDefinition
from mirlo.passes.exact.memory import Array, GuardedBuffer
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import P
from mirlo.passes.exact.translator import Argument
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE, KernelVerdict
from mirlo.passes.schedule.primitives.command_intrin import CommandIntrin
from mirlo.passes.schedule.primitives.command_tree import ALIGNMENT, BufferPlace, TreeBuilder
from mirlo.passes.schedule.primitives.commands import CommandProgram, TileCommand, TileOperand
from mirlo.passes.schedule.primitives.tensorize import find_tensor_intrin
from mirlo.passes.schedule.primitives.tree import around, build
from mirlo.runtime.records import dataclass

DRAWS = 4
"""How many tiles of an intrinsic are drawn, besides those whose loops are divided between two commands."""
SIZES, GAPS, LEAST_NUMBER = (2, 6), (0, 3), 100
Run = Callable[[CommandMemories], None]


def compare_command(intrin: CommandIntrin) -> KernelVerdict:
    """Compare a command intrinsic's simulation with the block that describes it, exactly.

    Tiles have drawn sizes, gaps between their rows, and places. Each loop of the instruction is divided between two
    commands once: tiles at edges are smaller, and reductions begin with the first command and end with the last one.
    """
    if intrin.simulate is None:
        return KernelVerdict(intrin.name, OUTSIDE, "it has no simulation (command_intrin(simulate=))")
    verdict = KernelVerdict(intrin.name, EQUAL)
    rng = np.random.default_rng(0)
    for number in range(DRAWS):
        drawn = _DrawnCommand.draw(intrin, rng)
        loops = range(-1, len(drawn.reduced)) if number == 0 else [int(rng.integers(-1, len(drawn.reduced)))]
        for divided in loops:
            verdict = _compared(drawn.definition, partial(drawn.run, divided), drawn.arguments)
            if verdict.status != EQUAL:
                return replace(verdict, function=intrin.name)
    return replace(verdict, function=intrin.name)


def compare_program(program: CommandProgram) -> KernelVerdict:
    """Compare what a simulator computes with the function whose schedule the commands are, exactly."""
    view = program.schedule.view
    commands = program.schedule.commands(program.capacity)
    buffers = program.schedule.buffers_of_tree
    with view.op.context, ir.Location.unknown():
        values = [*view.arguments, *view.returned]
        named = {buffer.value: buffer.name for buffer in buffers if buffer.is_parameter}
        names = [named[value] for value in values]
        kinds = {buffer.name: _kind_of(buffer.element) for buffer in buffers}
        constants = {
            i: program.inputs[name] % P if kinds[name].is_float else program.inputs[name]
            for i, name in enumerate(names)
            if name in program.inputs
        }
        definition = BlockDefinition(view.op.operation.clone(), [constants] if constants else ())

        def run(memories: CommandMemories) -> None:
            if program.execute is not None:
                program.execute(tuple(commands), memories)
                return
            for command in commands:
                _simulation_of(command)(command, memories)

        arguments = _Arguments(names, kinds, commands.bytes)
        return replace(_compared(definition, run, arguments), function=program.name)


def program_intrinsics(program: CommandProgram) -> frozenset[str]:
    """Return the names of the intrinsics that a program executes."""
    return frozenset(command.name for command in program.schedule.commands(program.capacity))


def _simulation_of(command: TileCommand) -> Callable[[TileCommand, CommandMemories], None]:
    intrin = find_tensor_intrin(command.name)
    simulate = intrin.simulate if isinstance(intrin, CommandIntrin) else None
    if simulate is None:
        raise OutsideError(f"'{command.name}', which has no simulation (command_intrin(simulate=))")
    return simulate


def _compared(definition: BlockDefinition, run: Run, arguments: _Arguments) -> KernelVerdict:
    try:
        return _SimulatedPair(definition, run, arguments).verify()
    except OutsideError as error:
        return KernelVerdict(definition.name, OUTSIDE, str(error))
    except SimulationError as error:
        return KernelVerdict(definition.name, DIFFERENT, str(error))
    except Exception as error:
        return KernelVerdict(definition.name, DIFFERENT, f"its simulator fails: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class _Arguments:
    """The buffers of a simulation: its parameters, inputs then outputs, and the bytes of the accelerator's memories."""

    names: Sequence[str]
    kinds: Mapping[str, DType]
    """The element types of all buffers, by name."""
    scopes: Mapping[str, int]


@dataclass
class _SimulatedFunction:
    """A simulation that is called like a translated function."""

    arithmetic: Arithmetic
    arguments: Sequence[Argument]
    described: _Arguments
    run: Run

    def call(
        self, buffers: Sequence[GuardedBuffer | None], sizes: Mapping[str, int], table: Array, is_reversed: bool
    ) -> None:
        """Run on the elements of buffers."""
        field_of_round = None
        if isinstance(self.arithmetic, FieldArithmetic):
            field_of_round = NumberField.of_round(self.arithmetic.moduli, table)
        memories = CommandMemories(self.described.kinds, float if field_of_round is None else field_of_round.number)
        rng = np.random.default_rng([int(is_reversed), len(buffers)])
        for scope, size in self.described.scopes.items():
            memories.add(scope, size, lambda count: _garbage(rng, count, field_of_round))
        pairs = list(zip(self.described.names, buffers, strict=True))
        for name, buffer in pairs:
            assert buffer is not None
            width = self.described.kinds[name].bytes
            memories.add(name, buffer.count * width, lambda count: _garbage(rng, count, field_of_round))
            memories.numbers(name)[::width] = self._numbers(name, buffer, field_of_round)
        with np.errstate(all="ignore"):  # large floats overflow
            self.run(memories)
        for (name, buffer), argument in zip(pairs, self.arguments, strict=True):
            assert buffer is not None
            numbers = memories.numbers(name)[:: self.described.kinds[name].bytes]
            planes = field_of_round.planes(numbers) if field_of_round and argument.kind == "f" else [numbers]
            for plane, values in zip(buffer.planes, planes, strict=True):
                plane[:] = values.astype(plane.dtype)

    def _numbers(self, name: str, buffer: GuardedBuffer, field_of_round: NumberField | None) -> Array:
        kind = self.described.kinds[name]
        if kind.is_float and field_of_round is not None:
            return field_of_round.array(buffer.planes, [buffer.count])
        (plane,) = buffer.planes
        elements = plane if kind.is_float else plane.view(kind.to_numpy())
        return np.array([*elements.tolist(), None], object)[:-1]


class _SimulatedPair(KernelPair):
    """A definition, and a simulation that is compared with it."""

    def __init__(self, definition: BlockDefinition, run: Run, described: _Arguments):
        super().__init__(definition, definition.operation)
        self._run, self._described = run, described

    def _function_calls(self) -> None:
        """Return that a simulator computes no function by operations of a kernel."""

    def compile_scheduled(
        self, arithmetic: Arithmetic, places: list[str] | None = None, calls: FunctionCalls | None = None
    ) -> _SimulatedFunction:
        arguments = [*self.definition.inputs, *self.definition.outputs]
        return _SimulatedFunction(arithmetic, arguments, self._described, self._run)


def _garbage(rng: np.random.Generator, count: int, field_of_round: NumberField | None) -> list[object]:
    numbers = rng.integers(-(2**31), 2**31, count).tolist()
    return [field_of_round.number(each) for each in numbers] if field_of_round is not None else numbers


@dataclass(frozen=True)
class _PlacedBuffer:
    """An operand of an instruction, in the memory that the instruction has it in."""

    given: str
    """The memory with its elements, one after the other."""
    memory: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes, for each dim."""
    width: int

    def places(self) -> Array:
        """Return the address of each element."""
        return addresses(self.address, self.shape, self.strides).reshape(-1)

    def load(self, memories: CommandMemories) -> None:
        memories.numbers(self.memory)[self.places()] = memories.numbers(self.given)[:: self.width]

    def store(self, memories: CommandMemories) -> None:
        memories.numbers(self.given)[:: self.width] = memories.numbers(self.memory)[self.places()]


@dataclass(frozen=True)
class _DrawnCommand:
    """An instruction on tiles at drawn places."""

    simulate: Callable[[TileCommand, CommandMemories], None]
    definition: BlockDefinition
    command: TileCommand
    reduced: Sequence[bool]
    """For each loop, whether it is one of a reduction."""
    inputs: Sequence[_PlacedBuffer]
    outputs: Sequence[_PlacedBuffer]
    arguments: _Arguments

    @staticmethod
    def draw(intrin: CommandIntrin, rng: np.random.Generator) -> _DrawnCommand:
        symbols = {name: int(rng.integers(*SIZES)) for name in intrin.symbols}
        drawn = sorted(rng.integers(-LEAST_NUMBER, LEAST_NUMBER, len(intrin.means.numbers)).tolist())
        numbers = dict(zip(intrin.means.numbers, drawn, strict=True))
        module = ir.Module.create(ir.Location.unknown())
        with ir.InsertionPoint(module.body), ir.Location.unknown():
            means = intrin.means.build({**symbols, **numbers}, "command")
            module.body.append(means.operation)
        if not is_tensor_form(means):
            raise OutsideError(f"'{intrin.means.name}', which describes it by loops, not by a block")
        root = build(PrimView(means))
        (leaf,) = root.leaves()
        loops = around(leaf)
        ends: dict[str, int] = {}
        buffers: dict[str, _PlacedBuffer] = {}
        places: dict[int, BufferPlace] = {}
        for buffer in root.buffers:
            buffer.scope = intrin.scopes.get(buffer.name, "")
            whole = tuple(int(str(dim)) for dim in buffer.shape)
            padded = tuple(
                size + int(rng.integers(*GAPS)) if 0 < i < len(whole) - 1 else size for i, size in enumerate(whole)
            )
            width, memory = _kind_of(buffer.element).bytes, buffer.scope or buffer.name
            base = ends.get(memory, 0) + ALIGNMENT * int(rng.integers(*GAPS))
            size = -(-math.prod(padded) * width // ALIGNMENT) * ALIGNMENT
            ends[memory] = base + size + ALIGNMENT
            strides = tuple(width * int(str(stride)) for stride in contiguous_strides(padded))
            buffers[buffer.name] = _PlacedBuffer(f"given {buffer.name}", memory, base, whole, strides, width)
            places[id(buffer)] = BufferPlace([IndexExpr()] * len(whole), padded, base, size, IndexExpr())
        builder = TreeBuilder(root, places)
        reads, writes = (
            tuple(builder.operand(leaf, access, loops).tile({}) for access in accesses)
            for accesses in (leaf.reads, leaf.writes)
        )
        extents = tuple(int(str(loop.extent)) for loop in loops)
        kinds = {buffer.name: _kind_of(buffer.element) for buffer in root.buffers}
        kinds |= {f"given {name}": kind for name, kind in kinds.items()}
        names = {buffer.value: buffer.name for buffer in root.buffers if buffer.is_parameter}
        inputs, outputs = (
            [buffers[names[value]] for value in values] for values in (root.view.arguments, root.view.returned)
        )
        assert intrin.simulate is not None
        return _DrawnCommand(
            intrin.simulate, BlockDefinition(means.operation.clone()),
            TileCommand(intrin.name, leaf.name, extents, reads, writes, numbers=numbers),
            [loop.name in leaf.reduce_loops() for loop in loops], inputs, outputs,
            _Arguments([each.given for each in (*inputs, *outputs)], kinds, ends),
        )  # fmt: skip

    def run(self, divided: int, memories: CommandMemories) -> None:
        """Execute the command, or two commands between which a loop is divided."""
        for each in self.inputs:
            each.load(memories)
        before = {name: memories.numbers(name).copy() for name in self.arguments.scopes}
        for command in self._parts(divided):
            self.simulate(command, memories)
        for each in self.outputs:
            each.store(memories)
            before[each.memory][each.places()] = memories.numbers(each.memory)[each.places()]
        for name, numbers in before.items():
            changed = np.flatnonzero(numbers != memories.numbers(name))
            if len(changed):
                raise SimulationError(f"it writes byte {changed[0]} of '{name}', which is not in its results")

    def _parts(self, divided: int) -> list[TileCommand]:
        if divided < 0 or self.command.extents[divided] < 2:
            return [self.command]
        extents, cut = self.command.extents, self.command.extents[divided] // 2
        first = replace(self.command, extents=(*extents[:divided], cut, *extents[divided + 1 :]))
        last = replace(
            self.command, extents=(*extents[:divided], extents[divided] - cut, *extents[divided + 1 :]),
            reads=tuple(_moved(each, divided, cut) for each in self.command.reads),
            writes=tuple(_moved(each, divided, cut) for each in self.command.writes),
        )  # fmt: skip
        if self.reduced[divided]:
            return [replace(first, is_last=False), replace(last, is_first=False)]
        return [first, last]


def _moved(tile: TileOperand, loop: int, count: int) -> TileOperand:
    """Return a tile that begins some iterations of a loop later."""
    indices = tuple(index + step * count for index, step in zip(tile.indices, tile.steps[loop], strict=True))
    return replace(tile, address=tile.address + tile.strides[loop] * count, indices=indices)


def _kind_of(element: ir.Type) -> DType:
    kind = dtype_of_mlir(element)
    assert kind is not None
    return kind
