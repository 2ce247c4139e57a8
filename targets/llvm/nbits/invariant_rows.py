"""Products of f32 rows with packed weights whose sums have one order, for any number of rows.

Each row has the same independent sums of a sub-block, which are scaled when they are complete. The kernel for few rows
reads weights from their panel, that for many rows converts those of a panel once, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.schedule.primitives.tile_instruction import multiply_add
from mirlo.targets.llvm.nbits import code as C
from mirlo.targets.llvm.nbits.float_rows import FloatKernel, sum_pairs
from mirlo.targets.llvm.nbits.kernels import PAIR, SubBlock, few_rows
from mirlo.targets.llvm.nbits.layout import COLUMNS

CHAINS = 2
"""Independent sums of each row. With one, a single row waits for additions; with four, the sums of four rows take all
registers."""


class InvariantFloatKernel(FloatKernel):
    """Rows of f32, each of which has the same sums whatever rows are computed with it."""

    tile_sizes = (4, 2, 1)

    def few_sizes(self) -> tuple[int, ...]:
        sizes = few_rows(self.machine)
        return tuple(size for size in sizes if size == 1 or size * CHAINS <= sizes[-1])

    def chains_of(self, rows: int) -> int:
        return CHAINS

    def convert_weights(self, sub: SubBlock, scratch: ir.Value) -> None:
        """Store the weights of a sub-block as f32, relative to the middle of their codes."""
        width = PAIR * COLUMNS
        step = self.layout.rows_per_vector * width
        for panel in range(PAIR):

            def store(
                values: Iterator[tuple[int, ir.Value]], first: ir.Value, panel: int = panel
            ) -> Sequence[ir.Value]:
                for k, weights in values:
                    C.store_vector(weights, scratch, self.offset(first, k * width + panel * COLUMNS))
                return ()

            self.each_vector(PAIR, lambda j, p=panel, s=store: s(self.values(sub, j, p), C.times(j, self.index(step))))
            store(self.spare_values(sub, panel), self.index(0))

    def add_tile(
        self, sub: SubBlock, top: ir.Value, first: ir.Value, size: int, accumulators: ir.Value, scratch: ir.Value
    ) -> None:
        """Multiply `size` rows with the converted weights in the order of the kernel for few rows."""
        layout, width = self.layout, PAIR * COLUMNS
        rows = [self.row_of(sub, C.add(top, self.offset(first, i))) for i in range(size)]
        own = [C.times(row, self.index(layout.sub)) for row in rows]

        def multiplied(offsets: Sequence[int], shift: ir.Value, held: Sequence[ir.Value]) -> list[ir.Value]:
            sums, first, starts = list(held), C.times(shift, self.index(width)), [C.add(row, shift) for row in own]
            for number, k in enumerate(offsets):
                at = [self.offset(first, k * width + p * COLUMNS) for p in range(PAIR)]
                columns = [C.load_vector(scratch, each, COLUMNS) for each in at]
                for i, start in enumerate(starts):
                    x = C.splat(C.load(self.floats, self.offset(start, k)))
                    for p in range(PAIR):
                        chain = (i * PAIR + p) * CHAINS + number % CHAINS
                        sums[chain] = multiply_add(columns[p], x, sums[chain])
            return sums

        def vector(j: ir.Value, *held: ir.Value) -> Sequence[ir.Value]:
            return multiplied(self.rows_of_vector, C.times(j, self.index(layout.rows_per_vector)), held)

        zeros = [self.constant(0.0, C.f32())] * (size * PAIR * CHAINS)
        sums = multiplied(list(layout.spare_rows()), self.index(0), self.each_vector(PAIR, vector, zeros))
        scales = [self.scale(sub, p) for p in range(PAIR)]
        points = [self.zero(sub, p) if self.sums is not None else None for p in range(PAIR)]
        for i, row in enumerate(rows):
            place, totals = self.offset(first, i), []
            for p, total in enumerate(self.get(accumulators, place)):
                chain = (i * PAIR + p) * CHAINS
                value = sum_pairs(sums[chain : chain + CHAINS])
                totals.append(self.scaled(value, scales[p], points[p], row, total))
            self.put(accumulators, place, totals)

    @property
    def rows_of_vector(self) -> list[int]:
        """Return the rows of K of the first vector of a sub-block, in the order of `values`."""
        layout = self.layout
        if layout.is_by_row or layout.is_by_word:
            return list(range(layout.rows_per_vector))
        return [4 * field * layout.vectors + i for field in range(layout.fields) for i in range(4)]
