"""The translation of a kernel to LLVM IR, in which an arithmetic computes the floats.

Each access is clamped to the memory of its buffer and the guards around it: a wrong kernel reads and writes guards,
where that is found, and no other memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.function_calls import FUNCTION, FunctionCalls
from mirlo.passes.exact.ir_text import TABLE_WORDS, FunctionText, ModuleText
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.values import (
    INDEX_BITS,
    BufferRef,
    FloatValue,
    IntValue,
    KernelValue,
    Number,
    PackedFloats,
    bits_of,
    element_of,
    is_float,
    llvm_type,
    row_major,
)
from mirlo.runtime.records import dataclass

SHIFTS = ("shl", "ashr", "lshr")
DIVISIONS = ("sdiv", "udiv", "srem", "urem")
FOLDED: dict[str, Callable[[int, int], int]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
"""Instructions on constants that are not emitted."""
NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "sdiv": 1, "udiv": 1}
"""Second operands of instructions whose result is the first one."""
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "slt": operator.lt, "sle": operator.le, "sgt": operator.gt,
    "sge": operator.ge,
}  # fmt: skip
"""Comparisons of constants that are not emitted."""
GUARD_BYTES = 32768
"""Bytes of garbage before and after each buffer."""
MOST_ITERATIONS = 1 << 26
"""The most iterations of a loop that ends by a condition."""
Body = Callable[[IntValue, list[Number]], Sequence[Number]]
"""Emits one iteration of a loop, from its index and the carried values, and returns the next ones."""


@dataclass(frozen=True)
class Argument:
    """An argument of a translated function: memory, or a size."""

    role: str
    """'in', 'out', 'scratch' (also what a definition keeps between blocks), or 'size'."""
    kind: str
    """'f', 'i', or 'bytes', which may be viewed as floats and has as many planes."""
    bits: int
    shape: tuple[Dim, ...]
    """The dims of memory; for a size, the one dim that it is the value of."""


Handler = Callable[["KernelTranslator", ir.Operation], None]
"""Emits one operation."""
HANDLERS: dict[str, Handler] = {}
"""What is emitted for each operation, by its name."""


def translates(*names: str) -> Callable[[Handler], Handler]:
    """Register a function that emits the operations of these names."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


class AccessObserver(Protocol):
    """What emits notes of accesses beside them."""

    def note(self, buffer: BufferRef, offset: IntValue, lanes: int, is_write: bool) -> None:
        """Emit a note of an access of consecutive elements; vectors of offsets have several places."""

    def start_copy(self, buffer: BufferRef, offset: IntValue, lanes: int) -> None:
        """Emit that a copy to consecutive elements starts."""

    def commit_copies(self) -> None:
        """Emit that the copies so far are a group."""

    def wait_for_copies(self, left: int) -> None:
        """Emit a wait until at most this many groups of copies are in flight."""


class KernelTranslator:
    """Emitter of one function: values of MLIR are mapped to values of LLVM IR."""

    def __init__(self, arithmetic: Arithmetic, module: ModuleText, name: str):
        self.arithmetic, self.f = arithmetic, FunctionText(module, name)
        self.values: dict[Any, KernelValue] = {}
        self.arguments: list[Argument] = []
        """What the caller provides, in the order of the words of `%args`."""
        self.places: list[str] | None = None
        """Where to note the cases of loops and branches at run time, after the constants of the round."""
        self.registers: dict[str, BufferRef] = {}
        """The memory of registers that instructions name by numbers."""
        self.memory: dict[tuple[str, ...], Argument] = {}
        """The argument that each buffer is, by its addresses."""
        self.constants: dict[ir.Attribute, Number] = {}
        """The values of constants, which are no instructions."""
        self.in_one_plane: set[tuple[str, ...]] = set()
        """The addresses of buffers of which the other planes are not read: they are not written."""
        self.calls: FunctionCalls | None = None
        """Where the function is computed for which a random one stands."""
        self.shadows: AccessObserver | None = None
        """What notes accesses of threads."""
        self.sites: list[str] = []
        """What faults of synchronization are about, by the numbers with which they are noted."""
        self.find_view_ratio: Callable[[], int] = lambda: 1
        """Returns by how much memory of bytes is larger than in the kernel, as floats in it are."""
        self.slots: dict[tuple[str, ...], str] = {}
        """Where the caller's words of a buffer are, by its addresses: these, and the bytes of a plane."""
        self.runs = 1
        """How often the operation that is emitted runs at least: the product of the iterations of loops around it."""
        self._words = 0
        self._dims: dict[str, IntValue] = {}

    @cached_property
    def view_ratio(self) -> int:
        return self.find_view_ratio()

    # -------------------------------------------------------------------------------------------------------- emission

    def emit(self, op: ir.Operation) -> None:
        if self.calls is not None and self._is_of_function(self.calls, op):
            return
        handler = HANDLERS.get(op.name)
        if handler is None:
            raise OutsideError(f"the operation '{op.name}'")
        handler(self, op)

    def _is_of_function(self, calls: FunctionCalls, op: ir.Operation) -> bool:
        """Return whether an operation is of a function, for which a random one stands, after emission of its calls."""
        if len(op.results) != 1 or op.results[0] in calls.inner:
            return len(op.results) == 1
        operand = calls.operands.get(op.results[0])
        if operand is not None:
            self.set(op, self.arithmetic.function(self.f, FUNCTION, [self.floats(operand)]))
        return operand is not None

    def emit_block(self, block: ir.Block) -> list[Number]:
        """Emit a block; return the operands of its terminator."""
        *operations, terminator = block.operations
        for op in operations:
            self.emit(op.operation)
        return [self.number(value) for value in terminator.operation.operands]

    def set(self, op: ir.Operation, *values: KernelValue) -> None:
        for result, value in zip(op.results, values, strict=True):
            self.values[result] = value

    def value(self, value: ir.Value) -> KernelValue:
        return self.values[value]

    def number(self, value: ir.Value) -> Number:
        known = self.values[value]
        if isinstance(known, (IntValue, FloatValue)):
            return known
        what = "bits of floats" if isinstance(known, PackedFloats) else "a buffer"
        raise OutsideError(f"{what} as an operand of arithmetic")

    def ints(self, value: ir.Value) -> IntValue:
        known = self.values[value]
        if not isinstance(known, IntValue):
            raise OutsideError("bits of floats as an integer")
        return known

    def floats(self, value: ir.Value) -> FloatValue:
        known = self.values[value]
        if not isinstance(known, FloatValue):
            raise OutsideError("bits of integers as a float")
        return known

    def buffer(self, value: ir.Value) -> BufferRef:
        known = self.values[value]
        assert isinstance(known, BufferRef)
        return known

    # ------------------------------------------------------------------------------------------------------- arguments

    def _word(self) -> str:
        slot = self._next_slot()
        self._words += 1
        return self.f.at_entry(f"load i64, ptr {slot}, align 8")

    def _next_slot(self) -> str:
        return self.f.at_entry(f"getelementptr i64, ptr %args, i64 {self._words}")

    def size_argument(self, dim: Dim) -> IntValue:
        """Return the value of a dim, which the caller computes."""
        self.arguments.append(Argument("size", "i", INDEX_BITS, (dim,)))
        return IntValue(self._word(), INDEX_BITS)

    def dim(self, dim: Dim) -> int | IntValue:
        """Return a dim: a number, or an argument."""
        if isinstance(dim, int):
            return dim
        if str(dim) not in self._dims:
            self._dims[str(dim)] = self.size_argument(dim)
        return self._dims[str(dim)]

    def buffer_argument(self, argument: Argument, shape: Sequence[int | IntValue]) -> BufferRef:
        """Return the next buffer of the arguments: an address for each plane, and the bytes of one."""
        self.arguments.append(argument)
        planes = 1 if argument.kind == "i" else self.arithmetic.planes
        slot = self._next_slot()
        roots = tuple(self.f.at_entry(f"inttoptr i64 {self._word()} to ptr") for _ in range(planes))
        self.memory[roots], self.slots[roots] = argument, slot
        kind = "f" if argument.kind == "f" else "i"
        return BufferRef(kind, argument.bits, roots, self._word(), tuple(shape), row_major(tuple(shape)))

    def local_buffer(self, memref: ir.Type) -> BufferRef:
        """Return scratch memory for a buffer of this type."""
        shape = tuple(memref.shape)
        return self.buffer_argument(self.scratch(element_of(memref), shape), shape)

    def scratch(self, element: ir.Type, shape: Sequence[Dim]) -> Argument:
        """Return the scratch memory of elements of a type."""
        if is_float(element):
            return Argument("scratch", "f", 0, tuple(shape))
        bits = bits_of(element)
        if bits == 8:  # may be viewed as floats
            return Argument("scratch", "bytes", 8, (*shape, self.view_ratio))
        return Argument("scratch", "i", bits, tuple(shape))

    # --------------------------------------------------------------------------------------------------------- numbers

    def index(self, value: int, lanes: int | None = None) -> IntValue:
        return IntValue(self.f.constant(value, INDEX_BITS, lanes), INDEX_BITS, lanes)

    def steps(self, lanes: int) -> IntValue:
        """Return the vector 0, 1, 2, ..."""
        return IntValue("<" + ", ".join(f"i64 {i}" for i in range(lanes)) + ">", INDEX_BITS, lanes)

    def scalar_constant(self, attribute: ir.Attribute, element: ir.Type, lanes: int | None) -> Number:
        """Return the value of an attribute, in all lanes."""
        if is_float(element):
            return self.arithmetic.constant(self.f, ir.FloatAttr(attribute).value, lanes)
        bits = bits_of(element)
        is_bool = isinstance(attribute, ir.BoolAttr)
        value = ir.BoolAttr(attribute).value if is_bool else ir.IntegerAttr(attribute).value
        return IntValue(self.f.constant(int(value), bits, lanes), bits, lanes)

    def splat(self, v: Number, lanes: int | None) -> Number:
        if lanes is None or v.lanes is not None:
            return v
        if isinstance(v, IntValue):
            return self.splat_ints(v, lanes)
        planes = self.arithmetic.canonical(self.f, v).planes
        return FloatValue(tuple(self.f.splat(name, self.arithmetic.element, lanes) for name in planes), lanes)

    def splat_ints(self, v: IntValue, lanes: int | None) -> IntValue:
        if lanes is None or v.lanes is not None:
            return v
        return IntValue(self.f.splat(v.name, f"i{v.bits}", lanes), v.bits, lanes)

    def int_operands(self, op: ir.Operation) -> list[IntValue]:
        """Return the operands of an operation on integers, with equal numbers of lanes."""
        values = [self.ints(value) for value in op.operands]
        lanes = next((v.lanes for v in values if v.lanes is not None), None)
        return [self.splat_ints(v, lanes) for v in values]

    def float_operands(self, op: ir.Operation) -> list[FloatValue]:
        """Return the operands of an operation on floats, with equal numbers of lanes."""
        return self.splat_floats(*(self.floats(value) for value in op.operands))

    def splat_floats(self, *values: FloatValue) -> list[FloatValue]:
        """Return floats with equal numbers of lanes."""
        lanes = next((v.lanes for v in values if v.lanes is not None), None)
        result = [self.splat(v, lanes) for v in values]
        return [v for v in result if isinstance(v, FloatValue)]

    def arith(self, op: str, a: IntValue, b: IntValue) -> IntValue:
        """Emit an instruction of LLVM on two integers, with a result for all operands.

        A quotient by zero, or one that overflows, is one by 1. A shift by the width or more is by the rest modulo it.
        """
        lanes = a.lanes if a.lanes is not None else b.lanes
        a, b = self.splat_ints(a, lanes), self.splat_ints(b, lanes)
        known = self._folded(op, a, b)
        if known is not None:
            return known
        if op in SHIFTS:
            b = self._shift_count(b)
        if op in DIVISIONS:
            b = self._divisor(a, b, is_signed=op in ("sdiv", "srem"))
        return IntValue(self.f.op(f"{op} {llvm_type(f'i{a.bits}', lanes)} {a.name}, {b.name}"), a.bits, lanes)

    def _folded(self, op: str, a: IntValue, b: IntValue) -> IntValue | None:
        """Return the result if it is a constant or an operand, as fewer instructions compile faster."""
        x, y = a.constant, b.constant
        if x is not None and y is not None and op in FOLDED:
            return IntValue(self.f.constant(FOLDED[op](x, y), a.bits, a.lanes), a.bits, a.lanes)
        if op not in NEUTRAL:
            return None
        if y == NEUTRAL[op]:
            return a
        return b if op in ("add", "mul") and x == NEUTRAL[op] else None

    def _shift_count(self, b: IntValue) -> IntValue:
        """Return a count within the width, as LLVM's result is poison beyond it: vectors and scalars may differ."""
        if b.constant is not None and 0 <= b.constant < b.bits:
            return b
        return self.arith("urem", b, IntValue(self.f.constant(b.bits, b.bits, b.lanes), b.bits, b.lanes))

    def _divisor(self, a: IntValue, b: IntValue, is_signed: bool) -> IntValue:
        """Return a divisor on which the processor does not trap, as sizes may be tried that no caller passes."""
        if b.constant not in (None, 0, -1):
            return b
        zero, one = (IntValue(self.f.constant(n, b.bits, b.lanes), b.bits, b.lanes) for n in (0, 1))
        traps = self.compare("eq", b, zero)
        if is_signed:
            least, minus_one = (
                IntValue(self.f.constant(n, b.bits, b.lanes), b.bits, b.lanes) for n in (-(1 << (b.bits - 1)), -1)
            )
            overflows = self.arith("and", self.compare("eq", a, least), self.compare("eq", b, minus_one))
            traps = self.arith("or", traps, overflows)
        divisor = self.select(traps, one, b)
        assert isinstance(divisor, IntValue)
        return divisor

    def compare(self, predicate: str, a: IntValue, b: IntValue) -> IntValue:
        lanes = a.lanes if a.lanes is not None else b.lanes
        a, b = self.splat_ints(a, lanes), self.splat_ints(b, lanes)
        x, y = a.constant, b.constant
        if x is not None and y is not None and a.bits > 1 and predicate in COMPARED:
            return IntValue(self.f.constant(int(COMPARED[predicate](x, y)), 1, lanes), 1, lanes)
        kind = llvm_type(f"i{a.bits}", lanes)
        return IntValue(self.f.op(f"icmp {predicate} {kind} {a.name}, {b.name}"), 1, lanes)

    def select(self, condition: IntValue, a: Number, b: Number) -> Number:
        lanes = next((v.lanes for v in (condition, a, b) if v.lanes is not None), None)
        a, b = self.splat(a, lanes), self.splat(b, lanes)
        if condition.constant is not None:
            return a if condition.constant else b
        if isinstance(a, FloatValue) and isinstance(b, FloatValue):
            return self.arithmetic.select(self.f, condition, a, b)
        assert isinstance(a, IntValue) and isinstance(b, IntValue)
        kind, which = llvm_type(f"i{a.bits}", lanes), llvm_type("i1", condition.lanes)
        return IntValue(self.f.op(f"select {which} {condition.name}, {kind} {a.name}, {kind} {b.name}"), a.bits, lanes)

    def resized(self, x: IntValue, bits: int, is_signed: bool) -> IntValue:
        """Return an integer of another width."""
        if x.bits == bits:
            return x
        how = "trunc" if bits < x.bits else "sext" if is_signed else "zext"
        text = f"{how} {llvm_type(f'i{x.bits}', x.lanes)} {x.name} to {llvm_type(f'i{bits}', x.lanes)}"
        return IntValue(self.f.op(text), bits, x.lanes)

    # --------------------------------------------------------------------------------------------------------- shuffles

    def shuffled(self, a: Number, b: Number, mask: Sequence[int]) -> Number:
        """Return lanes of two vectors."""
        f = self.f
        if a.lanes != b.lanes:
            assert a.lanes is not None and b.lanes is not None
            width = max(a.lanes, b.lanes)
            mask = [i if i < a.lanes else i - a.lanes + width for i in mask]
            a, b = (self._widened(v, width) for v in (a, b))
        text = f"<{len(mask)} x i32> <" + ", ".join(f"i32 {i}" for i in mask) + ">"
        if isinstance(a, IntValue) and isinstance(b, IntValue):
            kind = llvm_type(f"i{a.bits}", a.lanes)
            return IntValue(f.op(f"shufflevector {kind} {a.name}, {kind} {b.name}, {text}"), a.bits, len(mask))
        assert isinstance(a, FloatValue) and isinstance(b, FloatValue)
        a, b = self.arithmetic.canonical(f, a), self.arithmetic.canonical(f, b)
        kind = llvm_type(self.arithmetic.element, a.lanes)
        pairs = zip(a.planes, b.planes, strict=True)
        return FloatValue(tuple(f.op(f"shufflevector {kind} {x}, {kind} {y}, {text}") for x, y in pairs), len(mask))

    def _widened(self, v: Number, lanes: int) -> Number:
        """Return a vector with more lanes; the new lanes repeat the first one."""
        count = v.lanes or 1
        return v if count == lanes else self.shuffled(v, v, [i if i < count else 0 for i in range(lanes)])

    def lanes_at(self, v: IntValue, mask: Sequence[int]) -> IntValue:
        result = self.shuffled(v, v, mask)
        assert isinstance(result, IntValue)
        return result

    def float_lanes_at(self, v: FloatValue, mask: Sequence[int]) -> FloatValue:
        result = self.shuffled(v, v, mask)
        assert isinstance(result, FloatValue)
        return result

    def lane(self, v: Number, i: int) -> Number:
        f = self.f
        if isinstance(v, IntValue):
            return IntValue(f.op(f"extractelement {llvm_type(f'i{v.bits}', v.lanes)} {v.name}, i64 {i}"), v.bits)
        planes = self.arithmetic.canonical(f, v).planes
        kind = llvm_type(self.arithmetic.element, v.lanes)
        return FloatValue(tuple(f.op(f"extractelement {kind} {name}, i64 {i}") for name in planes))

    # ---------------------------------------------------------------------------------------------------------- memory

    def offset(self, buffer: BufferRef, indices: Sequence[IntValue]) -> IntValue:
        """Return the position of an element, in elements."""
        total: IntValue | None = None
        for i, stride in zip(indices, buffer.strides, strict=True):
            if stride is None:
                raise OutsideError("a stride that depends on a size of run time")
            term = i if stride == 1 else self.arith("mul", i, self.index(stride) if isinstance(stride, int) else stride)
            total = term if total is None else self.arith("add", total, term)
        return total or self.index(0)

    def element_text(self, buffer: BufferRef) -> tuple[str, int]:
        """Return the LLVM type of an element, and its bytes."""
        if buffer.kind == "i":
            return f"i{buffer.bits}", max(buffer.bits // 8, 1)
        return self.arithmetic.element, self.arithmetic.bytes

    def addresses(self, buffer: BufferRef, offset: IntValue, lanes: int = 1) -> list[str]:
        """Return the address of an access for each plane, within the memory and its guards."""
        f = self.f
        _, size = self.element_text(buffer)
        position = offset if size == 1 else self.arith("mul", offset, self.index(size))
        if buffer.shift is not None:
            position = self.arith("add", position, buffer.shift)
        position = self.arith("add", position, self.index(GUARD_BYTES))
        limit = f.at_entry(f"add i64 {buffer.room}, {2 * GUARD_BYTES - lanes * size}")
        limit = f.splat(limit, "i64", position.lanes, is_at_entry=True)
        held = f.extreme("umin", position.name, limit, 64, position.lanes)
        back = self.arith("sub", IntValue(held, 64, position.lanes), self.index(GUARD_BYTES))
        where = f"{llvm_type('i64', back.lanes)} {back.name}"
        return [f.op(f"getelementptr i8, ptr {root}, {where}") for root in self._roots(buffer)]

    def load(self, buffer: BufferRef, offset: IntValue, lanes: int | None = None) -> Number:
        """Load one element, consecutive ones (`lanes`), or those at a vector of offsets."""
        element, _ = self.element_text(buffer)
        self._note_access(buffer, offset, lanes, is_write=False)
        if offset.lanes is not None:
            return self.gather(buffer, offset, IntValue(self.f.constant(1, 1, offset.lanes), 1, offset.lanes), None)
        kind = llvm_type(element, lanes)
        if self.f.is_inline:
            addresses = self.addresses(buffer, offset, lanes or 1)
            return self.loaded(buffer, [self.f.op(f"load {kind}, ptr {each}, align 1") for each in addresses], lanes)
        helper = self._access_helper(buffer, lanes, is_store=False)
        names = [self.f.op(f"call {kind} @{helper}({each})") for each in self._places(buffer, offset, lanes or 1)]
        return self.loaded(buffer, names, lanes)

    def _note_access(self, buffer: BufferRef, offset: IntValue, lanes: int | None, is_write: bool) -> None:
        if self.shadows is not None:
            self.shadows.note(buffer, offset, lanes or 1, is_write)

    def _places(self, buffer: BufferRef, offset: IntValue, lanes: int) -> list[str]:
        """Return the arguments of a helper for an access, for each plane."""
        _, size = self.element_text(buffer)
        shift = "" if buffer.shift is None else f", i64 {buffer.shift.name}"
        limit = self.f.at_entry(f"add i64 {buffer.room}, {2 * GUARD_BYTES - lanes * size}")
        bases = (self.f.at_entry(f"getelementptr i8, ptr {root}, i64 {-GUARD_BYTES}") for root in self._roots(buffer))
        return [f"ptr {base}, i64 {offset.name}, i64 {limit}{shift}" for base in bases]

    def _access_helper(self, buffer: BufferRef, lanes: int | None, is_store: bool) -> str:
        """Return the name of a function that loads or stores consecutive elements within the memory and its guards.

        Kernels have hundreds of accesses: most of the time is LLVM's.
        """
        element, size = self.element_text(buffer)
        kind = llvm_type(element, lanes)
        has_shift = buffer.shift is not None
        name = f"exact.{'store' if is_store else 'load'}_{element}_{size}_{lanes or 0}{'_moved' if has_shift else ''}"
        if name in self.f.module.helpers:
            return name
        g = FunctionText(self.f.module, name)
        g.takes_round = False
        moved = g.op(f"mul i64 %offset, {size}")
        if has_shift:
            moved = g.op(f"add i64 {moved}, %shift")
        beyond = g.op(f"add i64 {moved}, {GUARD_BYTES}")
        address = g.op(f"getelementptr i8, ptr %base, i64 {g.extreme('umin', beyond, '%limit', 64, None)}")
        if is_store:
            g.effect(f"store {kind} %value, ptr {address}, align 1")
        value = "" if is_store else f"{kind} {g.op(f'load {kind}, ptr {address}, align 1')}"
        g.effect(f"ret {value or 'void'}")
        kinds = {"value": kind} if is_store else {}
        kinds |= {"base": "ptr", "offset": "i64", "limit": "i64"}
        kinds |= {"shift": "i64"} if has_shift else {}
        g.finish_helper("void" if is_store else kind, **kinds)
        return name

    def _roots(self, buffer: BufferRef) -> Sequence[str]:
        return buffer.roots if buffer.kind == "f" else buffer.roots[:1]

    def gather(self, buffer: BufferRef, offset: IntValue, mask: IntValue, otherwise: Number | None) -> Number:
        """Load the elements at a vector of offsets where the mask is set."""
        element, _ = self.element_text(buffer)
        lanes = mask.lanes
        kind = f"<{lanes} x {element}>"
        self._note_access(buffer, offset, lanes, is_write=False)
        names = []
        addresses = self.addresses(buffer, offset)
        others = ["poison"] * len(addresses) if otherwise is None else self.parts(otherwise)
        for each, other in zip(addresses, others, strict=True):
            names.append(
                self.f.call(
                    kind, f"llvm.masked.gather.v{lanes}{_mangled(element)}.v{lanes}p0", (f"<{lanes} x ptr>", each),
                    ("i32", "1"), (f"<{lanes} x i1>", mask.name), (kind, other),
                )
            )  # fmt: skip
        return self.loaded(buffer, names, lanes)

    def scatter(self, value: Number, buffer: BufferRef, offset: IntValue, mask: IntValue) -> None:
        """Store lanes at a vector of offsets, in order, where the mask is set."""
        element, _ = self.element_text(buffer)
        lanes = mask.lanes
        kind = f"<{lanes} x {element}>"
        self._note_access(buffer, offset, lanes, is_write=True)
        name = f"llvm.masked.scatter.v{lanes}{_mangled(element)}.v{lanes}p0"
        for each, part in zip(self.addresses(buffer, offset), self.stored_parts(value, buffer), strict=False):
            self.f.call_effect(
                name, (kind, part), (f"<{lanes} x ptr>", each), ("i32", "1"), (f"<{lanes} x i1>", mask.name)
            )

    def masked_load(self, buffer: BufferRef, offset: IntValue, mask: IntValue, otherwise: Number) -> Number:
        element, _ = self.element_text(buffer)
        kind, lanes = llvm_type(element, mask.lanes), mask.lanes or 1
        self._note_access(buffer, offset, lanes, is_write=False)
        names = []
        for each, other in zip(self.addresses(buffer, offset, lanes), self.parts(otherwise), strict=True):
            name = f"llvm.masked.load.v{lanes}{_mangled(element)}.p0"
            mask_kind = llvm_type("i1", mask.lanes)
            names.append(self.f.call(kind, name, ("ptr", each), ("i32", "1"), (mask_kind, mask.name), (kind, other)))
        return self.loaded(buffer, names, lanes)

    def masked_store(self, value: Number, buffer: BufferRef, offset: IntValue, mask: IntValue) -> None:
        element, _ = self.element_text(buffer)
        kind, lanes = llvm_type(element, mask.lanes), mask.lanes or 1
        self._note_access(buffer, offset, lanes, is_write=True)
        for each, part in zip(self.addresses(buffer, offset, lanes), self.stored_parts(value, buffer), strict=False):
            if lanes == 1:  # LLVM 22 miscompiles a masked store of one truncated lane
                old = self.f.op(f"load {kind}, ptr {each}, align 1")
                new = self.f.op(f"select <1 x i1> {mask.name}, {kind} {part}, {kind} {old}")
                self.f.effect(f"store {kind} {new}, ptr {each}, align 1")
                continue
            only = _only_lane(mask)
            if only is not None:  # LLVM 22 miscompiles that, too
                lane = self.f.op(f"extractelement {kind} {part}, i64 {only}")
                place = self.f.op(f"getelementptr {element}, ptr {each}, i64 {only}")
                self.f.effect(f"store {element} {lane}, ptr {place}, align 1")
                continue
            name = f"llvm.masked.store.v{lanes}{_mangled(element)}.p0"
            self.f.call_effect(name, (kind, part), ("ptr", each), ("i32", "1"), (f"<{lanes} x i1>", mask.name))

    def store(self, value: Number, buffer: BufferRef, offset: IntValue) -> None:
        """Store one element, consecutive ones, or those at a vector of offsets."""
        element, _ = self.element_text(buffer)
        self._note_access(buffer, offset, value.lanes, is_write=True)
        if offset.lanes is not None:
            self.scatter(value, buffer, offset, IntValue(self.f.constant(1, 1, offset.lanes), 1, offset.lanes))
            return
        kind = llvm_type(element, value.lanes)
        if self.f.is_inline:
            places = self.addresses(buffer, offset, value.lanes or 1)
            for each, part in zip(places, self.stored_parts(value, buffer), strict=False):
                self.f.effect(f"store {kind} {part}, ptr {each}, align 1")
            return
        helper = self._access_helper(buffer, value.lanes, is_store=True)
        places = self._places(buffer, offset, value.lanes or 1)
        for each, part in zip(places, self.stored_parts(value, buffer), strict=False):
            self.f.effect(f"call void @{helper}({kind} {part}, {each})")

    def stored_parts(self, value: Number, buffer: BufferRef) -> list[str]:
        """Return the value to store in each plane that is read."""
        parts = self.parts(value)
        return parts[:1] if buffer.roots in self.in_one_plane else parts

    def parts(self, value: Number) -> list[str]:
        """Return the value in each plane."""
        return [value.name] if isinstance(value, IntValue) else list(self.arithmetic.canonical(self.f, value).planes)

    def loaded(self, buffer: BufferRef, names: Sequence[str], lanes: int | None) -> Number:
        return IntValue(names[0], buffer.bits, lanes) if buffer.kind == "i" else FloatValue(tuple(names), lanes)

    # --------------------------------------------------------------------------------------------------------- control

    def loop(
        self,
        lower: IntValue,
        upper: IntValue,
        step: IntValue,
        start: Sequence[Number],
        body: Body,
        is_parallel: bool = False,
    ) -> list[Number]:
        """Emit a loop; return the carried values. Parallel loops run backwards where `%reverse` is set."""
        f = self.f
        count = self.iterations(lower, upper, step)
        if count.constant == 1:
            return [self._carriable(v) for v in body(lower, [self._carriable(v) for v in start])]
        head, inside, after = f.new_label("head"), f.new_label("loop"), f.new_label("after")
        start = [self._carriable(v) for v in start]
        before = f.block
        f.effect(f"br label %{head}")
        f.label(head)
        k = f.fresh()
        carried = [self._renamed(v) for v in start]
        place = len(f.lines)
        go_on = f.op(f"icmp ult i64 {k}, {count.name}")
        f.effect(f"br i1 {go_on}, label %{inside}, label %{after}")
        f.label(inside)
        number = IntValue(k, INDEX_BITS)
        if is_parallel:
            back = self.arith("sub", self.arith("sub", count, self.index(1)), number)
            is_back = IntValue(f.op("icmp ne i64 %reverse, 0"), 1)
            chosen = self.select(is_back, back, number)
            assert isinstance(chosen, IntValue)
            number = chosen
        index = self.arith("add", lower, self.arith("mul", number, step))
        runs = self.runs
        self.runs *= 1 if count.constant is None else count.constant
        results = [self._carriable(v) for v in body(index, list(carried))]
        self.runs = runs
        following = f.op(f"add i64 {k}, 1")
        end = f.block
        f.effect(f"br label %{head}")
        phis = [f"  {k} = phi i64 [ 0, %{before} ], [ {following}, %{end} ]"]
        for v, first, again in zip(carried, start, results, strict=True):
            kind = self._type_of(v)
            for name, x, y in zip(_names(v), _names(first), _names(again), strict=True):
                phis.append(f"  {name} = phi {kind} [ {x}, %{before} ], [ {y}, %{end} ]")
        f.lines[place:place] = phis
        f.label(after)
        return carried

    def loop_while(self, condition: Callable[[], IntValue], body: Callable[[], object]) -> None:
        """Emit a loop with a condition; a wrong kernel stops after `MOST_ITERATIONS`."""
        f = self.f
        head, inside, after = f.new_label("head"), f.new_label("loop"), f.new_label("after")
        before = f.block
        f.effect(f"br label %{head}")
        f.label(head)
        k, place = f.fresh(), len(f.lines)
        goes_on = condition()
        is_left = f.op(f"icmp ult i64 {k}, {MOST_ITERATIONS}")
        both = f.op(f"and i1 {goes_on.name}, {is_left}")
        f.effect(f"br i1 {both}, label %{inside}, label %{after}")
        f.label(inside)
        body()
        following = f.op(f"add i64 {k}, 1")
        f.lines.insert(place, f"  {k} = phi i64 [ 0, %{before} ], [ {following}, %{f.block} ]")
        f.effect(f"br label %{head}")
        f.label(after)

    def _note(self, kind: str, case: IntValue) -> None:
        """Record at run time which case a loop or a branch has: a number below 3."""
        assert self.places is not None
        place = self.arith("add", case, self.index(TABLE_WORDS + 3 * len(self.places)))
        self.places.append(kind)
        pointer = self.f.op(f"getelementptr i64, ptr %round, i64 {place.name}")
        self.f.effect(f"store i64 1, ptr {pointer}, align 8")

    def iterations(self, lower: IntValue, upper: IntValue, step: IntValue) -> IntValue:
        """Return how many iterations a loop has; which case that is is noted at run time."""
        known = [each.constant for each in (lower, upper, step) if each.constant is not None]
        if len(known) == 3:
            return self.index(len(range(*known)))
        rounded = self.arith("add", self.arith("sub", upper, lower), self.arith("sub", step, self.index(1)))
        count = self.select(self.compare("sle", upper, lower), self.index(0), self.arith("udiv", rounded, step))
        assert isinstance(count, IntValue)
        if self.places is not None and count.constant is None:
            self._note("loop", IntValue(self.f.extreme("umin", count.name, "2"), INDEX_BITS))
        return count

    def branch(
        self, condition: IntValue, then: Callable[[], Sequence[Number]], otherwise: Callable[[], Sequence[Number]]
    ) -> list[Number]:
        """Emit a condition; return the results of its branches."""
        f = self.f
        yes, no, after = f.new_label("then"), f.new_label("else"), f.new_label("join")
        if self.places is not None:
            self._note("branch", self.resized(condition, INDEX_BITS, is_signed=False))
        f.effect(f"br i1 {condition.name}, label %{yes}, label %{no}")
        ends, results = [], []
        for label, emit in ((yes, then), (no, otherwise)):
            f.label(label)
            values = [v if isinstance(v, IntValue) else self.arithmetic.canonical(f, v) for v in emit()]
            results.append(values)
            ends.append(f.block)
            f.effect(f"br label %{after}")
        f.label(after)
        joined: list[Number] = []
        for a, b in zip(*results, strict=True):
            kind = self._type_of(a)
            names = [
                f.op(f"phi {kind} [ {x}, %{ends[0]} ], [ {y}, %{ends[1]} ]")
                for x, y in zip(_names(a), _names(b), strict=True)
            ]
            joined.append(
                IntValue(names[0], a.bits, a.lanes) if isinstance(a, IntValue) else FloatValue(tuple(names), a.lanes)
            )
        return joined

    def _carriable(self, v: Number) -> Number:
        return v if isinstance(v, IntValue) else self.arithmetic.carried(self.f, v)

    def _renamed(self, v: Number) -> Number:
        """Return a value of this shape with new names."""
        if isinstance(v, IntValue):
            return IntValue(self.f.fresh(), v.bits, v.lanes)
        names = tuple(self.f.fresh() for _ in v.planes)
        return FloatValue(names, v.lanes, v.is_loose)

    def _type_of(self, v: Number) -> str:
        if isinstance(v, IntValue):
            return llvm_type(f"i{v.bits}", v.lanes)
        return llvm_type("i64" if v.is_loose else self.arithmetic.element, v.lanes)


def _names(v: Number) -> tuple[str, ...]:
    return (v.name,) if isinstance(v, IntValue) else v.planes


def _only_lane(mask: IntValue) -> int | None:
    """Return the only lane that a constant mask enables, or None."""
    lanes = [lane.strip() == "i1 true" for lane in mask.name.strip("<>").split(",")]
    return lanes.index(True) if mask.name.startswith("<") and sum(lanes) == 1 else None


def _mangled(element: str) -> str:
    """Return a type as it is spelled in names of LLVM's intrinsics."""
    return {"double": "f64"}.get(element, element)


def is_float_buffer(memref: ir.Type) -> bool:
    return is_float(element_of(memref))
