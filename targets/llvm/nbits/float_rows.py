"""Products of f32 rows with packed weights, which are converted in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import create
from mirlo.passes.schedule.primitives.tile_instruction import multiply_add
from mirlo.passes.schedule.primitives.vector_memory import FunctionConstants
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits import code as C
from mirlo.targets.llvm.nbits.kernels import PAIR, ROWS, ProductBuffers, ProductKernel, SubBlock
from mirlo.targets.llvm.nbits.layout import COLUMNS
from mirlo.targets.llvm.nbits.product import Product

TILE_ROWS = 8
"""Rows whose f32 accumulators are in registers at the same time."""
CHAINS = 4
"""Independent sums that hide the latency of an addition."""
INSTRUCTIONS = 3
"""Instructions for 16 weights: two that make floats of them, and a product."""


class FloatKernel(ProductKernel):
    """Rows of f32; weights are converted in registers, or for many rows to scratch memory."""

    def __init__(self, product: Product, machine: Machine, buffers: ProductBuffers, constants: FunctionConstants):
        super().__init__(product, machine, buffers, constants)
        self.floats = self.activations[0]
        self.sums = self.activations[1] if self.layout.zero else None
        self.decoder = C.Decoder(machine, self.layout, self)

    @property
    def tile_sizes(self) -> tuple[int, ...]:
        """Return the rows of the tiles of the kernel for many rows: their sums take half of the registers at most."""
        largest = self.machine.vector_registers // 2 // (self.registers * self.tile_panels)
        largest = min(TILE_ROWS, max(1, largest))
        return largest, *(size for size in (4, 2, 1) if size < largest)

    @property
    def tile_panels(self) -> int:
        """Return the panels of a tile: both, or one at a time where a panel takes several registers."""
        return PAIR if self.registers == 1 else 1

    def values(self, sub: SubBlock, vector: ir.Value, panel: int = 0) -> Iterator[tuple[int, ir.Value]]:
        """Yield the rows of K of the first vector of a sub-block, and the weights of this one for each.

        They are floats, relative to the middle. The rows of later vectors are `rows_per_vector` after each.
        """
        layout = self.layout
        if layout.is_by_row:
            at = self.position(sub, vector, panel)
            for row in range(4):
                codes = C.load_vector(self.panels, self.offset(at, row * COLUMNS), COLUMNS)
                yield row, self.decoder.value_of_bytes(codes)
            return
        words = self.words(sub, vector, panel)
        if layout.is_by_word:
            for row in range(layout.rows_per_vector):
                yield row, self.decoder.value(words, layout.bits * row)
            return
        for field in range(layout.fields):
            for i, weights in enumerate(self.decoder.rows(words, field)):
                yield 4 * field * layout.vectors + i, weights

    def spare_values(self, sub: SubBlock, panel: int = 0) -> Iterator[tuple[int, ir.Value]]:
        """Yield the rows of K that the spare bits of words hold, and the weights for each."""
        kind = C.integer(32)
        for row, parts in self.layout.spare_rows().items():
            code = self.constant(0, kind)
            for word, bit, start, count in parts:
                words = self.words(sub, self.index(word), panel)
                moved = C.both("shrui", words, self.constant(bit - start, kind))
                mask = self.constant(((1 << count) - 1) << start, kind)
                code = C.both("ori", code, C.both("andi", moved, mask))
            yield row, self.decoder.value(code, 0)

    def instructions_per_line(self) -> int:
        return 32 // self.layout.bits * INSTRUCTIONS

    def add_few_rows(self, sub: SubBlock, rows: Sequence[ir.Value], totals: Sequence[ir.Value]) -> Sequence[ir.Value]:
        own = [self.row_of(sub, row) for row in rows]
        places = [C.times(row, self.index(self.layout.sub)) for row in own]
        chains = self.chains_of(len(rows))

        def multiplied(
            values: Iterator[tuple[int, ir.Value]], shift: ir.Value, held: Sequence[ir.Value]
        ) -> list[ir.Value]:
            parts, starts = list(held), [C.add(at, shift) for at in places]
            for number, (k, weights) in enumerate(values):
                for i, start in enumerate(starts):
                    x = C.splat(C.load(self.floats, self.offset(start, k)))
                    chain = i * chains + number % chains
                    parts[chain] = multiply_add(weights, x, parts[chain])
            return parts

        def vector(j: ir.Value, *held: ir.Value) -> Sequence[ir.Value]:
            return multiplied(self.values(sub, j), C.times(j, self.index(self.layout.rows_per_vector)), held)

        sums = self.each_vector(len(rows), vector, [self.constant(0.0, C.f32())] * (chains * len(rows)))
        sums = multiplied(self.spare_values(sub), self.index(0), sums)
        scale = self.scale(sub)
        zeros = self.zero(sub) if self.sums is not None else None
        result = []
        for i, (row, total) in enumerate(zip(own, totals, strict=True)):
            value = sum_pairs(sums[i * chains : (i + 1) * chains])
            result.append(self.scaled(value, scale, zeros, row, total))
        return result

    def chains_of(self, rows: int) -> int:
        """Return the independent sums of a row where this many rows are computed together."""
        return max(1, CHAINS // rows)

    def scaled(
        self, value: ir.Value, scale: ir.Value, zeros: ir.Value | None, row: ir.Value, total: ir.Value
    ) -> ir.Value:
        """Add the sum of products of a sub-block, relative to zero points and scaled, to a total."""
        if self.sums is not None and zeros is not None:
            value = C.both("subf", value, C.both("mulf", zeros, C.splat(C.load(self.sums, row))))
        return multiply_add(value, scale, total)

    def scratch(self) -> ir.Value:
        elements = self.layout.sub * PAIR * COLUMNS
        return self.constants.scratch("weights", elements, C.f32())

    def add_rows(
        self, sub: SubBlock, top: ir.Value, count: ir.Value, accumulators: ir.Value, scratch: ir.Value | None
    ) -> None:
        assert scratch is not None
        self.convert_weights(sub, scratch)
        done = self.index(0)
        for size in self.tile_sizes:
            stop = C.times(create("arith.divui", count.type, count, self.index(size)), self.index(size))
            C.loop(
                done,
                stop,
                lambda first, size=size: self.add_tile(sub, top, first, size, accumulators, scratch),
                step=size,
            )
            done = stop

    def convert_weights(self, sub: SubBlock, scratch: ir.Value) -> None:
        """Store the weights of a sub-block as f32."""
        layout, width = self.layout, PAIR * COLUMNS
        step = layout.rows_per_vector * width
        for panel in range(PAIR):
            convert = self.conversion(sub, panel)

            def store(
                values: Iterator[tuple[int, ir.Value]],
                first: ir.Value,
                panel: int = panel,
                convert: Callable[[ir.Value], ir.Value] = convert,
            ) -> Sequence[ir.Value]:
                for k, weights in values:
                    C.store_vector(convert(weights), scratch, self.offset(first, k * width + panel * COLUMNS))
                return ()

            self.each_vector(ROWS, lambda j, p=panel, s=store: s(self.values(sub, j, p), C.times(j, self.index(step))))
            store(self.spare_values(sub, panel), self.index(0))

    def conversion(self, sub: SubBlock, panel: int) -> Callable[[ir.Value], ir.Value]:
        """Emit the scales and zero points of a panel; return what emits converted weights."""
        scale, zeros = self.scale(sub, panel), self.zero(sub, panel) if self.layout.zero else None

        def convert(weights: ir.Value) -> ir.Value:
            return C.both("mulf", weights if zeros is None else C.both("subf", weights, zeros), scale)

        return convert

    def add_tile(
        self, sub: SubBlock, top: ir.Value, first: ir.Value, size: int, accumulators: ir.Value, scratch: ir.Value
    ) -> None:
        """Multiply `size` rows with the converted weights, and add the products to the accumulators.

        The products of a sub-block are summed up by themselves: sums of all of K, one after the other, have three times
        the error.
        """
        own = [
            C.times(self.row_of(sub, C.add(top, self.offset(first, i))), self.index(self.layout.sub))
            for i in range(size)
        ]
        parts = [
            self._tile_sums(own, range(p, p + self.tile_panels), scratch) for p in range(0, PAIR, self.tile_panels)
        ]
        for i in range(size):
            row = self.offset(first, i)
            pairs = zip(self.get(accumulators, row), [each for part in parts for each in part[i]], strict=True)
            self.put(accumulators, row, [C.both("addf", total, product) for total, product in pairs])

    def _tile_sums(self, own: Sequence[ir.Value], panels: range, scratch: ir.Value) -> list[list[ir.Value]]:
        """Return the sums of the products of rows with the converted weights of panels, by row."""
        count = len(panels)

        def step(k: ir.Value, *held: ir.Value) -> Sequence[ir.Value]:
            return self.add_converted(own, k, range(4), panels, held, scratch)

        zeros = [self.constant(0.0, C.f32())] * (len(own) * count)
        products = C.loop(self.index(0), self.index(self.layout.sub), step, zeros, step=4)
        return [products[i : i + count] for i in range(0, len(products), count)]

    def add_converted(
        self,
        own: Sequence[ir.Value],
        first: ir.Value,
        offsets: Sequence[int],
        panels: range,
        held: Sequence[ir.Value],
        scratch: ir.Value,
    ) -> list[ir.Value]:
        """Add products of rows, which begin at these positions, with converted weights of panels, by row and panel.

        They are those of rows of K at offsets from the first one, which take turns with the sums of a row and a panel.
        """
        width, count = PAIR * COLUMNS, len(panels)
        chains = len(held) // (len(own) * count)
        sums, line, starts = list(held), C.times(first, self.index(width)), [C.add(row, first) for row in own]
        for number, k in enumerate(offsets):
            at = [self.offset(line, k * width + panel * COLUMNS) for panel in panels]
            columns = [C.load_vector(scratch, each, COLUMNS) for each in at]
            for i, start in enumerate(starts):
                x = C.splat(C.load(self.floats, self.offset(start, k)))
                for p, column in enumerate(columns):
                    chain = (i * count + p) * chains + number % chains
                    sums[chain] = multiply_add(x, column, sums[chain])
        return sums


def sum_pairs(parts: Sequence[ir.Value]) -> ir.Value:
    """Return the sum of some values, added in pairs."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return C.both("addf", sum_pairs(parts[:half]), sum_pairs(parts[half:]))
