"""Building of the host functions of a planned module.

A planned module has one function over buffers that calls prim functions, which launch kernels. The builder traces every
buffer of a launch back to a byte range in one of the memory spaces. Arithmetic on sizes, branches and loops remain code
of the host; launches, copies and accesses of device memory become commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.surgery import clone_with
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.value import integer_of
from mirlo.dialects.tir.buffers import UNBOUNDED, buffer_bytes, element_bytes
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.memory.names import ALLOCATE, CHECK, GROW, SIZES_SUFFIX, SLOT
from mirlo.passes.memory.packed import PACKED, RECORD, TYPES, WRITTEN
from mirlo.passes.memory.timeline import REGIONS
from mirlo.passes.registry import PassError
from mirlo.targets.gpu.commands import MapSite, RangeHome, Site
from mirlo.targets.gpu.host import RUN, SIZES
from mirlo.targets.gpu.host_commands import CommandEmitter, LaunchArgument, Parts, in_parts
from mirlo.targets.gpu.host_values import HostValues, as_word, from_word
from mirlo.targets.gpu.kernel_writes import written_buffers
from mirlo.targets.gpu.program import (
    ARENA,
    CONSTANT,
    LATE,
    PARAM,
    TENSOR,
    WHOLE_REMAINDER,
    HostProgram,
    Range,
    TensorMap,
    Value,
)

_SAME = ("memref.collapse_shape", "memref.expand_shape", "memref.cast", "memref.reinterpret_cast")
"""Operations that view the same bytes."""
_HOST = "host"
"""The space of words that the host has itself: the call record, and words on its stack."""
_LEADING = 2
"""Operands of a call of a packed function before its buffers: the function pointers and the call record."""


def build_host_program(module: ir.Module, main: ir.Operation, parts: Parts | None = None) -> HostProgram:
    """Return the host program of a planned module whose kernels are outlined."""
    builder = _Builder(module, parts or {})
    with main.location:
        builder.build(main)
    return builder.program


class _Builder:
    def __init__(self, module: ir.Module, parts: Parts):
        self.module = module
        self.parts = parts
        self.functions = {symbol_name(op): op.operation
                          for op in module.body.operations if op.operation.name == "func.func"}  # fmt: skip
        with ir.Location.unknown():
            self.program = HostProgram(ir.Module.create())
        self.values = HostValues()
        self.commands = CommandEmitter(self.program, self.values)
        self.record: ir.Value | None = None
        self.declared: dict[str, tuple[Sequence[ir.Type], Sequence[ir.Type]]] = {}
        self.globals: dict[str, int] = {}
        self.kernels = written_buffers(module)
        self.row = -1
        self.late = 0
        self.slots: dict[ir.Value, int] = {}
        """The memory of each slot, by the buffer of its words."""
        self.maps: dict[ir.Value, TensorMap] = {}
        """The tensor maps, by their descriptors."""
        self.depth = 0

    def build(self, main: ir.Operation) -> None:
        env: dict[ir.Value, Range] = {}
        arguments = list(main.regions[0].blocks[0].arguments)
        tensors = params = 0
        for argument, entry in zip(arguments, ir.ArrayAttr(main.attributes["arg_attrs"]), strict=True):
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
        record = next((a for a, entry in zip(arguments, ir.ArrayAttr(main.attributes["arg_attrs"]), strict=True)
                       if RECORD in ir.DictAttr(entry)), None)  # fmt: skip
        self._function(RUN, main.regions[0].blocks[0], record, env)
        sizes = self.functions.get(symbol_name(main) + SIZES_SUFFIX)
        if sizes is not None:
            block = sizes.regions[0].blocks[0]
            self._function(SIZES, block, block.arguments[0], {})
            self.program.has_sizes = True
        self.commands.finish()

    def _function(self, name: str, block: ir.Block, record: ir.Value | None, env: dict[ir.Value, Range]) -> None:
        """Build a host function from the body of a function."""
        i64 = ir.IntegerType.get_signless(64)
        kind = ir.MemRefType.get([2], i64) if record is None else record.type
        with ir.InsertionPoint(self.program.module.body):
            function = func.FuncOp(name, ir.FunctionType.get([kind, ir.Type.parse("!llvm.ptr")], []))
        body = function.add_entry_block()
        self.record, self.values.device = body.arguments
        if record is not None:
            env[record] = Range(_HOST, 0, 0, WHOLE_REMAINDER)
            self.values.memory(record, self.record)
        with ir.InsertionPoint(body):
            self._body(block, env)
            func.ReturnOp([])

    def _body(self, block: ir.Block, env: dict[ir.Value, Range]) -> None:
        self.depth += 1
        for op in [o.operation for o in block.operations]:
            self._step(op, env)
        self.depth -= 1

    def _step(self, op: ir.Operation, env: dict[ir.Value, Range]) -> None:
        if op.name == "func.return":
            return
        with op.location:
            if self.values.take(op) or self._note_tensor_map(op, env):
                return
            viewed = self._viewed_range(op, env)
            if viewed is not None:
                env[op.results[0]] = viewed
            elif op.name == "memref.alloca":
                env[op.results[0]] = Range(_HOST, 0, 0, WHOLE_REMAINDER)
                self.values.memory(op.results[0], clone_with(op, []).results[0])
            elif op.name == "memref.copy":
                self._copy(env[op.operands[0]], env[op.operands[1]])
            elif op.name == "memref.load":
                self._load(op, env[op.operands[0]])
            elif op.name == "memref.store":
                self._store(op, env[op.operands[1]])
            elif op.name == "gpu.launch_func":
                self._launch(op, env)
            elif op.name == "func.call":
                self._call(op, env)
            elif op.name in ("scf.yield", "scf.condition"):
                clone_with(op, list(map(self.values.of, op.operands)))
            elif op.name in REGIONS:
                self._control(op, env)
            else:
                raise PassError(f"'{op.name}': the host of a GPU cannot compute this; compile it for llvm", op.location)

    # Memory

    def _viewed_range(self, op: ir.Operation, env: dict[ir.Value, Range]) -> Range | None:
        """Return the range that a view operation refers to; None for other operations."""
        if op.name == "memref.view":
            return self._view(op, env[op.operands[0]])
        if op.name in _SAME:
            return env[op.operands[0]]
        if op.name == "memref.get_global":
            return self._constant(ir.FlatSymbolRefAttr(op.attributes["name"]).value)
        return None

    def _note_tensor_map(self, op: ir.Operation, env: dict[ir.Value, Range]) -> bool:
        """Record the tensor map of a descriptor; return False for other operations."""
        if op.name != "nvgpu.tma.create.descriptor":
            return False
        self.maps[op.results[0]] = self._tensor_map(op, env[op.operands[0]])
        return True

    def _tensor_map(self, op: ir.Operation, where: Range) -> TensorMap:
        """Return the descriptor of a tensor, with the shape and offset of the view it was made from."""
        kind = op.operands[0].owner.operands[0].type
        strides, offset = kind.get_strides_and_offset()
        box = [_constant_int(size) for size in list(op.operands)[1:]]
        bytes_ = buffer_bytes(ir.MemRefType.get([1], kind.element_type))
        return TensorMap(
            replace(where, offset=self.values.add(where.offset, bytes_ * offset)), tuple(reversed(kind.shape)),
            tuple(bytes_ * stride for stride in reversed(strides[:-1])), tuple(reversed(box)),
            ir.StringAttr(op.attributes["format"]).value,
        )  # fmt: skip

    def _view(self, op: ir.Operation, source: Range) -> Range:
        offset = self.values.add(source.offset, self.values.number(op.operands[1]))
        return Range(source.space, source.index, offset, _bytes(op.results[0].type))

    def _element(self, buffer: ir.Value, indices: Sequence[ir.Value], where: Range) -> Range:
        """Return the range of an element."""
        place: Value = 0
        for dim, value in zip(buffer.type.shape, indices, strict=True):
            place = self.values.add(self.values.multiply(place, dim), self.values.number(value))
        size = element_bytes(buffer.type.element_type)
        offset = self.values.add(where.offset, self.values.multiply(place, size))
        return Range(where.space, where.index, offset, size)

    def _load(self, op: ir.Operation, where: Range) -> None:
        buffer, *indices = op.operands
        result = op.results[0]
        if where.space == _HOST:
            self.values.set(result, clone_with(op, list(map(self.values.of, op.operands))).results[0])
            return
        element = self._element(buffer, indices, where)
        site = Site(read=element.place, bytes=element_bytes(buffer.type.element_type))
        self.commands.emit(site, [element.offset], waits=True)
        self.values.set(result, from_word(self.commands.result(), result.type))

    def _store(self, op: ir.Operation, where: Range) -> None:
        value, buffer, *indices = op.operands
        if where.space == _HOST:
            clone_with(op, list(map(self.values.of, op.operands)))
            return
        element = self._element(buffer, indices, where)
        word = as_word(self.values.of(value))
        site = Site(write=element.place, bytes=element_bytes(buffer.type.element_type))
        self.commands.emit(site, [element.offset, word], waits=True)

    def _copy(self, source: Range, target: Range) -> None:
        if source == target or (isinstance(target.size, int) and target.size == 0):
            return
        size = target.size if _is_unbounded(source) else source.size
        if _is_unbounded(source) and _is_unbounded(target):
            raise PassError("a buffer is copied whose size neither its type nor that of the other one determines")
        words = [source.offset, size, target.offset, target.size]
        self.commands.emit({"copy": (source.place, target.place), "row": max(self.row, 0)}, words)

    def _constant(self, name: str) -> Range:
        constants = self.program.constants
        if name not in self.globals:
            for other in self.module.body.operations:
                attributes = other.operation.attributes
                if other.operation.name == "memref.global" and symbol_name(other) == name:
                    constants.append(_bytes_of(attributes["initial_value"]))
                    self.globals[name] = len(constants) - 1
        at = self.globals[name]
        return Range(CONSTANT, at, 0, len(constants[at]))

    # Calls and launches

    def _call(self, op: ir.Operation, env: dict[ir.Value, Range]) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        callee = self.functions[name]
        if name == CHECK:
            assert self.record is not None
            operands = [self.record, *map(self.values.of, list(op.operands)[1:])]
            func.CallOp([ir.IntegerType.get_signless(1)], ir.FlatSymbolRefAttr.get(CHECK), operands)
            return
        if name == ALLOCATE:
            words = [self.values.of(value) for value in list(op.operands)[1:]]
            self.commands.emit({"allocate": self.late}, words, waits=True)
            env[op.results[0]] = Range(LATE, self.late, 0, WHOLE_REMAINDER)
            self.late += 1
            return
        if name in (GROW, SLOT):
            words_of_slot = op.operands[1 if name == GROW else 0]
            if words_of_slot not in self.slots:
                self.slots[words_of_slot] = self.late
                self.late += 1
            memory = self.slots[words_of_slot]
            if name == GROW:
                self.commands.emit({"grow": memory}, [self.values.of(op.operands[2])], waits=True)
            env[op.results[0]] = Range(LATE, memory, 0, WHOLE_REMAINDER)
            return
        self._next_row()
        if TYPES in callee.attributes:
            self._call_packed(op, callee, env)
            return
        if not is_prim_func(callee.opview):
            raise PassError(f"'{name}' is a function of the run time, which models on GPUs cannot call", op.location)
        block = callee.regions[0].blocks[0]
        inner: dict[ir.Value, Range] = {}
        for argument, value in zip(block.arguments, op.operands, strict=True):
            if value in env:
                inner[argument] = env[value]
            else:
                self.values.alias(argument, value)
        # Calls inside of a function have no profile rows.
        self._body(block, inner)

    def _call_packed(self, op: ir.Operation, callee: ir.Operation, env: Mapping[ir.Value, Range]) -> None:
        """Call a packed function, on tensors copied to the CPU and back unless it takes them on the device."""
        types = [TensorType.from_mlir(ir.TypeAttr(entry).value) for entry in ir.ArrayAttr(callee.attributes[TYPES])]
        operands = list(op.operands)[_LEADING:]
        dims = iter([self.values.of(value) for value in operands[len(types) :]])
        shapes: list[tuple[str, int]] = []
        sizes: list[Value] = []
        for tensor in types:
            if tensor is None:
                raise PassError("a function of the run time takes something that is not a tensor", op.location)
            shapes.append((tensor.dtype.name, len(tensor.shape)))
            sizes += [dim if isinstance(dim, int) else next(dims) for dim in tensor.shape]
        ranges = [env[value] for value in operands[: len(types)]]
        site = Site(
            call=ir.StringAttr(ir.ArrayAttr(callee.attributes[PACKED])[0]).value, types=shapes,
            arguments=[where.place for where in ranges], row=max(self.row, 0),
            outputs=ir.IntegerAttr(callee.attributes[WRITTEN]).value,
        )  # fmt: skip
        self.commands.emit(site, [*(word for r in ranges for word in (r.offset, r.size)), *sizes], waits=True)

    def _next_row(self) -> None:
        """Start a new profile row for a call or control flow of the entry function, not for what is inside of it."""
        if self.depth == 1:
            self.row += 1

    def _launch(self, op: ir.Operation, env: dict[ir.Value, Range]) -> None:
        operands = list(op.operands)
        sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        first = sizes[0]
        grid = [self.values.of(value) for value in operands[first : first + 3]]
        block = [_constant_int(value) for value in operands[first + 3 : first + 6]]
        kernel_operands = operands[len(operands) - sizes[-1] - sizes[-2] : len(operands) - sizes[-1]]
        kernel = "::".join(ir.SymbolRefAttr(op.attributes["kernel"]).value)
        arguments = in_parts(list(map(partial(self._argument, env), kernel_operands)), self.parts.get(kernel, ()))
        words: list[Value] = [*grid]
        described: list[RangeHome | MapSite | str] = []
        for argument in arguments:
            if isinstance(argument, (Range, TensorMap)):
                where = argument if isinstance(argument, Range) else argument.range
                words += [where.offset, where.size]
                described.append(argument.place if isinstance(argument, Range) else argument.as_json())
            else:
                words.append(argument)
                described.append("scalar")
        writes = self.kernels[kernel]
        row = max(self.row, 0)
        self.commands.emit(Site(kernel=kernel, block=block, arguments=described, writes=writes, row=row), words)

    def _argument(self, env: Mapping[ir.Value, Range], value: ir.Value) -> LaunchArgument:
        """Return the description of an operand of a launch."""
        mapped = self.maps.get(value, env.get(value))
        return as_word(self.values.of(value)) if mapped is None else mapped

    # Control flow

    def _control(self, op: ir.Operation, env: dict[ir.Value, Range]) -> None:
        self._next_row()
        if op.name == "scf.for" and self._is_copy(op, env):
            return
        types = [result.type for result in op.results]
        operands = list(map(self.values.of, op.operands))
        new_op = ir.Operation.create(
            op.name, results=types, operands=operands, regions=len(op.regions), loc=op.location
        )
        for source, region in zip(op.regions, new_op.regions, strict=True):
            if len(source.blocks):
                self._region(source.blocks[0], region, dict(env))
        for result, value in zip(op.results, new_op.results, strict=True):
            self.values.set(result, value)

    def _region(self, block: ir.Block, region: ir.Region, env: dict[ir.Value, Range]) -> None:
        """Build a region from the one block of another."""
        arguments = list(block.arguments)
        body = region.blocks.append(*(a.type for a in arguments), arg_locs=[a.location for a in arguments])
        for argument, value in zip(arguments, body.arguments, strict=True):
            self.values.set(argument, value)
        with ir.InsertionPoint(body):
            self._body(block, env)

    def _is_copy(self, op: ir.Operation, env: dict[ir.Value, Range]) -> bool:
        """Return whether a loop copies elements one by one: buffers of dynamic size are copied so."""
        body = [o.operation for o in op.regions[0].blocks[0].operations]
        if [o.name for o in body] != ["memref.load", "memref.store", "scf.yield"] or len(op.results):
            return False
        load, store, _ = body
        counter = op.regions[0].blocks[0].arguments[0]
        places = [*list(load.operands)[1:], *list(store.operands)[2:]]
        low, high, step = map(self.values.number, op.operands)
        if any(place != counter for place in places) or len(places) != 2 or (low, step) != (0, 1):
            return False
        size = self.values.multiply(high, element_bytes(load.results[0].type))
        source, target = (replace(env[v], size=size) for v in (load.operands[0], store.operands[1]))
        self._copy(source, target)
        return True


def _is_unbounded(where: Range) -> bool:
    return isinstance(where.size, int) and where.size == WHOLE_REMAINDER


def _bytes(kind: ir.Type) -> int:
    """Return the bytes of a buffer, if its type determines them."""
    return WHOLE_REMAINDER if UNBOUNDED in kind.shape else buffer_bytes(kind)


def _bytes_of(value: ir.Attribute) -> bytes:
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    return read_dense(value, kind).tobytes()


def _constant_int(value: ir.Value) -> int:
    result = integer_of(value)
    if result is None:
        raise PassError("how many threads a block has, or how large a box is, is not known when compiling")
    return result
