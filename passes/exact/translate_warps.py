"""Translations of instructions that the threads of a warp execute together, and of asynchronous copies.

Each thread has a part of matrices in registers, their *fragments*. For a product, threads write their fragments to
memory as the matrices that they are, and each one computes its elements of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translate_arith import vector_of
from mirlo.passes.exact.translate_vectors import as_lanes, total_of
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
)
from mirlo.runtime.records import dataclass

WARP = 32
LOAD_MATRICES, MULTIPLY = "nvgpu.ldmatrix", "nvvm.mma.sync"
WARP_INSTRUCTIONS = (LOAD_MATRICES, MULTIPLY)
EDGE, ROW_BYTES = 8, 16
"""The rows of a matrix that is loaded, and the bytes of a row."""
ROWS, COLUMNS = 16, 8
"""Those of the result of a product."""
_FLOATS = ("f16", "bf16", "tf32")
_SIGNED = {"s8": True, "u8": False}


class Warps(Protocol):
    """The threads of a launch."""

    t: KernelTranslator
    count: int

    def each_thread(self, emit: Callable[[IntValue], None]) -> None:
        """Emit a loop over the threads that execute this code."""

    def operand(self, value: ir.Value, thread: IntValue) -> KernelValue:
        """Return a value of a thread."""

    def keep(self, value: ir.Value, number: KernelValue, thread: IntValue) -> None:
        """Emit that a value of a thread is kept for other parts of the code."""

    def require_whole_warps(self, what: str) -> None:
        """Emit a fault unless all threads of a warp execute this code, or none does."""


@dataclass(frozen=True)
class _Lane:
    """A thread by its warp, and its place there: four threads share a row of a fragment."""

    warp: IntValue
    first: IntValue
    """The first thread of the warp."""
    group: IntValue
    member: IntValue

    @staticmethod
    def of(t: KernelTranslator, thread: IntValue) -> _Lane:
        lane = t.arith("urem", thread, t.index(WARP))
        group, member = t.arith("udiv", lane, t.index(4)), t.arith("urem", lane, t.index(4))
        return _Lane(t.arith("udiv", thread, t.index(WARP)), t.arith("sub", thread, lane), group, member)


def emit_warp_instruction(launch: Warps, op: ir.Operation) -> None:
    """Emit an instruction of all threads of a warp."""
    if launch.count % WARP:
        raise OutsideError("an instruction of warps in a block of no whole warps")
    launch.require_whole_warps(f"'{op.name}' of a warp")
    if op.name == LOAD_MATRICES:
        _load_matrices(launch, op)
    else:
        _multiply(launch, op)


def _load_matrices(launch: Warps, op: ir.Operation) -> None:
    """Emit loads of 8 x 8 elements of 16 bits, or rows of as many bytes: each thread names the place of one row."""
    t = launch.t
    source, *indices = op.operands
    kind = op.results[0].type
    tiles, pair = kind.shape
    row = ROW_BYTES // (4 // pair)
    is_transposed = ir.BoolAttr(op.attributes["transpose"]).value
    if is_transposed and pair != 2:
        raise OutsideError("transposed matrices of elements that have not 16 bits")

    def thread(number: IntValue) -> None:
        lane = _Lane.of(t, number)
        parts: list[Number] = []
        for tile in range(tiles):
            first = t.arith("add", lane.first, t.index(tile * EDGE))
            if is_transposed:
                rows = t.arith("mul", lane.member, t.index(2))
                places = [(t.arith("add", rows, t.index(i)), lane.group) for i in range(2)]
            else:
                column = t.arith("mul", lane.member, t.index(row // 4))
                places = [(lane.group, t.arith("add", column, t.index(i))) for i in range(pair)]
            for line, column in places:
                values = [launch.operand(index, t.arith("add", first, line)) for index in indices]
                ints = [value for value in values if isinstance(value, IntValue)]
                buffer = launch.operand(source, number)
                assert isinstance(buffer, BufferRef)
                parts.append(t.load(buffer, t.arith("add", t.offset(buffer, ints), column)))
        launch.keep(op.results[0], vector_of(t, parts), number)

    launch.each_thread(thread)


def _multiply(launch: Warps, op: ir.Operation) -> None:
    """Emit a product of matrices of fragments, plus a matrix."""
    t = launch.t
    counts = [int(each) for each in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])]
    operands = list(op.operands)
    left, right = operands[: counts[0]], operands[counts[0] : counts[0] + counts[1]]
    sums = operands[counts[0] + counts[1] :]
    kinds = [_element(op, name) for name in ("multiplicandAPtxType", "multiplicandBPtxType")]
    rows, columns, depth = _shape(op)
    per = depth // (4 * len(right))
    if (rows, columns) != (ROWS, COLUMNS) or len(left) != 2 * len(right) or depth != 4 * per * len(right):
        raise OutsideError(f"a product of fragments of {rows} x {columns} x {depth} elements")
    if len(sums) != 4:
        raise OutsideError("a product of fragments with packed sums")
    is_of_floats = is_float(sums[0].type)
    warps = launch.count // WARP
    matrices = [
        t.buffer_argument(_memory(is_of_floats, warps * lines * depth), (warps * lines * depth,))
        for lines in (ROWS, COLUMNS)
    ]

    def write(number: IntValue) -> None:
        lane = _Lane.of(t, number)
        for values, matrix, lines, kind in zip((left, right), matrices, (ROWS, COLUMNS), kinds, strict=True):
            for i, value in enumerate(values):
                below, beside = (i % 2 * EDGE, i // 2) if lines == ROWS else (0, i)
                line = t.arith("add", lane.group, t.index(below))
                k = t.arith("add", t.arith("mul", lane.member, t.index(per)), t.index(4 * per * beside))
                place = _place(t, lane.warp, lines, line, depth, k)
                t.store(_elements(t, launch.operand(value, number), kind, per), matrix, place)

    def read(number: IntValue) -> None:
        lane, zero = _Lane.of(t, number), t.index(0)
        lines = [t.arith("add", lane.group, t.index(below)) for below in (0, EDGE)]
        first = t.arith("mul", lane.member, t.index(2))
        across = [t.arith("add", first, t.index(i)) for i in range(2)]
        a = [t.load(matrices[0], _place(t, lane.warp, ROWS, line, depth, zero), depth) for line in lines]
        b = [t.load(matrices[1], _place(t, lane.warp, COLUMNS, column, depth, zero), depth) for column in across]
        results = []
        for i, total in enumerate(sums):
            known = launch.operand(total, number)
            results.append(_plus(t, known, total_of(t, _times(t, a[i // 2], b[i % 2]))))
        launch.keep(op.results[0], StructValue(tuple(results)), number)

    outer, t.shadows = t.shadows, None  # matrices are memory of this translation
    launch.each_thread(write)
    launch.each_thread(read)
    t.shadows = outer


def _memory(is_of_floats: bool, count: int) -> Argument:
    return Argument("scratch", "f", 0, (count,)) if is_of_floats else Argument("scratch", "i", 32, (count,))


def _place(t: KernelTranslator, warp: IntValue, lines: int, line: IntValue, depth: int, k: IntValue) -> IntValue:
    row = t.arith("add", t.arith("mul", warp, t.index(lines)), line)
    return t.arith("add", t.arith("mul", row, t.index(depth)), k)


def _elements(t: KernelTranslator, register: KernelValue, kind: str, per: int) -> Number:
    """Return the elements of a register: floats, or integers of 32 bits."""
    if isinstance(register, PackedFloats):
        register = register.floats
    if isinstance(register, FloatValue) and kind in _FLOATS and (register.lanes or 1) == per:
        return register
    if isinstance(register, IntValue) and kind in _SIGNED and per == 4:
        return t.resized(as_lanes(t, register, 8), 32, _SIGNED[kind])
    raise OutsideError(f"a fragment of {kind}")


def _times(t: KernelTranslator, a: Number, b: Number) -> Number:
    if isinstance(a, FloatValue) and isinstance(b, FloatValue):
        return t.arithmetic.mul(t.f, a, b)
    assert isinstance(a, IntValue) and isinstance(b, IntValue)
    return t.arith("mul", a, b)


def _plus(t: KernelTranslator, a: KernelValue, b: Number) -> Number:
    if isinstance(a, FloatValue) and isinstance(b, FloatValue):
        return t.arithmetic.add(t.f, a, b)
    assert isinstance(a, IntValue) and isinstance(b, IntValue)
    return t.arith("add", a, b)


def _element(op: ir.Operation, name: str) -> str:
    """Return the type of the elements of a factor: without the attribute, that of its registers."""
    if name in op.attributes:
        return str(op.attributes[name]).rpartition("<")[2].rstrip(">")
    return str(element_of(op.operands[0].type))


def _shape(op: ir.Operation) -> list[int]:
    text = str(op.attributes["shape"]).rpartition("<")[2].rstrip(">")
    return [int(each.partition("=")[2]) for each in text.split(",")]


@translates("llvm.extractvalue")
def part_of_struct(t: KernelTranslator, op: ir.Operation) -> None:
    value = t.value(op.operands[0])
    position = [int(i) for i in ir.DenseI64ArrayAttr(op.attributes["position"])]
    if not isinstance(value, StructValue) or len(position) != 1:
        raise OutsideError("a part of a structure")
    t.set(op, value.parts[position[0]])


@translates("nvvm.convert.float.to.tf32")
def tf32(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, PackedFloats(t.floats(op.operands[0]), 1, None))


@translates("nvgpu.device_async_copy")
def asynchronous_copy(t: KernelTranslator, op: ir.Operation) -> None:
    """Emit a copy at once: until a wait, no thread may access what it writes."""
    if t.shadows is None:
        raise OutsideError("an asynchronous copy outside of a launch")
    segments = [int(each) for each in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])]
    operands = list(op.operands)
    target, source = t.buffer(operands[0]), t.buffer(operands[1 + segments[1]])
    to = [t.ints(value) for value in operands[1 : 1 + segments[1]]]
    rest = operands[2 + segments[1] :]
    at = [t.ints(value) for value in rest[: segments[3]]]
    lanes = int(ir.IntegerAttr(op.attributes["dstElements"]).value)
    offset = t.offset(source, at)
    element = element_of(operands[0].type)
    zeros = t.splat(
        t.arithmetic.constant(t.f, 0.0, None) if is_float(element) else IntValue("0", bits_of(element)), lanes
    )
    if segments[4]:
        is_read = t.compare("ult", t.steps(lanes), t.ints(rest[segments[3]]))
        value = t.masked_load(source, offset, is_read, zeros)
    else:
        value = t.load(source, offset, lanes)
    place = t.offset(target, to)
    shadows, t.shadows = t.shadows, None
    shadows.start_copy(target, place, lanes)
    t.store(value, target, place)
    t.shadows = shadows


@translates("nvvm.cp.async.commit.group")
def commit_copies(t: KernelTranslator, op: ir.Operation) -> None:
    if t.shadows is None:
        raise OutsideError("an asynchronous copy outside of a launch")
    t.shadows.commit_copies()


@translates("nvvm.cp.async.wait.group")
def wait_for_copies(t: KernelTranslator, op: ir.Operation) -> None:
    if t.shadows is None:
        raise OutsideError("an asynchronous copy outside of a launch")
    t.shadows.wait_for_copies(int(ir.IntegerAttr(op.attributes["n"]).value))


@translates("llvm.inline_asm")
def assembly(t: KernelTranslator, op: ir.Operation) -> None:
    """Emit an instruction of PTX that is written as text."""
    text = ir.StringAttr(op.attributes["asm_string"]).value
    if text == "mov.b64 $0, $1;":
        t.set(op, t.value(op.operands[0]))
    elif text == "ex2.approx.ftz.f32 $0, $1;":
        t.set(op, t.arithmetic.exp2(t.f, t.floats(op.operands[0])))
    else:
        raise OutsideError("assembly of several instructions" if text.count(";") > 1 else f"the instruction '{text}'")
