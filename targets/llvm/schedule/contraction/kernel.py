"""The loops of a contraction: batches, panels of columns, rows, tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.passes.lower.parallel import PRIVATE_BYTES
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.dynamic_tiles import DynamicTiles, TiledRows, dynamic_tiles
from mirlo.passes.schedule.loops import loop_over_tiles, loop_with_tail
from mirlo.passes.schedule.primitives.function_constants import FunctionConstants
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.vector_memory import Piece, VectorMemory
from mirlo.targets.llvm.schedule.contraction.choices import count_of
from mirlo.targets.llvm.schedule.contraction.dot import DotTiles
from mirlo.targets.llvm.schedule.contraction.grouped import (
    GroupedPanelCopy,
    GroupedTiles,
    MatrixTiles,
)
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.orders import BOTH, ROWS
from mirlo.targets.llvm.schedule.contraction.packing import PanelCopy
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.short_dot import ShortDotTiles
from mirlo.targets.llvm.schedule.contraction.tile import Buffers, Extent, Tiles, converted
from mirlo.targets.llvm.schedule.contraction.tiles import tile_ranges
from mirlo.targets.llvm.schedule.cost import PANELS_TO_SHARE, REST_ROWS, REST_ROWS_IN_LOOPS

MOST_PANEL_BYTES = PRIVATE_BYTES // 2
"""Most bytes of a packed panel that each thread has for itself."""


Index = ir.Value | int


class ContractionEmitter:
    """Emits the loops of a plan inside of those over blocks of rows."""

    def __init__(self, plan: RegisterTilePlan, memory: TensorBuffers):
        self.plan = plan
        self.memory = memory
        self.constants = FunctionConstants(memory.buffers)
        self.vectors = VectorMemory(self.constants)
        self.rows: int | None = None
        """Rows of the current block, if rows are processed in blocks."""
        self._tiled_rows: TiledRows | None = None

    def prepare(self) -> None:
        """Allocate all memory that is needed, outside of all loops."""
        plan, memory = self.plan, self.memory
        source = self._side(plan.columns)
        self.panel: ir.Value | None = None
        if plan.packing is not None:
            columns, most = plan.lane_axis.extent, plan.tile_columns
            # Only less than a whole panel is divided here: a long axis would have as many vectors as elements allow.
            is_narrow = isinstance(columns, int) and columns < most
            width = min(most, sum(piece.lanes for piece in plan.cut(columns))) if is_narrow else most
            kind = plan.contraction.product.accumulate_type
            if plan.group is not None:
                width, kind = width * plan.group.size, plan.columns.access.element_type
            self.panel = memory.buffers.scratch([plan.panel_rows * width], kind)
        self.source = source
        buffers = Buffers(
            self._side(plan.rows),
            source if self.panel is None else self.panel,
            source,
            [memory.slot(value).buffer for value, _ in plan.contraction.writes],
            [
                [None if r is None else memory.slot(r.value).buffer for r in stage.reads]
                for stage in plan.contraction.stages
            ],
        )
        grouped = MatrixTiles if plan.group is not None and plan.group.is_matrix else GroupedTiles
        dots = ShortDotTiles if plan.is_short else DotTiles
        make_tiles = dots if plan.dot else Tiles if plan.group is None else grouped
        self.tiles = make_tiles(self.constants, memory, plan, buffers, packed=self.panel is not None)
        self.emit_tile: Callable[[LoopValues, Extent], None] = self.tiles.emit

    def row_tiles(self) -> list[range]:
        """Return the tiles along the rows."""
        extent = self.plan.row_axis.extent if self.rows is None and self.plan.row_axis is not None else self.rows
        return tile_ranges(extent, self.plan.tile_rows) if isinstance(extent, int) else []

    @property
    def shares_rows(self) -> bool:
        """Return whether threads divide the rows of each panel instead of the panels."""
        plan = self.plan
        if self.panel is not None and buffer_bytes(self.panel.type) > MOST_PANEL_BYTES:
            return True  # all threads share one packed panel: only the loops inside of the packing may be parallel
        if plan.order_of_loops.share is not None:
            return plan.order_of_loops.share == ROWS
        panels = count_of(plan.column_loops) * -(-D.estimate_dim(plan.lane_axis.extent) // plan.tile_columns)
        tiles = count_of(plan.row_loops)
        tiles *= -(-D.estimate_dim(plan.row_axis.extent) // plan.tile_rows) if plan.row_axis is not None else 1
        return panels < min(PANELS_TO_SHARE, tiles)

    @property
    def shares_both(self) -> bool:
        """Return whether panels and their rows are perfectly nested loops, which threads can divide as one."""
        plan = self.plan
        if plan.packing is not None or plan.dynamic_rows:
            return False
        if plan.order_of_loops.share is not None:
            return plan.order_of_loops.share == BOTH
        return True

    def _side(self, side: ContractionOperand) -> ir.Value:
        """Return the memory of an operand."""
        return self.memory.slot(side.access.value).buffer

    def _panels(self, values: LoopValues) -> None:
        """Emit all panels of columns."""
        extent = self.plan.lane_axis.extent
        if not isinstance(extent, int):
            self._dynamic_panels(values, extent)
            return
        parts = tile_ranges(extent, self.plan.tile_columns)

        def panel(i: LoopValue, number: int) -> None:
            cut = self.plan.cut(parts[number].step)
            self._panel(values.at({self.plan.lane_axis.id: i}), cut)

        loop_with_tail(parts, panel, False, apart=self.shares_rows)

    def _dynamic_panels(self, values: LoopValues, extent: Dim) -> None:
        """Emit panels of a dynamic number of columns: the last one masked, or column by column."""
        plan, width = self.plan, self.plan.tile_columns
        whole = extent // width * width
        is_single = plan.dot and not (plan.is_short and plan.machine.masked)
        rest = (extent, 1, 1) if is_single else (extent, width, extent - whole)
        for start, (stop, step, columns) in ((0, (whole, width, width)), (whole, rest)):
            cut = plan.cut(columns)

            def panel(i: ir.Value, cut: list[Piece] = cut) -> None:
                self._panel(values.at({plan.lane_axis.id: i}), cut)

            if start != stop:
                loop_over_tiles(start, stop, step, panel)

    def _panel(self, values: LoopValues, cut: list[Piece]) -> None:
        plan = self.plan
        if plan.packing is not None:

            def convert(element: ir.Value, lanes: int) -> ir.Value:
                return converted(plan, plan.columns, element, lanes)

            assert self.panel is not None
            copy = PanelCopy if plan.group is None else GroupedPanelCopy
            packed = copy(self.constants, plan, self.source, self.panel, convert)
            packed.emit(self.vectors.place(plan.columns.form, values.at({})), cut)
            self.tiles.columns = plan.packing.panel * (sum(piece.lanes for piece in cut) * packed.group_size)
        self._rows(values, cut, self.shares_rows or self.shares_both)

    def _rows(self, values: LoopValues, cut: list[Piece], parallel: bool) -> None:
        axis = self.plan.row_axis
        if axis is None:
            self.emit_tile(values, Extent(1, cut))
            return
        if self.plan.dynamic_rows and self.rows is None:
            self._dynamic_rows(axis, values, cut, parallel)
            return
        parts = self.row_tiles()

        def tile(i: Index, number: int) -> None:
            self.emit_tile(values.at({axis.id: i}), Extent(parts[number].step, cut))

        loop_with_tail(parts, tile, parallel)

    def _dynamic_rows(self, axis: LoopAxis, values: LoopValues, cut: list[Piece], parallel: bool) -> None:
        """Emit tiles of a dynamic number of rows."""
        rows = self.dynamic_tiles()

        def tile(first: ir.Value, size: int) -> None:
            self.emit_tile(values.at({axis.id: first}), Extent(size, cut))

        def rest() -> None:
            if self.tiles.sums is None and self.tiles.epilogue.shares_rest(rows, cut):
                behind = values.at({axis.id: 0})
                self.tiles.epilogue.finish_together(behind, rows, cut, tile)
                return
            rows.loop_over_smaller(tile)

        rows.whole.loop(partial(tile, size=rows.whole.size), parallel)
        rest()  # not worth dividing

    def dynamic_tiles(self) -> TiledRows:
        """Return the tiles of all rows, their bounds computed at the start of the function."""
        if self._tiled_rows is None:
            axis, size = self.plan.row_axis, self.plan.tile_rows
            assert axis is not None
            extent = axis.extent
            count = self.constants.index(extent)
            with ir.InsertionPoint.after(count.owner), self.memory.buffers.location:
                if extent % size == 0:
                    whole = DynamicTiles(size, self.constants.index(0), count, None)
                    self._tiled_rows = TiledRows(count, whole, (), count)
                else:
                    smaller = REST_ROWS_IN_LOOPS if len(self.plan.contraction.spatial) > 2 else REST_ROWS
                    self._tiled_rows = dynamic_tiles(count, size, smaller)
        return self._tiled_rows


def plus(a: Index, b: Index) -> Index:
    """Emit the sum of two indices; of integers, return it."""
    if isinstance(a, int):
        return a + b if isinstance(b, int) else Value(b) + a
    return Value(a) + b
