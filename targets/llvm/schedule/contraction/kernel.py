"""The loops of a contraction: batches, panels of columns, rows, tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value, compare
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.passes.lower.parallel import PRIVATE_BYTES
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.dynamic_tiles import DynamicTiles, TiledRows, dynamic_tiles, loop_over_all
from mirlo.passes.schedule.loops import either, loop_over_tiles, loop_with_tail
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

ROW_IN_BLOCK = "row of block"
"""What a prefetch of the next panel moves along in a block of rows: the row in the block."""
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

    def _ahead(self, form: IndexExpr) -> IndexExpr:
        """Return where to prefetch in blocks of rows, each of which begins anew."""
        terms, axis = dict(form.terms), self.plan.row_axis
        if self.plan.order_of_loops.row_block and axis is not None and axis.id in terms:
            terms[ROW_IN_BLOCK] = terms.pop(axis.id)
        return IndexExpr(terms, form.constant)

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
        if self.tiles.ahead is not None:
            self.tiles.ahead = self._ahead(self.tiles.ahead)

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
        if plan.packing is not None or plan.rows_first or plan.dynamic_rows:
            return False
        if plan.order_of_loops.share is not None:
            return plan.order_of_loops.share == BOTH
        return True

    def _column_loops(self, values: LoopValues, parallel: bool) -> None:
        self._nest(self.plan.column_loops, values, self._panels, parallel)

    def _side(self, side: ContractionOperand) -> ir.Value:
        """Return the memory of an operand."""
        return self.memory.slot(side.access.value).buffer

    def _nest(
        self, axes: list[LoopAxis], values: LoopValues, inside: Callable[[LoopValues, bool], None], parallel: bool
    ) -> None:
        """Emit loops over these axes, the outermost parallel if allowed; `inside(values, parallel)`."""
        if not axes:
            inside(values, parallel)
            return
        axis, *inner = axes
        ragged = self.plan.contraction.ragged

        def one(i: LoopValue, number: int = 0) -> None:
            if number == 0:
                still = parallel and may_divide_inside(axis.extent, i)
                self._nest(inner, values.at({axis.id: i}), inside, still)
            else:
                assert ragged is not None
                self._panels(values.at({axis.id: i}), False, ragged.last)

        if ragged is None or axis.id != ragged.outer:
            loop_over_tiles(0, axis.extent, 1, one, parallel=parallel)
            return
        parts = [range(axis.extent - 1), range(axis.extent - 1, axis.extent)]
        loop_with_tail(parts, one, parallel, apart=self.shares_rows)

    def _panels(self, values: LoopValues, parallel: bool, columns: int | None = None) -> None:
        extent = columns or self.plan.lane_axis.extent
        if not isinstance(extent, int):
            self._dynamic_panels(values, parallel, extent)
            return
        parts = tile_ranges(extent, self.plan.tile_columns)

        def panel(i: LoopValue, number: int) -> None:
            cut = self.plan.cut(parts[number].step)
            self._panel(values.at({self.plan.lane_axis.id: i}), cut, parallel and isinstance(i, int))

        loop_with_tail(parts, panel, parallel, apart=self.shares_rows)

    def _dynamic_panels(self, values: LoopValues, parallel: bool, extent: Dim) -> None:
        """Emit panels of a dynamic number of columns: the last one masked, or column by column."""
        plan, width = self.plan, self.plan.tile_columns
        whole = extent // width * width
        if parallel and plan.packing is not None:

            def packed(i: ir.Value) -> None:
                at = values.at({plan.lane_axis.id: i})
                sizes = (width, extent - whole)
                full, rest = (partial(self._panel, at, plan.cut(size), parallel) for size in sizes)
                either(compare("lt", i, self.constants.index(whole)), full, rest)

            # One loop, inside of which the panel is: each thread has its own.
            loop_over_tiles(0, extent, width, packed, parallel=True)
            return
        is_single = plan.dot and not (plan.is_short and plan.machine.masked)
        rest = (extent, 1, 1) if is_single else (extent, width, extent - whole)
        for start, (stop, step, columns) in ((0, (whole, width, width)), (whole, rest)):
            cut = plan.cut(columns)

            def panel(i: ir.Value, cut: list[Piece] = cut) -> None:
                self._panel(values.at({plan.lane_axis.id: i}), cut, parallel)

            if start != stop:
                loop_over_tiles(start, stop, step, panel, parallel=parallel)

    def _panel(self, values: LoopValues, cut: list[Piece], parallel: bool) -> None:
        plan = self.plan
        if plan.packing is not None:

            def convert(element: ir.Value, lanes: int) -> ir.Value:
                return converted(plan, plan.columns, element, lanes)

            assert self.panel is not None
            copy = PanelCopy if plan.group is None else GroupedPanelCopy
            packed = copy(self.constants, plan, self.source, self.panel, convert)
            packed.emit(self.vectors.place(plan.columns.form, values.at({})), cut)
            self.tiles.columns = plan.packing.panel * (sum(piece.lanes for piece in cut) * packed.group_size)
        loops = [] if plan.rows_first else plan.row_loops
        free = parallel or ((self.shares_rows or self.shares_both) and not plan.rows_first)
        self._nest(loops, values, lambda at, still: self._rows(at, cut, still), free)

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
            self.emit_tile(self._at_row(values, axis, i), Extent(parts[number].step, cut))

        loop_with_tail(parts, tile, parallel)

    def _at_row(self, values: LoopValues, axis: LoopAxis, i: Index) -> LoopValues:
        """Return the values at a row of the block."""
        return values.at({axis.id: i, ROW_IN_BLOCK: i})

    def _dynamic_rows(self, axis: LoopAxis, values: LoopValues, cut: list[Piece], parallel: bool) -> None:
        """Emit tiles of a dynamic number of rows."""
        rows = self.dynamic_tiles()

        def tile(first: ir.Value, size: int) -> None:
            self.emit_tile(self._at_row(values, axis, first), Extent(size, cut))

        def rest() -> None:
            if self.tiles.sums is None and self.tiles.epilogue.shares_rest(rows, cut):
                behind = values.at({axis.id: 0})
                self.tiles.epilogue.finish_together(behind, rows, cut, tile)
                return
            rows.loop_over_smaller(tile)

        whole = partial(tile, size=rows.whole.size)
        if parallel and self.plan.row_loops:  # inside of loops that threads divide, too: nothing may be beside it
            loop_over_all(rows, whole, rest, parallel=True)
        else:
            rows.whole.loop(whole, parallel)
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


def may_divide_inside(extent: Dim, position: LoopValue) -> bool:
    """Return whether threads may divide the loops inside of one, at an index, too.

    It has a single iteration, or as many as a call says, which may be one: the batch of most calls is.
    """
    return isinstance(position, int) or not isinstance(extent, int)
