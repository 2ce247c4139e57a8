"""Translations of AMX's instructions: registers are memory, which the caller of a translated function provides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import enclosing
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translate_arith import extended
from mirlo.passes.exact.translator import Argument, KernelTranslator, translates
from mirlo.passes.exact.values import (
    BufferAddress,
    BufferRef,
    FloatValue,
    IntValue,
    Number,
    bits_of,
    element_of,
    is_float,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = "tir.tile_rows"
"""Attribute of an instruction: the rows of the register that it changes or stores."""
MOST_ROWS, ROW_BYTES = 16, 64
SUMS = ROW_BYTES // 4
"""Sums in a row of a register."""
INTRINSIC = "llvm.call_intrinsic"
FLOAT_PRODUCT, INTEGER_PRODUCT = "llvm.x86.tdpbf16ps", "llvm.x86.tdpb"
_SUM_BITS = 32


@translates("llvm.mlir.constant")
def constant(t: KernelTranslator, op: ir.Operation) -> None:
    kind = op.results[0].type
    t.set(op, t.scalar_constant(op.attributes["value"], kind, None))


@translates("llvm.inttoptr")
def address(t: KernelTranslator, op: ir.Operation) -> None:
    """Return the buffer and the element of an address: the start of a buffer, and bytes after it."""
    value = op.operands[0]
    while _is(value, "arith.index_cast"):
        value = value.owner.operands[0]
    if not _is(value, "arith.addi") or not _is(value.owner.operands[0], "memref.extract_aligned_pointer_as_index"):
        raise OutsideError("an address that is no start of a buffer with bytes behind it")
    start, behind = value.owner.operands
    source = start.owner.operands[0]
    size = t.index(_bytes_of(source))
    t.set(op, BufferAddress(t.buffer(source), t.arith("udiv", t.ints(behind), size), _bytes_of(source)))


def _is(value: ir.Value, name: str) -> bool:
    return not isinstance(value.owner, ir.Block) and bool(value.owner.name == name)


def _bytes_of(buffer: ir.Value) -> int:
    element = element_of(buffer.type)
    return max((element.width if is_float(element) else bits_of(element)) // 8, 1)


def tile_instruction(t: KernelTranslator, op: ir.Operation, name: str) -> None:
    """Emit an instruction on registers of tiles."""
    function = enclosing(op, "func.func")
    if name == "llvm.x86.tilezero":
        _zero(t, op, function)
    elif name in ("llvm.x86.tileloadd64", "llvm.x86.tilestored64"):
        _move(t, op, is_load=name == "llvm.x86.tileloadd64")
    elif name.startswith(INTEGER_PRODUCT):
        _multiply(t, op, function, name)
    else:
        raise OutsideError(f"the instruction '{name}'")


def _number(value: ir.Value) -> int:
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


def _rows(op: ir.Operation) -> int:
    return int(ir.IntegerAttr(op.attributes[ROWS]).value) if ROWS in op.attributes else MOST_ROWS


def _register(t: KernelTranslator, number: int, kind: str, bits: int) -> BufferRef:
    """Return the memory of a register, with elements of a kind."""
    key = f"tile {number} {kind}{bits}"
    if key not in t.registers:
        t.registers[key] = t.buffer_argument(
            Argument("scratch", kind, bits, (MOST_ROWS * ROW_BYTES,)), (MOST_ROWS, ROW_BYTES)
        )
    return t.registers[key]


def _products(function: ir.Operation) -> set[str]:
    names = (ir.StringAttr(op.attributes["intrin"]).value for op in operations_in(function) if op.name == INTRINSIC)
    return {name for name in names if name.startswith(INTEGER_PRODUCT)}


def _each_row(t: KernelTranslator, rows: int, emit: Callable[[IntValue], None]) -> None:
    def body(row: IntValue, carried: list[Number]) -> Sequence[Number]:
        emit(row)
        return []

    t.loop(t.index(0), t.index(rows), t.index(1), [], body)


def _zero(t: KernelTranslator, op: ir.Operation, function: ir.Operation) -> None:
    products = _products(function)
    zeros: list[tuple[BufferRef, Number]] = []
    if FLOAT_PRODUCT in products:
        zeros.append((_register(t, _number(op.operands[0]), "f", 0), t.arithmetic.constant(t.f, 0.0, SUMS)))
    if products - {FLOAT_PRODUCT}:
        zero = IntValue(t.f.constant(0, _SUM_BITS, SUMS), _SUM_BITS, SUMS)
        zeros.append((_register(t, _number(op.operands[0]), "i", _SUM_BITS), zero))

    def store(row: IntValue) -> None:
        for register, value in zeros:
            t.store(value, register, t.offset(register, [row, t.index(0)]))

    _each_row(t, _rows(op), store)


def _move(t: KernelTranslator, op: ir.Operation, is_load: bool) -> None:
    """Load rows of memory to a register, or store them."""
    where = t.value(op.operands[1])
    assert isinstance(where, BufferAddress)
    memory = where.buffer
    pitch = t.arith("udiv", t.ints(op.operands[2]), t.index(where.element_bytes))
    lanes = ROW_BYTES // where.element_bytes
    register = _register(t, _number(op.operands[0]), memory.kind, memory.bits)

    def move(row: IntValue) -> None:
        outside = t.arith("add", where.offset, t.arith("mul", row, pitch))
        inside = t.offset(register, [row, t.index(0)])
        if is_load:
            t.store(t.load(memory, outside, lanes), register, inside)
        else:
            t.store(t.load(register, inside, lanes), memory, outside)

    _each_row(t, _rows(op), move)


def _multiply(t: KernelTranslator, op: ir.Operation, function: ir.Operation, name: str) -> None:
    """Add the products of the rows of a register and the groups of rows of another one to sums."""
    numbers = [_number(value) for value in op.operands]
    is_float_product = name == FLOAT_PRODUCT
    group = 2 if is_float_product else 4
    sums = _register(t, numbers[0], *(("f", 0) if is_float_product else ("i", _SUM_BITS)))
    a, b = (_register(t, number, *(("f", 0) if is_float_product else ("i", 8))) for number in numbers[1:])
    depth = _depth(function, numbers[2])

    def row_of_sums(row: IntValue) -> None:
        place = t.offset(sums, [row, t.index(0)])

        def step(k: IntValue, carried: list[Number]) -> Sequence[Number]:
            (total,) = carried
            columns = t.load(b, t.offset(b, [k, t.index(0)]), SUMS * group)
            for j in range(group):
                column = t.arith("add", t.arith("mul", k, t.index(group)), t.index(j))
                x = t.splat(t.load(a, t.offset(a, [row, column])), SUMS)
                y = t.shuffled(columns, columns, range(j, SUMS * group, group))
                total = _added(t, name, total, x, y)
            return [total]

        results = t.loop(t.index(0), t.index(depth), t.index(1), [t.load(sums, place, SUMS)], step)
        t.store(results[0], sums, place)

    _each_row(t, MOST_ROWS, row_of_sums)


def _depth(function: ir.Operation, register: int) -> int:
    """Return the number of rows that are loaded to a register."""
    loads = [
        op
        for op in operations_in(function)
        if op.name == INTRINSIC and ir.StringAttr(op.attributes["intrin"]).value == "llvm.x86.tileloadd64"
    ]
    rows = [_rows(op) for op in loads if _number(op.operands[0]) == register]
    return max(rows, default=MOST_ROWS)


def _added(t: KernelTranslator, name: str, total: Number, x: Number, y: Number) -> Number:
    if isinstance(total, FloatValue) and isinstance(x, FloatValue) and isinstance(y, FloatValue):
        return t.arithmetic.fma(t.f, x, y, total)
    assert isinstance(total, IntValue) and isinstance(x, IntValue) and isinstance(y, IntValue)
    signs = name.removeprefix(INTEGER_PRODUCT)  # 'ssd', 'sud', 'usd' or 'uud'
    wide = [extended(t, each, sign == "s") for each, sign in zip((x, y), signs, strict=False)]
    return t.arith("add", total, t.arith("mul", *wide))
