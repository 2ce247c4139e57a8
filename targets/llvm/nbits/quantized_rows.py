"""Products of int8 rows with packed weights: sums of a sub-block are integers."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.schedule.primitives.tile_instruction import TileInstruction, multiply_add
from mirlo.passes.schedule.primitives.vector_memory import FunctionConstants
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits import code as C
from mirlo.targets.llvm.nbits.kernels import PAIR, ProductBuffers, ProductKernel, SubBlock
from mirlo.targets.llvm.nbits.product import Product

BASE = 256.0
"""Base of the digits of activations."""


class QuantizedKernel(ProductKernel):
    """Rows of int8, whose products with a sub-block are summed as integers."""

    def __init__(self, product: Product, machine: Machine, buffers: ProductBuffers, constants: FunctionConstants):
        super().__init__(product, machine, buffers, constants)
        self.codes, self.scales, self.sums = self.activations
        self.dots = C.Dots(machine)
        self.lookup = C.CodeLookup(machine, self.layout.table, self.layout.middle) if self.layout.table else None

    @property
    def instruction(self) -> TileInstruction:
        """Return the row of the table that adds products of few rows."""
        return self.dots.instruction

    def instructions_per_line(self) -> int:
        return self.layout.fields * self.product.digits

    def add_few_rows(self, sub: SubBlock, rows: Sequence[ir.Value], totals: Sequence[ir.Value]) -> Sequence[ir.Value]:
        layout, digits = self.layout, range(self.product.digits)
        vectors, fields = layout.vectors, layout.fields
        # Fields that are multiplied in place need a sum each, which is shifted; others shift the weights.
        in_place = self.dots.accumulates and self.lookup is None and 2 * len(rows) * len(digits) <= vectors
        own = [self.row_of(sub, row) for row in rows]
        places = [C.times(row, self.index(layout.sub)) for row in own]
        others = [self.constant(0, C.integer(32))] * (fields - 1 if in_place else 0)
        each = 1 + len(others)

        def vector(j: ir.Value, *held: ir.Value) -> Sequence[ir.Value]:
            parts = list(held)
            words, first = self.words(sub, j), C.times(j, self.index(4))
            starts = [C.add(at, first) for at in places]
            for field in range(fields):
                weights = self.field(words, field, in_place)
                for i, start in enumerate(starts):
                    for d in digits:
                        place = self.offset(start, 4 * field * vectors)
                        code = C.load_word(self.codes, self.digit(d, place, layout.sub))
                        number = (i * len(digits) + d) * each + (field if in_place else 0)
                        parts[number] = self.dots.add(parts[number], weights, code)
            return parts

        starts = [start for row in own for d in digits for start in (self.first(d, row), *others)]
        sums = self.each_vector(len(rows), vector, starts)
        scale = self.scale(sub)
        zeros = self.zero(sub) if layout.zero else None
        result = []
        for i, (row, total) in enumerate(zip(own, totals, strict=True)):
            firsts = range(i * len(digits) * each, (i + 1) * len(digits) * each, each)
            whole = [self._shifted(sums[first : first + each]) for first in firsts]
            factor = C.both("mulf", scale, C.splat(C.load(self.scales, row)))
            result.append(multiply_add(self.combined(whole, zeros, row), factor, total))
        return result

    def _shifted(self, parts: Sequence[ir.Value]) -> ir.Value:
        """Return the sum of the products of fields, each shifted right by the field's position."""
        value = parts[0]
        for field, part in enumerate(parts[1:], 1):
            value = C.add(value, C.both("shrsi", part, self.constant(field * self.layout.bits, C.integer(32))))
        return value

    def add_rows(
        self, sub: SubBlock, top: ir.Value, count: ir.Value, accumulators: ir.Value, scratch: ir.Value | None
    ) -> None:
        layout, digits = self.layout, range(self.product.digits)
        weights: list[list[ir.Value]] = [[] for _ in range(PAIR)]
        for panel in range(PAIR):
            words = [self.words(sub, self.index(j), panel) for j in range(layout.vectors)]
            weights[panel] = [self.field(word, f, in_place=False) for f in range(layout.fields) for word in words]
        scales = [self.scale(sub, panel) for panel in range(PAIR)]
        zeros = [self.zero(sub, panel) if layout.zero else None for panel in range(PAIR)]

        def one(i: ir.Value) -> None:
            row = self.row_of(sub, C.add(top, i))
            at = C.times(row, self.index(layout.sub))
            sums = [[self.first(d, row) for d in digits] for _ in range(PAIR)]
            for w in range(len(weights[0])):
                for d in digits:
                    code = C.load_word(self.codes, self.digit(d, self.offset(at, 4 * w), layout.sub))
                    for panel in range(PAIR):
                        sums[panel][d] = self.dots.add(sums[panel][d], weights[panel][w], code)
            own = C.splat(C.load(self.scales, row))
            totals = self.get(accumulators, i)
            for panel in range(PAIR):
                value = self.combined(sums[panel], zeros[panel], row)
                totals[panel] = multiply_add(value, C.both("mulf", scales[panel], own), totals[panel])
            self.put(accumulators, i, totals)

        self.each_row(count, one)

    def digit(self, digit: int, position: ir.Value, each: int) -> ir.Value:
        """Return the position of a digit; the digits of all rows are contiguous."""
        if not digit:
            return position
        plane = C.times(self.rows, self.index(digit * self.layout.sub_blocks * each))
        return C.add(position, plane)

    def start(self, digit: int, row: ir.Value) -> ir.Value:
        """Return the contribution of the middle of the range, to subtract, in all lanes."""
        return C.splat(C.load(self.sums, self.digit(digit, row, 1)))

    def first(self, digit: int, row: ir.Value) -> ir.Value:
        """Return the initial value of the sum of products."""
        return self.constant(0, C.integer(32)) if self.layout.is_signed else self.start(digit, row)

    def field(self, words: ir.Value, field: int, in_place: bool) -> ir.Value:
        """Return a field of each byte as <64 x i8>, shifted to the lowest bits unless it stays in place."""
        bits = self.layout.bits
        if bits == 8:
            return C.bitcast(words, C.integer(8))
        mask = (1 << bits) - 1
        if self.dots.is_signed:
            value = C.bitcast(words, C.integer(8))
            if field:
                value = C.both("shrui", value, self.constant(field * bits, C.integer(8), 64))
            is_top = field == self.layout.fields - 1
            masked = value if is_top else C.both("andi", value, self.constant(mask, C.integer(8), 64))
        elif in_place:
            mask <<= field * bits
            signed = mask - 256 if mask > 127 else mask
            masked = C.both("andi", C.bitcast(words, C.integer(8)), self.constant(signed, C.integer(8), 64))
        else:
            masked = self.field_bytes(words, field, bits)
        return masked if self.lookup is None else self.lookup.bytes(masked)

    def combined(self, sums: Sequence[ir.Value], zeros: ir.Value | None, row: ir.Value) -> ir.Value:
        """Return the sum of the products of all digits as floats, less those with the zero points."""
        value: ir.Value = C.to_float(sums[-1])
        for part in reversed(sums[:-1]):
            value = multiply_add(value, self.constant(BASE, C.f32()), C.to_float(part))
        if zeros is None:
            return value
        # `start` is the sum of the codes times the middle, negative.
        own: ir.Value = C.to_float(self.start(len(sums) - 1, row))
        for digit in reversed(range(len(sums) - 1)):
            own = multiply_add(own, self.constant(BASE, C.f32()), C.to_float(self.start(digit, row)))
        return multiply_add(zeros, C.both("mulf", own, self.constant(1 / self.layout.middle, C.f32())), value)
