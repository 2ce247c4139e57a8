"""Translations of launches of the `gpu` dialect: blocks one after the other, and their threads between barriers.

The code of a launch is cut at barriers and shuffles. Each part runs for one thread after the other; what a thread
computes in one part and reads in another is kept in memory. Loops and branches around barriers run for all threads at
once, branches under a mask. Shadows of buffers find exchanges without a barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.shadows import DIVERGENCE, Moment, Shadows
from mirlo.passes.exact.translate_arith import POISON_FLOAT, POISON_INT
from mirlo.passes.exact.translate_warps import WARP, WARP_INSTRUCTIONS, emit_warp_instruction
from mirlo.passes.exact.translator import Argument, KernelTranslator, translates
from mirlo.passes.exact.values import (
    BufferRef,
    FloatValue,
    IntValue,
    KernelValue,
    Number,
    PackedFloats,
    StructValue,
    bits_of,
    element_of,
    is_float,
    lanes_of,
)
from mirlo.runtime.records import dataclass

BARRIER, SHUFFLE, ALLOCA, ALLOC = "gpu.barrier", "gpu.shuffle", "memref.alloca", "memref.alloc"
COPY = "nvgpu.device_async_copy"
SHARED_MEMORY = "shared memory"
_VIEWS = ("memref.collapse_shape", "memref.expand_shape", "memref.view", "memref.cast", "memref.subview")
"""Operations that view memory, which are emitted in each part that reads them."""
_PURE = ("arith.", "affine.")
_SYNCHRONIZING = (BARRIER, SHUFFLE, *WARP_INSTRUCTIONS)
_MODES = ("xor", "up", "down", "idx")


@translates("gpu.launch")
def launch(t: KernelTranslator, op: ir.Operation) -> None:
    _Launch(t, op).emit()


@dataclass(frozen=True)
class _Slot:
    """The memory of a value that threads compute in one part and read in another."""

    buffer: BufferRef
    lanes: int | None
    is_bool: bool
    group: int = 0
    """How many floats an integer is, whose bits they are; 0 for other numbers."""


class _Launch:
    """One launch."""

    def __init__(self, t: KernelTranslator, op: ir.Operation):
        self.t = t
        self.block = op.regions[0].blocks[0]
        sizes = _launch_sizes(t, op)
        self.grid, threads = sizes[:3], [size.constant for size in sizes[3:]]
        if any(size is None for size in threads):
            raise OutsideError("a launch whose number of threads is known at run time")
        self.threads = [size for size in threads if size is not None]
        self.count = self.threads[0] * self.threads[1] * self.threads[2]
        self.shadows = Shadows(t)
        self.slots: dict[ir.Value, _Slot] = {}
        self.structs: dict[ir.Value, list[_Slot]] = {}
        """The memory of each part of structures."""
        self.uniform: set[ir.Value] = set()
        """Values that are the same for all threads of a block."""
        self.inner = {value for each in operations_in(op) for value in each.results}
        self.part_of: dict[ir.Operation, int] = {}
        """The part of each operation; those at which threads synchronize, and those around them, have none."""
        self.private: dict[ir.Value, BufferRef] = {}
        """The memory of all threads for each buffer that a thread has for itself."""
        self.mask: _Slot | None = None
        """Which threads execute the code under construction; all, without one."""
        self.state = t.buffer_argument(Argument("scratch", "i", 64, (1,)), (1,))
        """The number of barriers before."""
        self.first = t.index(0)

    def emit(self) -> None:
        t = self.t
        inputs = sum(argument.role == "in" for argument in t.arguments)
        for value, known in list(t.values.items()):
            if isinstance(known, BufferRef) and isinstance(value.owner, ir.Block):
                is_result = t.memory[known.roots].role == "out"
                self.shadows.prepare(value, f"result {value.arg_number - inputs}" if is_result else "scratch memory")
        for op in operations_in(self.block.owner.operation):
            if op.name == ALLOC:  # each block has its own, and writes all that it reads
                t.set(op, t.local_buffer(op.results[0].type))
                self.uniform.add(op.results[0])
                self.shadows.prepare(op.results[0], SHARED_MEMORY, is_of_block=True)
        if any(op.name == COPY for op in operations_in(self.block.owner.operation)):
            self.shadows.prepare_copies(self.count)
        self._find_parts(self.block)
        self.shadows.clear()
        t.store(t.index(0), self.state, t.index(0))
        sizes = self.grid
        total = t.arith("mul", t.arith("mul", sizes[0], sizes[1]), sizes[2])

        def one(index: IntValue, carried: list[Number]) -> Sequence[Number]:
            known = [*self._indices(index, sizes), *[None] * 3, *sizes, *map(t.index, self.threads)]
            for argument, value in zip(self.block.arguments, known, strict=True):
                if value is not None:
                    t.values[argument] = value
                    self.uniform.add(argument)
            self._synchronize()
            self.first = self._epoch()
            self._start_copies()
            self._emit_block(self.block)
            return []

        outer, t.shadows = t.shadows, self.shadows
        t.loop(t.index(0), total, t.index(1), [], one, is_parallel=True)
        t.shadows = outer

    def _start_copies(self) -> None:
        """Emit that no thread of a block has copies in flight."""
        t = self.t

        def thread(number: IntValue, carried: list[Number]) -> Sequence[Number]:
            self.shadows.start_block(Moment(number, t.index(0), t.index(0)))
            return []

        if self.shadows.has_copies:
            t.loop(t.index(0), t.index(self.count), t.index(1), [], thread)

    def _indices(self, number: IntValue, sizes: Sequence[IntValue]) -> list[IntValue]:
        """Return the indices of a position, the first one fastest."""
        t, indices = self.t, []
        for size in sizes:
            indices.append(t.index(0) if size.constant == 1 else t.arith("urem", number, size))
            number = number if size.constant == 1 else t.arith("udiv", number, size)
        return indices

    # ----------------------------------------------------------------------------------------------------------- parts

    def _find_parts(self, block: ir.Block) -> None:
        """Assign numbers to the parts of a block and of the blocks in it: synchronizing operations divide them."""
        number = 0
        pending = [block]
        while pending:
            number += 1
            for op in (each.operation for each in pending.pop().operations):
                if _synchronizes(op):
                    number += 1
                    pending += [inner for region in op.regions for inner in region.blocks]
                elif not _is_last(op):
                    for inner in operations_in(op):
                        self.part_of[inner] = number
                    self.part_of[op] = number

    def _is_kept(self, value: ir.Value, part: int) -> bool:
        """Return whether a value that a part computes is read outside of it."""
        return any(self.part_of.get(use.owner.operation) != part for use in value.uses)

    def _emit_block(self, block: ir.Block) -> list[ir.Value]:
        """Emit a block for all threads; return the operands of its terminator."""
        operations = [each.operation for each in block.operations]
        *operations, last = operations
        for op in operations:
            if (
                op.name.startswith(_PURE)
                and self._is_uniform(op.operands)
                or op.name in _VIEWS
                and self._is_uniform(op.operands)
            ):
                self.t.emit(op)
                self.uniform.update(op.results)
        part: list[ir.Operation] = []
        for op in operations:
            if _synchronizes(op):
                self._emit_part(part)
                part = []
                self._emit_synchronizing(op)
            elif not all(result in self.uniform for result in op.results) or not len(op.results):
                part.append(op)
        self._emit_part(part)
        return list(last.operands)

    def _is_uniform(self, values: Iterable[ir.Value]) -> bool:
        return all(value in self.uniform or self._is_outer(value) for value in values)

    def _is_outer(self, value: ir.Value) -> bool:
        """Return whether a value is computed before the launch."""
        if value in self.inner:
            return False
        return not (isinstance(value.owner, ir.Block) and _is_inside(value.owner, self.block))

    def _emit_part(self, operations: Sequence[ir.Operation]) -> None:
        """Emit operations between two synchronizations, for one thread after the other."""
        emitted = [op for op in operations if op.name not in (ALLOCA, ALLOC, *_VIEWS)]
        if not emitted:
            return
        inside = {value for op in emitted for each in (op, *operations_in(op)) for value in each.results}
        needed = dict.fromkeys(
            value for op in emitted for each in (op, *operations_in(op)) for value in each.operands
            if value not in inside
        )  # fmt: skip

        def thread(number: IntValue) -> None:
            self._provide(needed, number)
            for op in emitted:
                self.t.emit(op)
                for result in op.results:
                    if self._is_kept(result, self.part_of[op]):
                        self.keep(result, self.t.value(result), number)

        self.each_thread(thread)

    def each_thread(self, emit: Callable[[IntValue], None], is_masked: bool = True) -> None:
        """Emit a loop over the threads of a block that execute this code."""
        t, mask = self.t, self.mask if is_masked else None
        epoch = self._epoch()

        def body(number: IntValue, carried: list[Number]) -> Sequence[Number]:
            self.shadows.moment = Moment(number, epoch, self.first)
            for argument, value in zip(
                list(self.block.arguments)[3:6], self._indices(number, [t.index(n) for n in self.threads]), strict=True
            ):
                t.values[argument] = value
                self.uniform.discard(argument)
            if mask is None:
                emit(number)
            else:
                self._when(self._flag(mask, number), lambda: emit(number))
            self.shadows.moment = None
            return []

        t.loop(t.index(0), t.index(self.count), t.index(1), [], body, is_parallel=True)

    def _provide(self, values: Iterable[ir.Value], number: IntValue) -> None:
        """Make values of other parts known in this one."""
        for value in values:
            if value in self.slots:
                self.t.values[value] = self._value(self.slots[value], number)
            elif value in self.structs:
                parts = (self._read(each, number) for each in self.structs[value])
                self.t.values[value] = StructValue(tuple(parts))
            elif value not in self.uniform and value in self.inner:
                self._view(value, number)

    def _view(self, value: ir.Value, number: IntValue) -> None:
        """Emit memory of a thread, or a view of memory."""
        t, op = self.t, value.owner.operation
        if op.name == ALLOCA:
            t.values[value] = self._private(value, number)
        elif op.name in _VIEWS:
            self._provide(op.operands, number)
            t.emit(op)
        else:
            raise OutsideError(f"the operation '{op.name}' in a part of a launch")

    def _private(self, value: ir.Value, number: IntValue) -> BufferRef:
        """Return the memory of a thread: a part of one buffer for all threads."""
        t, kind = self.t, value.type
        if value not in self.private:
            shape = (self.count, *kind.shape)
            whole = t.buffer_argument(t.scratch(element_of(kind), shape), shape)
            self.private[value] = replace(whole, shape=tuple(kind.shape), strides=whole.strides[1:])
        buffer = self.private[value]
        _, size = t.element_text(buffer)
        elements = 1
        for extent in kind.shape:
            elements *= extent
        scale = t.view_ratio if t.memory[buffer.roots].kind == "bytes" else 1
        return replace(buffer, shift=t.arith("mul", number, t.index(elements * size * scale)))

    # ----------------------------------------------------------------------------------------------------------- slots

    def _slot(self, value: ir.Value) -> _Slot:
        if value not in self.slots:
            self.slots[value] = self._make_slot(value.type)
        return self.slots[value]

    def _make_slot(self, kind: ir.Type) -> _Slot:
        if isinstance(kind, ir.MemRefType):
            raise OutsideError("a buffer that a thread chooses, around a barrier")
        lanes, element = lanes_of(kind), element_of(kind)
        count = self.count * (lanes or 1)
        is_bool = not is_float(element) and bits_of(element) == 1
        argument = (
            Argument("scratch", "f", 0, (count,)) if is_float(element)
            else Argument("scratch", "i", 8 if is_bool else bits_of(element), (count,))
        )  # fmt: skip
        buffer = self.t.buffer_argument(argument, (count,))
        return _Slot(buffer, lanes, is_bool)

    def keep(self, value: ir.Value, number: KernelValue, thread: IntValue) -> None:
        """Emit that a value of a thread is kept for other parts of the code."""
        if isinstance(number, StructValue):
            if value not in self.structs:
                self.structs[value] = [self._slot_of(each) for each in number.parts]
            for slot, part in zip(self.structs[value], number.parts, strict=True):
                self._write(slot, part, thread)
        elif isinstance(number, PackedFloats):
            if value not in self.slots:
                self.slots[value] = replace(self._slot_of(number.floats), group=number.group)
            self._write(self.slots[value], number.floats, thread)
        else:
            assert isinstance(number, (IntValue, FloatValue))
            self._write(self._slot(value), number, thread)

    def _slot_of(self, number: Number) -> _Slot:
        """Return memory for a number of each thread."""
        count = self.count * (number.lanes or 1)
        argument = Argument("scratch", "f", 0, (count,))
        if isinstance(number, IntValue):
            argument = Argument("scratch", "i", number.bits, (count,))
        return _Slot(self.t.buffer_argument(argument, (count,)), number.lanes, is_bool=False)

    def _value(self, slot: _Slot, thread: IntValue) -> KernelValue:
        number = self._read(slot, thread)
        if not slot.group:
            return number
        assert isinstance(number, FloatValue)
        lanes = (number.lanes or 1) // slot.group
        return PackedFloats(number, slot.group, None if lanes == 1 else lanes)

    def _write(self, slot: _Slot, number: Number, thread: IntValue) -> None:
        if slot.is_bool:
            assert isinstance(number, IntValue)
            number = self.t.resized(number, 8, is_signed=False)
        self.t.store(number, slot.buffer, self._place(slot, thread))

    def _read(self, slot: _Slot, thread: IntValue) -> Number:
        number = self.t.load(slot.buffer, self._place(slot, thread), slot.lanes)
        if slot.is_bool:
            assert isinstance(number, IntValue)
            return self.t.resized(number, 1, is_signed=False)
        return number

    def _place(self, slot: _Slot, thread: IntValue) -> IntValue:
        return self.t.arith("mul", thread, self.t.index(slot.lanes or 1))

    def _flag(self, slot: _Slot, thread: IntValue) -> IntValue:
        flag = self._read(slot, thread)
        assert isinstance(flag, IntValue)
        return flag

    def _operand(self, value: ir.Value, thread: IntValue) -> Number:
        """Return a number that a synchronizing operation reads, of a thread."""
        self._provide([value], thread)
        return self.t.number(value)

    def operand(self, value: ir.Value, thread: IntValue) -> KernelValue:
        """Return a value of a thread."""
        self._provide([value], thread)
        return self.t.value(value)

    def require_whole_warps(self, what: str) -> None:
        """Emit a fault unless all threads of a warp execute this code, or none does."""
        t, mask = self.t, self.mask
        if mask is None:
            return

        def thread(number: IntValue) -> None:
            first = t.arith("sub", number, t.arith("urem", number, t.index(WARP)))
            self._require(t.compare("eq", self._flag(mask, number), self._flag(mask, first)), what)

        self.each_thread(thread, is_masked=False)

    # -------------------------------------------------------------------------------------------------- synchronization

    def _epoch(self) -> IntValue:
        epoch = self.t.load(self.state, self.t.index(0))
        assert isinstance(epoch, IntValue)
        return epoch

    def _synchronize(self) -> None:
        t = self.t
        t.store(t.arith("add", self._epoch(), t.index(1)), self.state, t.index(0))

    def _emit_synchronizing(self, op: ir.Operation) -> None:
        if op.name == BARRIER:
            self._barrier()
        elif op.name == SHUFFLE:
            self._shuffle(op)
        elif op.name in WARP_INSTRUCTIONS:
            emit_warp_instruction(self, op)
        elif op.name == "scf.for":
            self._loop(op)
        elif op.name == "scf.if":
            self._branch(op)
        else:
            raise OutsideError(f"a barrier in '{op.name}'")

    def _barrier(self) -> None:
        if self.mask is not None:
            t = self.t
            active = self._count_active(self.mask)
            reached = t.arith("or", t.compare("eq", active, t.index(0)), t.compare("eq", active, t.index(self.count)))
            self._require(reached, "a barrier")
        self._synchronize()

    def _require(self, holds: IntValue, what: str) -> None:
        site = self.shadows.site(what)
        fails = self.t.compare("eq", holds, IntValue("false", 1))
        self._when(fails, lambda: self.shadows.note_fault(DIVERGENCE, site))

    def _when(self, condition: IntValue, emit: Callable[[], None]) -> None:
        """Emit code under a condition that is none of the kernel's: no case of it is noted."""
        f = self.t.f
        yes, after = f.new_label("when"), f.new_label("after")
        f.effect(f"br i1 {condition.name}, label %{yes}, label %{after}")
        f.label(yes)
        emit()
        f.effect(f"br label %{after}")
        f.label(after)

    def _count_active(self, mask: _Slot) -> IntValue:
        t = self.t

        def add(thread: IntValue, carried: list[Number]) -> Sequence[Number]:
            (total,) = carried
            assert isinstance(total, IntValue)
            return [t.arith("add", total, t.resized(self._flag(mask, thread), 64, is_signed=False))]

        (total,) = t.loop(t.index(0), t.index(self.count), t.index(1), [t.index(0)], add)
        assert isinstance(total, IntValue)
        return total

    def _shuffle(self, op: ir.Operation) -> None:
        """Emit the exchange of a value between the threads of a warp; what no thread provides is undefined."""
        t = self.t
        value, offset, width = op.operands
        lanes = t.ints(width).constant if width in self.uniform or self._is_outer(width) else None
        if lanes is None or lanes > WARP or WARP % lanes:
            raise OutsideError("a shuffle of a number of threads that is known at run time")
        if isinstance(value.owner, ir.Block) and value not in self.slots:
            raise OutsideError("a shuffle of an index")
        if _is_of_float_bits(value):
            raise OutsideError("a shuffle of bits of a float that are not 32")
        mode = next(each for each in _MODES if each in str(op.attributes["mode"]))
        taken, valid = (self._slot(result) for result in op.results)

        def thread(number: IntValue) -> None:
            by = self._operand(offset, number)
            assert isinstance(by, IntValue)
            own = t.arith("urem", number, t.index(lanes))
            other = _other_lane(t, mode, own, t.resized(by, 64, is_signed=True))
            is_inside = t.compare("ult", other, t.index(lanes))
            source = t.arith("add", t.arith("sub", number, own), other)
            exists = t.arith("and", is_inside, t.compare("ult", source, t.index(self.count)))
            place = t.select(exists, source, number)
            assert isinstance(place, IntValue)
            if self.mask is not None:
                exists = t.arith("and", exists, self._flag(self.mask, place))
            received = self._operand(value, place)
            self._write(taken, t.select(exists, received, _undefined(t, received)), number)
            self._write(valid, is_inside, number)

        self.each_thread(thread)

    def _loop(self, op: ir.Operation) -> None:
        """Emit a loop around barriers: all threads have the same iterations."""
        t = self.t
        bounds, start = list(op.operands)[:3], list(op.operands)[3:]
        block = op.regions[0].blocks[0]
        arguments = list(block.arguments)[1:]
        for argument, result in zip(arguments, op.results, strict=True):
            self.slots[result] = self._slot(argument)
        self._assign(arguments, start)
        lower, upper, step = (self._common(value) for value in bounds)
        self.uniform.add(block.arguments[0])

        def body(index: IntValue, carried: list[Number]) -> Sequence[Number]:
            t.values[block.arguments[0]] = index
            self._assign(arguments, self._emit_block(block))
            return []

        t.loop(lower, upper, step, [], body)

    def _common(self, value: ir.Value) -> IntValue:
        """Return an integer that all threads that run must agree on."""
        t = self.t
        if value in self.uniform or self._is_outer(value):
            return t.ints(value)
        slot = self._slot(value)
        last = t.buffer_argument(Argument("scratch", "i", 64, (2,)), (2,))
        t.store(t.index(0), last, t.index(0))
        t.store(t.index(0), last, t.index(1))

        def thread(number: IntValue) -> None:
            own, known = self._read(slot, number), t.load(last, t.index(0))
            has_known = t.load(last, t.index(1))
            assert isinstance(own, IntValue) and isinstance(known, IntValue) and isinstance(has_known, IntValue)
            agrees = t.arith("or", t.compare("eq", has_known, t.index(0)), t.compare("eq", own, known))
            self._require(agrees, "the same iterations of a loop with a barrier")
            t.store(own, last, t.index(0))
            t.store(t.index(1), last, t.index(1))

        self.each_thread(thread)
        common = t.load(last, t.index(0))
        assert isinstance(common, IntValue)
        return common

    def _assign(self, targets: Sequence[ir.Value], values: Sequence[ir.Value]) -> None:
        """Emit that threads keep values under other names, all at once."""
        slots = [self._slot(each) for each in targets]
        if not slots:
            return

        def thread(number: IntValue) -> None:
            numbers = [self._operand(value, number) for value in values]
            for slot, each in zip(slots, numbers, strict=True):
                self._write(slot, each, number)

        self.each_thread(thread)

    def _branch(self, op: ir.Operation) -> None:
        """Emit a branch around barriers: under a mask, unless all threads of a block decide alike."""
        t, condition = self.t, op.operands[0]
        regions = [region.blocks[0] if len(region.blocks) else None for region in op.regions]

        def emitter(block: ir.Block | None) -> Callable[[], Sequence[Number]]:
            def emit() -> Sequence[Number]:
                if block is not None:
                    self._assign(list(op.results), self._emit_block(block))
                return []

            return emit

        for result in op.results:
            self._slot(result)
        if condition in self.uniform or self._is_outer(condition):
            t.branch(t.ints(condition), emitter(regions[0]), emitter(regions[1]))
            return
        outer = self.mask
        for block, taken in zip(regions, (True, False), strict=True):
            if block is not None:
                self._under_mask(self._masked(condition, outer, taken), emitter(block))
                self.mask = outer

    def _masked(self, condition: ir.Value, outer: _Slot | None, taken: bool) -> _Slot:
        """Return the mask of threads that take a side of a branch."""
        t = self.t
        mask = self._make_slot(condition.type)

        def thread(number: IntValue) -> None:
            flag = self._operand(condition, number)
            assert isinstance(flag, IntValue)
            flag = t.compare("eq", flag, IntValue("true" if taken else "false", 1))
            if outer is not None:
                flag = t.arith("and", flag, self._flag(outer, number))
            self._write(mask, flag, number)

        self.each_thread(thread, is_masked=False)
        return mask

    def _under_mask(self, mask: _Slot, emit: Callable[[], Sequence[Number]]) -> None:
        """Emit code that the threads of a mask execute, if there are any."""
        t = self.t
        is_any = t.compare("ne", self._count_active(mask), t.index(0))
        self.mask = mask
        self._when(is_any, lambda: _discard(emit()))


def _is_of_float_bits(value: ir.Value) -> bool:
    """Return whether an integer is a part of the bits of a float, or has them among others: no residue has those."""
    while not isinstance(value.owner, ir.Block):
        op = value.owner.operation
        if op.name == "arith.bitcast":
            return is_float(element_of(op.operands[0].type))
        if op.name not in ("arith.trunci", "arith.extui", "arith.shrui"):
            return False
        value = op.operands[0]
    return False


def _discard(values: Sequence[Number]) -> None:
    """Return nothing for values that are kept elsewhere."""


def _launch_sizes(t: KernelTranslator, op: ir.Operation) -> list[IntValue]:
    """Return the blocks along each axis of a launch, and the threads."""
    segments = [int(each) for each in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])]
    if segments[1:7] != [1] * 6 or sum(segments) != 6:
        raise OutsideError("a launch of clusters, or after others")
    return [t.ints(value) for value in op.operands]


def _synchronizes(op: ir.Operation) -> bool:
    return op.name in _SYNCHRONIZING or any(each.name in _SYNCHRONIZING for each in operations_in(op))


def _is_last(op: ir.Operation) -> bool:
    return op.name in ("scf.yield", "gpu.terminator")


def _is_inside(block: ir.Block, outer: ir.Block) -> bool:
    while block != outer:
        parent = block.owner.operation
        if parent.name == "func.func":
            return False
        block = parent.block
    return True


def _other_lane(t: KernelTranslator, mode: str, own: IntValue, by: IntValue) -> IntValue:
    if mode == "idx":
        return by
    return t.arith({"xor": "xor", "up": "sub", "down": "add"}[mode], own, by)


def _undefined(t: KernelTranslator, like: Number) -> Number:
    if isinstance(like, FloatValue):
        return t.arithmetic.constant(t.f, POISON_FLOAT, like.lanes)
    return IntValue(t.f.constant(POISON_INT, like.bits, like.lanes), like.bits, like.lanes)
