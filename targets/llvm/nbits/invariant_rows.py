"""Products of f32 rows with packed weights whose sums have one order, for any number of rows.

Each row has the same independent sums of a sub-block, which are scaled when they are complete. The kernel for few rows
reads weights from their panel, that for many rows converts those of a panel once, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.targets.llvm.nbits import code as C
from mirlo.targets.llvm.nbits.float_rows import FloatKernel, sum_pairs
from mirlo.targets.llvm.nbits.kernels import PAIR, SubBlock, few_rows

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

    def conversion(self, sub: SubBlock, panel: int) -> Callable[[ir.Value], ir.Value]:
        """Return weights relative to the middle of their codes: sums are scaled when they are complete."""
        return lambda weights: weights

    def add_tile(
        self, sub: SubBlock, top: ir.Value, first: ir.Value, size: int, accumulators: ir.Value, scratch: ir.Value
    ) -> None:
        """Multiply `size` rows with the converted weights in the order of the kernel for few rows."""
        layout = self.layout
        rows = [self.row_of(sub, C.add(top, self.offset(first, i))) for i in range(size)]
        own = [C.times(row, self.index(layout.sub)) for row in rows]

        def vector(j: ir.Value, *held: ir.Value) -> Sequence[ir.Value]:
            start = C.times(j, self.index(layout.rows_per_vector))
            return self.add_converted(own, start, self.rows_of_vector, range(PAIR), held, scratch)

        zeros = [self.constant(0.0, C.f32())] * (size * PAIR * CHAINS)
        sums = self.each_vector(PAIR, vector, zeros)
        sums = self.add_converted(own, self.index(0), list(layout.spare_rows()), range(PAIR), sums, scratch)
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
