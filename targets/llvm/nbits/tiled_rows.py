"""Products of int8 rows with packed weights on AArch64: tiles of rows, for which weights are unpacked once.

Registers do not hold the weights of a sub-block, so those of a panel are unpacked to scratch memory, from which each
tile of rows reads them: in words of four rows of K for `sdot`, of eight for `smmla`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import create
from mirlo.passes.schedule.primitives.tile_instruction import multiply_add
from mirlo.passes.schedule.primitives.vector_memory import FunctionConstants
from mirlo.passes.schedule.vectors import shuffle
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.nbits import code as C
from mirlo.targets.llvm.nbits.kernels import PAIR, ProductBuffers, SubBlock
from mirlo.targets.llvm.nbits.layout import COLUMNS, LINE
from mirlo.targets.llvm.nbits.product import Product
from mirlo.targets.llvm.nbits.quantized_rows import QuantizedKernel

TILE = 4
"""Rows times digits of a tile: its sums, of 16 columns, take half of the registers."""
CHUNK = 16
"""Codes of a row in a register."""


class QuantizedTiles(QuantizedKernel):
    """The kernel for many rows; that for few rows reads weights from their panel."""

    def __init__(self, product: Product, machine: Machine, buffers: ProductBuffers, constants: FunctionConstants):
        super().__init__(product, machine, buffers, constants)
        self.tall = C.Dots(machine, is_tall=True)
        self.sizes = tuple(size for size in self.sizes if size * self.product.digits <= TILE)

    def scratch(self) -> ir.Value:
        return self.constants.scratch("weights", PAIR * COLUMNS * self.layout.sub, C.integer(8))

    def add_rows(
        self, sub: SubBlock, top: ir.Value, count: ir.Value, accumulators: ir.Value, scratch: ir.Value | None
    ) -> None:
        assert scratch is not None
        size = TILE // self.product.digits
        last = create("arith.subi", count.type, count, self.index(1))
        for panel in range(PAIR):
            self._unpack(sub, panel, scratch)
            scale = self.scale(sub, panel)
            zeros = self.zero(sub, panel) if self.layout.zero else None

            def tile(
                first: ir.Value, panel: int = panel, scale: ir.Value = scale, zeros: ir.Value | None = zeros
            ) -> None:
                # Rows beyond the last one are the last one again; their accumulators are not stored.
                places = [self.offset(first, i) for i in range(size)]
                rows = [self.row_of(sub, C.add(top, C.smaller(place, last))) for place in places]
                sums = self._sums(rows, scratch, panel)
                for place, row, parts in zip(places, rows, sums, strict=True):
                    at = self.offset(C.times(place, self.index(PAIR * COLUMNS)), panel * COLUMNS)
                    factor = C.both("mulf", scale, C.splat(C.load(self.scales, row)))
                    before = C.load_vector(accumulators, at, COLUMNS)
                    C.store_vector(multiply_add(self.combined(parts, zeros, row), factor, before), accumulators, at)

            C.loop(self.index(0), count, tile, step=size)

    def _unpack(self, sub: SubBlock, panel: int, scratch: ir.Value) -> None:
        """Store the weights of a panel as signed bytes, in the order in which tiles read them."""
        layout = self.layout
        words = [self.words(sub, self.index(j), panel) for j in range(layout.vectors)]
        fields = [self.field(word, f, in_place=False) for f in range(layout.fields) for word in words]
        step = 2 if self.tall.instruction.has_pairs else 1
        for at in range(0, len(fields), step):
            position = self.index((panel * len(fields) + at) * LINE)
            if step == 1:
                C.store_vector(fields[at], scratch, position)
                continue
            # Eight rows of K of a column side by side.
            low, high = (C.bitcast(field, C.integer(32)) for field in fields[at : at + 2])
            order = [lane for column in range(COLUMNS) for lane in (column, COLUMNS + column)]
            C.store_vector(C.bitcast(shuffle(low, high, order), C.integer(8)), scratch, position)

    def _sums(self, rows: Sequence[ir.Value], scratch: ir.Value, panel: int) -> list[list[ir.Value]]:
        """Return the sums of products of each row and digit with a sub-block of a panel: <16 x i32>."""
        digits = range(self.product.digits)
        lines = [(row, d) for row in rows for d in digits]
        starts = [self.first(d, row) for row, d in lines]
        read = self._matrices if self.tall.instruction.has_pairs else self._dots
        flat = read([self._codes(row, d) for row, d in lines], starts, scratch, panel * COLUMNS * self.layout.sub)
        return [flat[i : i + len(digits)] for i in range(0, len(flat), len(digits))]

    def _codes(self, row: ir.Value, digit: int) -> list[ir.Value]:
        """Return the codes of a row and digit in a sub-block."""
        at = self.digit(digit, C.times(row, self.index(self.layout.sub)), self.layout.sub)
        return [C.load_vector(self.codes, self.offset(at, i), CHUNK) for i in range(0, self.layout.sub, CHUNK)]

    def _dots(
        self, codes: Sequence[Sequence[ir.Value]], starts: Sequence[ir.Value], scratch: ir.Value, base: int
    ) -> list[ir.Value]:
        sums = list(starts)
        for word in range(self.layout.sub // 4):
            weights = C.load_vector(scratch, self.index(base + word * LINE), LINE)
            for i, chunks in enumerate(codes):
                part = C.bitcast(chunks[4 * word // CHUNK], C.integer(32))
                sums[i] = self.tall.add(sums[i], weights, shuffle(part, part, [word % 4] * COLUMNS))
        return sums

    def _matrices(
        self, codes: Sequence[Sequence[ir.Value]], starts: Sequence[ir.Value], scratch: ir.Value, base: int
    ) -> list[ir.Value]:
        emit, sums = self.tall.instruction.emit, list[ir.Value]()
        assert emit is not None
        # Sums of two rows and two columns are adjacent.
        joined = [lane for i in range(0, COLUMNS, 2) for lane in (i, i + 1, COLUMNS + i, COLUMNS + i + 1)]
        totals = [shuffle(starts[i], starts[i + 1], joined) for i in range(0, len(codes), 2)]
        for step in range(self.layout.sub // 8):
            weights = C.load_vector(scratch, self.index(base + step * 2 * LINE), 2 * LINE)
            half = 8 * (step % 2)
            order = [*range(half, half + 8), *range(CHUNK + half, CHUNK + half + 8)]
            for i in range(len(totals)):
                low, high = (chunks[8 * step // CHUNK] for chunks in codes[2 * i : 2 * i + 2])
                rows = shuffle(low, high, order)
                totals[i] = C.in_parts(
                    COLUMNS // 2, lambda total, columns, rows=rows: emit(rows, columns, total),
                    totals[i], weights,
                )  # fmt: skip
        for total in totals:
            for row in range(2):
                sums.append(shuffle(total, total, [4 * (c // 2) + 2 * row + c % 2 for c in range(COLUMNS)]))
        return sums
