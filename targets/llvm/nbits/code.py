"""Emission of the kernels: positions, loops, and vectors of 16 lanes, which narrower machines divide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, compare, create
from mirlo.passes.schedule.loops import for_loop
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction
from mirlo.passes.schedule.primitives.vector_memory import VectorMemory
from mirlo.passes.schedule.vectors import pick_lanes, shuffle
from mirlo.targets.llvm.intrinsics.dot_instructions import call_arm_lookup
from mirlo.targets.llvm.intrinsics.x86 import call_lookup, call_permute, call_permute_halves, call_permute_two
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits.layout import COLUMNS, PanelLayout
from mirlo.targets.llvm.schedule.contraction.groups import group_of_bytes
from mirlo.targets.llvm.tile_instructions import instruction_of_types


def vector(kind: ir.Type, lanes: int = COLUMNS) -> ir.Type:
    return ir.VectorType.get([lanes], kind)


def f32() -> ir.Type:
    return ir.F32Type.get()


def integer(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def add(a: ir.Value, b: ir.Value) -> Value:
    return create("arith.addi", a.type, a, b)


def times(a: ir.Value, b: ir.Value) -> Value:
    return create("arith.muli", a.type, a, b)


def smaller(a: ir.Value, b: ir.Value) -> Value:
    return create("arith.minsi", a.type, a, b)


def loop(
    low: ir.Value, high: ir.Value, body: Callable[..., Sequence[ir.Value] | None], carried: Sequence[ir.Value] = (),
    step: int = 1, parallel: bool = False,
) -> list[ir.Value]:  # fmt: skip
    """Emit a loop: `body(i, *carried)` returns the next carried values.

    Return the final ones. LLVM does not unroll it: vectors side by side are emitted as such, and copies take time to
    compile.
    """
    return for_loop(low, high, step, body, carried, parallel=parallel, rolled=True)


def splat(value: ir.Value, lanes: int = COLUMNS) -> Value:
    """Emit a vector with a scalar in all lanes."""
    return create("vector.broadcast", vector(value.type, lanes), value)


def bitcast(value: ir.Value, kind: ir.Type) -> Value:
    """Reinterpret the bits of a vector as elements of this type."""
    lanes = value.type.shape[0] * value.type.element_type.width // kind.width
    return create("vector.bitcast", vector(kind, lanes), value)


def load(buffer: ir.Value, position: ir.Value) -> ir.Value:
    return create("memref.load", buffer.type.element_type, buffer, position)


def load_vector(buffer: ir.Value, position: ir.Value, lanes: int) -> Value:
    return create("vector.load", vector(buffer.type.element_type, lanes), buffer, position)


def store_vector(value: ir.Value, buffer: ir.Value, position: ir.Value) -> None:
    ir.Operation.create("vector.store", operands=[value, buffer, position])


def load_word(buffer: ir.Value, position: ir.Value) -> Value:
    """Load four adjacent bytes as an i32 in all lanes."""
    word = bitcast(load_vector(buffer, position, 4), integer(32))
    scalar = create("vector.extract", integer(32), word, static_position=ir.DenseI64ArrayAttr.get([0]))
    return splat(scalar)


def both(name: str, a: ir.Value, b: ir.Value) -> Value:
    """Emit an operation of two values of one type."""
    return create(f"arith.{name}", a.type, a, b)


def to_float(value: ir.Value) -> Value:
    return create("arith.sitofp", vector(f32(), value.type.shape[0]), value)


class ProductCode(VectorMemory):
    """Emits the code of a product, whose constants are at the start of its function."""

    def constant(self, number: float, kind: ir.Type, lanes: int = COLUMNS) -> ir.Value:
        """Return a vector with a number in all lanes."""
        is_float = isinstance(kind, ir.FloatType)
        return self.constants.splat(
            lanes, ir.FloatAttr.get(kind, number) if is_float else ir.IntegerAttr.get(kind, int(number))
        )

    def offset(self, a: ir.Value, by: int) -> ir.Value:
        return add(a, self.index(by)) if by else a

    def load_floats(self, buffer: ir.Value, position: ir.Value, kind: str) -> ir.Value:
        """Load 16 values of this element type from bytes as f32."""
        if kind == "f32":
            return bitcast(load_vector(buffer, position, 4 * COLUMNS), f32())
        if kind == "i8":
            return to_float(create("arith.extsi", vector(integer(32)), load_vector(buffer, position, COLUMNS)))
        narrow = load_vector(buffer, position, 2 * COLUMNS)
        if kind == "f16":
            return create("arith.extf", vector(f32()), bitcast(narrow, ir.F16Type.get()))
        bits = create("arith.extui", vector(integer(32)), bitcast(narrow, integer(16)))
        return bitcast(both("shli", bits, self.constant(16, integer(32))), f32())

    def field_bytes(self, words: ir.Value, field: int, bits: int) -> Value:
        """Return a field of each byte of <16 x i32> as <64 x i8>, shifted to the lowest bits."""
        if field:
            words = both("shrui", words, self.constant(bits * field, integer(32)))
        return both("andi", bitcast(words, integer(8)), self.constant((1 << bits) - 1, integer(8), 4 * COLUMNS))


SIGNED = "i8xi8"
"""The dot products of machines that multiply signed weights, of AArch64."""


class Dots:
    """Products of signed activations and weights, added to each of 16 lanes by an instruction for register tiles.

    Weights are unsigned, or signed as well, which those of up to 7 bits are in any case. `is_tall` is whether they are
    multiplied by several rows.
    """

    def __init__(self, machine: Machine, is_tall: bool = False):
        self.accumulates = "u8xi8" in machine.dots
        """Whether weights of any 8 bits are multiplied; otherwise products of 7 bits must not overflow i16."""
        self.is_signed = SIGNED in machine.dots
        """Whether weights are signed, and fields are shifted in bytes."""
        self.group = group_of_bytes((False, not self.is_signed), machine, is_tall, has_small_pairs=True)
        self.parts = max(1, 4 * COLUMNS // machine.vector_bytes)
        """Instructions for 16 columns, of a row or of two."""

    @staticmethod
    def supports(machine: Machine, layout: PanelLayout) -> bool:
        if SIGNED in machine.dots:
            return layout.bits == 8 or layout.largest < 128
        # The i16 of two products of bytes.
        fits = "u8xi8" in machine.dots or ("i16" in machine.dots and 2 * 127 * layout.largest < 1 << 15)
        return machine.vector_bytes >= 32 and fits

    @cached_property
    def instruction(self) -> TileInstruction:
        """Return the row of the table."""
        assert self.group is not None
        return instruction_of_types(self.group.instruction, ("i8", "i8" if self.is_signed else "u8", "i32"))

    def add(self, total: ir.Value, weights: ir.Value, activations: ir.Value) -> ir.Value:
        """Add products of <64 x i8> weights and <16 x i32> words of activations."""
        signed, emit = bitcast(activations, integer(8)), self.instruction.emit
        assert emit is not None
        return in_parts(self.parts, lambda total, columns, row: emit(row, columns, total), total, weights, signed)


def in_parts(count: int, function: Callable[..., ir.Value], *values: ir.Value) -> ir.Value:
    """Apply a function to this many parts of vectors, and join the results."""
    if count == 1:
        return function(*values)
    each = [value.type.shape[0] // count for value in values]
    parts = [
        function(*(pick_lanes(value, range(i * n, (i + 1) * n)) for value, n in zip(values, each, strict=True)))
        for i in range(count)
    ]
    result = parts[0]
    for part in parts[1:]:
        result = shuffle(result, part, range(result.type.shape[0] + part.type.shape[0]))
    return result


class CodeLookup:
    """The bytes of the integers that codes stand for, plus a number that makes them unsigned."""

    def __init__(self, machine: Machine, table: Sequence[int], above: int = 0):
        is_arm = SIGNED in machine.dots
        self.lookup = call_arm_lookup if is_arm else call_lookup
        self.parts = 4 if is_arm else max(1, 4 * COLUMNS // machine.vector_bytes)
        count = 4 * COLUMNS // self.parts
        numbers = (np.tile(table, count // 16) + above).astype(np.uint8).view(np.int8)
        kind = vector(integer(8), count)
        self.table = create("arith.constant", kind, value=ir.DenseElementsAttr.get(numbers, type=kind))

    @staticmethod
    def supports(machine: Machine) -> bool:
        return machine.avx2 or SIGNED in machine.dots

    def bytes(self, codes: ir.Value) -> ir.Value:
        """Return the integers of <64 x i8> codes."""
        return in_parts(self.parts, lambda part: self.lookup(self.table, part), codes)


class Decoder:
    """Values of weights, relative to the middle of their range, as f32."""

    def __init__(self, machine: Machine, layout: PanelLayout, code: ProductCode):
        self.code, self.constant = code, code.constant
        self.layout, self.bits, self.middle = layout, layout.bits, layout.middle
        self.table: ir.Value | None = None
        self.tables: tuple[ir.Value, ir.Value] | None = None
        self.halves: tuple[ir.Value, ir.Value] | None = None
        self.lookup: CodeLookup | None = None
        if machine.avx512 and self.bits <= 4:
            integers = layout.table or (np.arange(16) % (1 << self.bits) - self.middle)
            self.table = _table(np.array(layout.codebook or integers, np.float32))
        elif layout.table and CodeLookup.supports(machine):
            self.lookup = CodeLookup(machine, layout.table)
        elif machine.avx2 and layout.codebook:
            numbers = np.array(layout.codebook, np.float32)
            self.halves = _table(numbers[:8]), _table(numbers[8:])
        elif self.bits == 5:
            numbers = np.arange(32, dtype=np.float32) + layout.least
            self.tables = _table(numbers[:16]), _table(numbers[16:])

    def rows(self, words: ir.Value, field: int) -> list[ir.Value]:
        """Return the values of a field of each byte of <16 x i32>, byte by byte."""
        if self.lookup is None:
            return [self.value(words, 8 * i + self.bits * field) for i in range(4)]
        kind = integer(32)
        numbers = bitcast(self.lookup.bytes(self.code.field_bytes(words, field, self.bits)), kind)
        top = self.constant(24, kind)
        moved = [both("shli", numbers, self.constant(24 - 8 * i, kind)) if i < 3 else numbers for i in range(4)]
        return [to_float(both("shrsi", each, top)) for each in moved]

    def value(self, words: ir.Value, shift: int) -> ir.Value:
        """Return the value of the bits from `shift` on of each lane of <16 x i32>."""
        if shift:
            words = both("shrui", words, self.constant(shift, integer(32)))
        if self.table is not None:
            return call_permute(self.table, words)  # only the lowest 4 bits count
        if self.halves is not None:
            halves = self.halves
            return in_parts(2, lambda part: call_permute_halves(halves, part), words)  # as above
        if self.tables is not None:
            return call_permute_two(self.tables, words)  # only the lowest 5 bits count
        masked = both("andi", words, self.constant((1 << self.bits) - 1, integer(32)))
        if self.layout.is_by_word:
            return self._small_float(masked, self.layout.least)
        if self.layout.table:
            return to_float(self._integer_of_float(masked))
        return to_float(both("subi", masked, self.constant(self.middle, integer(32))))

    def value_of_bytes(self, codes: ir.Value) -> ir.Value:
        """Return the values of <16 x i8> weights, relative to the middle as they are stored."""
        if not self.layout.is_integer:
            return self._scaled_float(codes)
        return to_float(create("arith.extsi", vector(integer(32)), codes))

    def _small_float(self, codes: ir.Value, least: int) -> ir.Value:
        """Return codes of a few bits in lanes of i32, plus the least value, as f32: the lowest bits of 2 ** 23."""
        number = bitcast(both("ori", codes, self.constant(0x4B000000, integer(32))), f32())
        return both("subf", number, self.constant(2.0**23 - least, f32()))

    def _scaled_float(self, codes: ir.Value) -> ir.Value:
        """Return <16 x i8> e4m3 codes as f32, divided by 256: the bias of f16 is 8 more, its fraction 7 bits more."""
        kind = integer(16)
        moved = both("shli", create("arith.extsi", vector(kind), codes), self.constant(7, kind))
        half = both("andi", moved, self.constant(~0x4000, kind))  # the sign's copy
        return create("arith.extf", vector(f32()), bitcast(half, ir.F16Type.get()))

    def _integer_of_float(self, codes: ir.Value) -> ir.Value:
        """Return twice the value of e2m1 codes in lanes of i32."""
        kind = integer(32)
        size = both("andi", codes, self.constant(7, kind))
        beyond = [
            both("maxsi", both("subi", size, self.constant(start, kind)), self.constant(0, kind)) for start in (4, 6)
        ]  # steps of 2 from 4 on, of 4 from 8 on
        value = add(add(size, beyond[0]), both("shli", beyond[1], self.constant(1, kind)))
        is_negative = compare("gt", codes, self.constant(7, kind))
        return create("arith.select", codes.type, is_negative, both("subi", self.constant(0, kind), value), value)


def _table(numbers: np.ndarray) -> Value:
    """Emit a vector of numbers."""
    kind = vector(f32(), len(numbers))
    return create("arith.constant", kind, value=ir.DenseElementsAttr.get(numbers, type=kind))
