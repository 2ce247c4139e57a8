"""Translation of a planned module to its program.

A planned module has one function over buffers that calls prim functions, which launch kernels. The reader traces every
buffer of a launch back to a byte range in one of the program's memory spaces. Arithmetic on sizes, branches and loops
of the host become instructions; constants are folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dense import read_dense
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.buffers import UNBOUNDED, buffer_bytes, element_bytes
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.lower.calls import find
from mirlo.passes.memory.names import ALLOCATE, CHECK, GROW, SIZES_SUFFIX, SLOT
from mirlo.passes.memory.packed import RECORD, TYPES
from mirlo.passes.memory.timeline import REGIONS
from mirlo.passes.registry import PassError
from mirlo.targets.gpu.host_integers import HostIntegers, constant_of
from mirlo.targets.gpu.program import (
    ARENA,
    CONSTANT,
    LATE,
    PARAM,
    TENSOR,
    WHOLE_REMAINDER,
    Copy,
    HostInstruction,
    Launch,
    LaunchProgram,
    Range,
    Step,
    TensorMap,
    Value,
)
from mirlo.targets.gpu.runtime_functions import packed_call

_SAME = ("memref.collapse_shape", "memref.expand_shape", "memref.cast", "memref.reinterpret_cast")
"""Operations that view the same bytes."""
RECORD_SPACE = "record"
"""Stands for the call record while a program is read."""
HOST_SPACE = "host"
"""Stands for words on the host's stack, which are numbers with a name, while a program is read."""


def read_program(module: ir.Module, main: ir.Operation) -> LaunchProgram:
    """Return the program of a planned module whose kernels are outlined."""
    functions = {symbol_name(op): op.operation
                 for op in module.body.operations if op.operation.name == "func.func"}  # fmt: skip
    return _Reader(module, functions).run(main)


class _Reader:
    def __init__(self, module: ir.Module, functions: dict[str, ir.Operation]):
        self.module = module
        self.functions = functions
        self.program = LaunchProgram()
        self.numbers = HostIntegers()
        self.globals: dict[str, int] = {}
        self.kernels: dict[str, tuple[bool, ...]] = {}
        self.row = -1
        self.late = 0
        self.words = 0
        self.slots: dict[int, int] = {}
        """The memory of each slot, by the number of its words."""
        self.depth = 0

    def run(self, main: ir.Operation) -> LaunchProgram:
        env: dict[ir.Value, Range] = {}
        tensors = params = 0
        entries = ir.ArrayAttr(main.attributes["arg_attrs"])
        for argument, entry in zip(main.regions[0].blocks[0].arguments, entries, strict=True):
            attributes = ir.DictAttr(entry)
            size = _bytes(argument.type)
            if "relax.name" in attributes:
                env[argument] = Range(TENSOR, tensors, 0, size)
                tensors += 1
            elif "relax.param" in attributes:
                env[argument] = Range(PARAM, params, 0, size)
                params += 1
            elif "relax.arena" in attributes:
                env[argument] = Range(ARENA, 0, 0, size)
                self.program.arena = max(size, 0)
            elif RECORD in attributes:
                env[argument] = Range(RECORD_SPACE, 0, 0, size)
        self.program.steps = self._body(main.regions[0].blocks[0], env)
        sizes = self.functions.get(symbol_name(main) + SIZES_SUFFIX)
        if sizes is not None:
            block = sizes.regions[0].blocks[0]
            self.program.sizes = self._body(block, {block.arguments[0]: Range(RECORD_SPACE, 0, 0, WHOLE_REMAINDER)})
        return self.program

    def _body(self, block: ir.Block, env: dict[ir.Value, Range]) -> list[Step]:
        """Return the steps of a block."""
        steps: list[Step] = []
        before, self.numbers.steps = self.numbers.steps, steps
        self.depth += 1
        for op in [o.operation for o in block.operations]:
            self._step(op, env, steps)
        self.depth -= 1
        self.numbers.steps = before
        return steps

    def _step(self, op: Any, env: dict[Any, Any], steps: list[Step]) -> None:
        if op.name == "func.return" or self.numbers.take(op):
            return
        place = self._look(op, env)
        if place is not None:
            env[op.results[0]] = place
        elif op.name == "memref.alloca":
            env[op.results[0]] = Range(HOST_SPACE, self.words, 0, WHOLE_REMAINDER)
            self.words += 1
        elif op.name == "memref.copy":
            self._copy(env[op.operands[0]], env[op.operands[1]], steps)
        elif op.name == "memref.load":
            self._load(op, env[op.operands[0]])
        elif op.name == "memref.store":
            self._store(op, env[op.operands[1]], steps)
        elif op.name == "gpu.launch_func":
            self._launch(op, env, steps)
        elif op.name == "func.call":
            self._call(op, env, steps)
        elif op.name in ("scf.yield", "scf.condition"):
            self._end(op, steps)
        elif op.name in REGIONS:
            self._control(op, env, steps)
        else:
            raise PassError(f"'{op.name}': the host of a GPU cannot compute this; compile it for llvm", op.location)

    # Memory

    def _look(self, op: ir.Operation, env: dict[ir.Value, Range]) -> Range | TensorMap | None:
        """Return the range that a view operation refers to; None for other operations."""
        if op.name == "memref.view":
            return self._view(op, env[op.operands[0]])
        if op.name in _SAME:
            found: Range = env[op.operands[0]]
            return found
        if op.name == "nvgpu.tma.create.descriptor":
            return self._tensor_map(op, env[op.operands[0]])
        if op.name == "memref.get_global":
            return self._constant(ir.FlatSymbolRefAttr(op.attributes["name"]).value)
        return None

    def _tensor_map(self, op: ir.Operation, where: Range) -> TensorMap:
        """Return the descriptor of a tensor, with the shape and offset of the view it was made from."""
        kind = op.operands[0].owner.operands[0].type
        strides, offset = kind.get_strides_and_offset()
        box = [_constant_int(size) for size in list(op.operands)[1:]]
        bytes_ = buffer_bytes(ir.MemRefType.get([1], kind.element_type))
        return TensorMap(
            replace(where, offset=self.numbers.add(where.offset, bytes_ * offset)), tuple(reversed(kind.shape)),
            tuple(bytes_ * stride for stride in reversed(strides[:-1])), tuple(reversed(box)),
            ir.StringAttr(op.attributes["format"]).value,
        )  # fmt: skip

    def _view(self, op: ir.Operation, source: Range) -> Range:
        offset = self.numbers.add(source.offset, self.numbers.of(op.operands[1]))
        return Range(source.space, source.index, offset, _bytes(op.results[0].type))

    def _element(self, buffer: ir.Value, indices: Sequence[ir.Value], where: Range) -> tuple[Value, Range]:
        """Return the linear index of an element, and the range that starts at it."""
        place: Value = 0
        for dim, index in zip(buffer.type.shape, indices, strict=True):
            place = self.numbers.add(self.numbers.multiply(place, dim), self.numbers.of(index))
        size = element_bytes(buffer.type.element_type)
        offset = self.numbers.add(where.offset, self.numbers.multiply(place, size))
        return place, Range(where.space, where.index, offset, size)

    def _load(self, op: ir.Operation, where: Range) -> None:
        place, element = self._element(op.operands[0], list(op.operands)[1:], where)
        if where.space == RECORD_SPACE:
            self.numbers.named(op.results[0], "word", at=place)
        elif where.space == HOST_SPACE:
            self.numbers.named(op.results[0], "let", op="addi", bits=64, of=[_word(where, place), 0])
        else:
            kind = str(op.results[0].type)
            self.numbers.named(op.results[0], "load", **{"from": element.as_json(), "type": kind})

    def _store(self, op: ir.Operation, where: Range, steps: list[Step]) -> None:
        value = self.numbers.of(op.operands[0])
        place, element = self._element(op.operands[1], list(op.operands)[2:], where)
        if where.space == RECORD_SPACE:
            steps.append(HostInstruction("set", {"at": place, "value": value}))
        elif where.space == HOST_SPACE:
            fields = {"name": _word(where, place), "op": "addi", "bits": 64, "of": [value, 0]}
            steps.append(HostInstruction("let", fields))
        else:
            kind = str(op.operands[0].type)
            steps.append(HostInstruction("store", {"value": value, "to": element.as_json(), "type": kind}))

    def _copy(self, source: Range, target: Range, steps: list[Step]) -> None:
        if source != target and target.size:
            steps.append(Copy(source, target, max(self.row, 0)))

    def _constant(self, name: str) -> Range:
        if name not in self.globals:
            for other in self.module.body.operations:
                attributes = other.operation.attributes
                if other.operation.name == "memref.global" and symbol_name(other) == name:
                    self.program.constants.append(_bytes_of(attributes["initial_value"]))
                    self.globals[name] = len(self.program.constants) - 1
        at = self.globals[name]
        return Range(CONSTANT, at, 0, len(self.program.constants[at]))

    # Calls and launches

    def _call(self, op: Any, env: dict[Any, Any], steps: list[Step]) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        callee = self.functions[name]
        if name == CHECK:
            value, most, number = (self.numbers.of(v) for v in list(op.operands)[1:])
            steps.append(HostInstruction("check", {"value": value, "most": most, "number": number}))
            return
        if name == ALLOCATE:
            number, size = (self.numbers.of(v) for v in list(op.operands)[1:])
            steps.append(HostInstruction("allocate", {"memory": self.late, "number": number, "bytes": size}))
            env[op.results[0]] = Range(LATE, self.late, 0, WHOLE_REMAINDER)
            self.late += 1
            return
        if name in (GROW, SLOT):
            words = env[op.operands[1 if name == GROW else 0]].index
            if words not in self.slots:
                self.slots[words] = self.late
                self.late += 1
            memory = self.slots[words]
            if name == GROW:
                fields = {"memory": memory, "bytes": self.numbers.of(op.operands[2])}
                steps.append(HostInstruction("grow", fields))
            env[op.results[0]] = Range(LATE, memory, 0, WHOLE_REMAINDER)
            return
        self._next_row()
        if TYPES in callee.attributes:
            steps.append(packed_call(op, callee, env, self.numbers, max(self.row, 0)))
            return
        if not is_prim_func(callee.opview):
            raise PassError(f"'{name}' is a function of the run time, which models on GPUs cannot call", op.location)
        block = callee.regions[0].blocks[0]
        inner: dict[Any, Any] = {}
        for argument, value in zip(block.arguments, op.operands, strict=True):
            if value in env:
                inner[argument] = env[value]
            else:
                self.numbers.known[argument] = self.numbers.of(value)
        # Calls inside of a function have no profile rows.
        self.depth += 1
        for nested in [o.operation for o in block.operations]:
            self._step(nested, inner, steps)
        self.depth -= 1

    def _next_row(self) -> None:
        """Start a new profile row for a call or control flow of the entry function, not for what is inside of it."""
        if self.depth == 1:
            self.row += 1

    def _launch(self, op: ir.Operation, env: dict[ir.Value, Range], steps: list[Step]) -> None:
        operands = list(op.operands)
        sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        first = sizes[0]
        grid = tuple(self.numbers.of(value) for value in operands[first : first + 3])
        block = tuple(map(_constant_int, operands[first + 3 : first + 6]))
        given = operands[len(operands) - sizes[-1] - sizes[-2] : len(operands) - sizes[-1]]
        arguments = tuple(env[v] if v in env else self.numbers.of(v) for v in given)
        kernel = "::".join(ir.SymbolRefAttr(op.attributes["kernel"]).value)
        launch = Launch(kernel, grid, block, arguments, self._writes(kernel), max(self.row, 0))  # type: ignore[arg-type]
        steps.append(launch)

    def _writes(self, kernel: str) -> tuple[bool, ...]:
        if not self.kernels:
            for function in find(self.module, "gpu.func"):
                holder = function.parent
                assert holder is not None
                own = symbol_name(holder)
                name = f"{own}::{symbol_name(function)}"
                self.kernels[name] = tuple(map(_is_written, function.regions[0].blocks[0].arguments))
        return self.kernels[kernel]

    # Control flow

    def _control(self, op: ir.Operation, env: dict[ir.Value, Range], steps: list[Step]) -> None:
        self._next_row()
        if op.name == "scf.for" and self._is_copy(op, env, steps):
            return
        numbers = self.numbers
        if op.name == "scf.if":
            condition = numbers.of(op.operands[0])
            bodies = {"then": op.regions[0], "else": op.regions[1]}
            fields: dict[str, Any] = {"condition": condition}
        elif op.name == "scf.for":
            low, high, step, *start = map(numbers.of, op.operands)
            index, *carried = map(numbers.name, op.regions[0].blocks[0].arguments)
            fields = {"low": low, "high": high, "step": step, "index": index, "carried": carried, "start": start}
            bodies = {"body": op.regions[0]}
        else:
            start = list(map(numbers.of, op.operands))
            carried, handed = (list(map(numbers.name, region.blocks[0].arguments)) for region in op.regions)
            fields = {"carried": carried, "start": start, "handed": handed}
            bodies = {"before": op.regions[0], "after": op.regions[1]}
        read = {name: self._region(region, env) for name, region in bodies.items()}
        fields["results"] = list(map(numbers.name, op.results))
        steps.append(HostInstruction(op.name.removeprefix("scf."), fields, read))

    def _region(self, region: ir.Region, env: dict[ir.Value, Range]) -> list[Step]:
        return self._body(region.blocks[0], dict(env)) if len(region.blocks) else []

    def _end(self, op: ir.Operation, steps: list[Step]) -> None:
        values = list(map(self.numbers.of, op.operands))
        if op.name == "scf.condition":
            steps.append(HostInstruction("condition", {"value": values[0], "values": values[1:]}))
        elif values:
            steps.append(HostInstruction("yield", {"values": values}))

    def _is_copy(self, op: ir.Operation, env: dict[ir.Value, Range], steps: list[Step]) -> bool:
        """Return whether a loop copies elements one by one: buffers of dynamic size are copied so."""
        body = [o.operation for o in op.regions[0].blocks[0].operations]
        if [o.name for o in body] != ["memref.load", "memref.store", "scf.yield"] or len(op.results):
            return False
        load, store, _ = body
        index = op.regions[0].blocks[0].arguments[0]
        places = [*list(load.operands)[1:], *list(store.operands)[2:]]
        low, high, step = map(self.numbers.of, op.operands)
        if any(place != index for place in places) or len(places) != 2 or (low, step) != (0, 1):
            return False
        size = self.numbers.multiply(high, element_bytes(load.results[0].type))
        source, target = (
            Range(r.space, r.index, r.offset, size) for r in (env[load.operands[0]], env[store.operands[1]])
        )
        self._copy(source, target, steps)
        return True


def _word(where: Range, place: Value) -> str:
    """Return the name of a word on the host's stack."""
    assert isinstance(place, int)
    return f"w{where.index}.{place}"


def _bytes(kind: ir.Type) -> int:
    """Return the bytes of a buffer, if its type determines them."""
    return WHOLE_REMAINDER if UNBOUNDED in kind.shape else buffer_bytes(kind)


def _is_written(argument: ir.Value) -> bool:
    """Return whether a kernel does anything with a buffer other than read elements."""
    if not isinstance(argument.type, ir.MemRefType):
        return False  # a scalar, or a tensor map: only operands that are read have one
    return not all(
        use.owner.operation.name in ("memref.load", "vector.load") or _is_source(use) for use in argument.uses
    )


def _is_source(use: ir.OpOperand) -> bool:
    """Return whether an asynchronous copy reads a buffer; its first operands are the destination."""
    op = use.owner.operation
    return op.name == "nvgpu.device_async_copy" and use.operand_number >= 2


def _bytes_of(value: ir.Attribute) -> bytes:
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    return read_dense(value, kind).tobytes()


def _constant_int(value: ir.Value) -> int:
    found = constant_of(value)
    if found is None:
        raise PassError("how many threads a block has, or how large a box is, is not known when compiling")
    return found
