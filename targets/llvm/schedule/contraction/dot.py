"""Tiles of dot products: the lanes run along K.

For operands that are both contiguous along the reduction and have too little reuse to be worth transposing: a vector
times a transposed matrix, a matrix times a vector, a single dot product.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.passes.schedule.blocks.contraction.body import emit_init
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.loops import loop_over_tiles
from mirlo.passes.schedule.primitives.dot_tile_code import store_sums, widen
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.vector_memory import Piece, Position, pieces_of
from mirlo.targets.llvm.schedule.contraction.tile import Extent, Tiles, multiply_add


class DotTiles(Tiles):
    """Tiles of rows x columns dot products, each accumulated in a vector."""

    def emit(self, values: LoopValues, extent: Extent) -> None:
        """Emit a tile: accumulators, epilogue, stores."""
        values = values.at({})
        rows, cut = extent.rows, extent.cut
        columns = sum(piece.active for piece in cut if isinstance(piece.active, int))
        kind = self.plan.contraction.product.accumulate_type
        sums = [self.zeros(self.plan.lanes, kind) for _ in range(rows * columns)]
        operands = self.operands(values)
        sums = self._walk(self.plan.reduce, operands.rows, operands.columns, sums, columns)
        # Whole vectors of sums are stored, also after the last one.
        lanes = self.plan.lanes
        held = self.memory.buffers.scratch([-(-self.plan.tile_rows * self.plan.tile_columns // lanes) * lanes], kind)
        start = emit_init(self.plan.contraction.block, kind)
        for first in range(0, len(sums), lanes):
            store_sums(self, sums[first : first + lanes], start, held, first)
        for r in range(rows):
            for piece in cut:
                position = self.index(r * columns + piece.offset)
                self.epilogue.store_results(values, r, piece, self.load(held, position, piece), {}, {})

    def _walk(
        self, axes: list[LoopAxis], rows: Position, columns: Position, sums: list[ir.Value], count: int
    ) -> list[ir.Value]:
        axis, *inner = axes

        def inside(i: LoopValue) -> tuple[Position, Position]:
            return self.moved(rows, axis.id, i), self.moved(columns, axis.id, i)

        if inner:
            return loop_over_tiles(
                0, axis.extent, 1, lambda i, *held: self._walk(inner, *inside(i), list(held), count), sums
            )
        lanes = self.plan.lanes
        whole = axis.extent // lanes * lanes
        if whole != 0:
            piece = Piece(0, lanes, lanes)
            sums = loop_over_tiles(
                0, whole, lanes, lambda i, *held: self._add(*inside(i), list(held), count, piece), sums
            )
        rest = axis.extent - whole
        open_end = [] if isinstance(rest, int) else [Piece(0, lanes, rest)]
        for piece in open_end or pieces_of(rest, lanes, self.plan.machine.masked):
            sums = self._add(rows.shift(whole), columns.shift(whole), sums, count, piece)
        return sums

    def _add(self, rows: Position, columns: Position, sums: list[ir.Value], count: int, piece: Piece) -> list[ir.Value]:
        """Add a vector of products to each accumulator; a partial vector is padded with zeros."""
        row_stride, lane_axis = self.row_stride(rows), self.plan.lane_axis
        left_stride, right_stride = rows.step(lane_axis.id), columns.step(lane_axis.id)
        left: dict[Dim, ir.Value] = {}
        right: dict[Dim, ir.Value] = {}
        following = []
        for i, total in enumerate(sums):
            r, c = divmod(i, count)
            x, y = r * row_stride + c * left_stride, c * right_stride
            if x not in left:
                left[x] = widen(self, self.read(self.plan.rows, self.buffers.rows, rows, x, 1, piece), self.plan.lanes)
            if y not in right:
                loaded = self.read(self.plan.columns, self.buffers.columns, columns, y, 1, piece)
                right[y] = widen(self, loaded, self.plan.lanes)
            following.append(multiply_add(left[x], right[y], total))
        return following
