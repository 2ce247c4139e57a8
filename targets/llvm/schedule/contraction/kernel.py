"""The loops of a contraction: batches, panels of columns, rows, tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.dialects.tir.scalars import compare
from mirlo.passes.lower.parallel import PRIVATE_BYTES
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.buffers import CYCLES, TensorBuffers
from mirlo.passes.schedule.dynamic_tiles import (
    DynamicTiles,
    TiledRows,
    dynamic_tiles,
    loop_over_all,
)
from mirlo.passes.schedule.loops import either, if_any
from mirlo.targets.llvm.schedule.contraction.choices import count_of
from mirlo.targets.llvm.schedule.contraction.code import Code, Cursor, LoopIndex, may_divide_inside
from mirlo.targets.llvm.schedule.contraction.costs import expected_cycles
from mirlo.targets.llvm.schedule.contraction.cursors import Buffers, TileCursors
from mirlo.targets.llvm.schedule.contraction.dot import DotTiles
from mirlo.targets.llvm.schedule.contraction.grouped import (
    ExtendedPanelCopy,
    GroupedPanelCopy,
    GroupedTiles,
    MatrixTiles,
    prepared_rows,
)
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand
from mirlo.targets.llvm.schedule.contraction.orders import BOTH, ROWS
from mirlo.targets.llvm.schedule.contraction.packing import PanelCopy
from mirlo.targets.llvm.schedule.contraction.padding import PaddedCopy
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.short_dot import ShortDotTiles
from mirlo.targets.llvm.schedule.contraction.tile import Extent, KBlock, Tiles, converted
from mirlo.targets.llvm.schedule.contraction.tiles import ColumnVector, Span, spans
from mirlo.targets.llvm.schedule.cost import PANELS_TO_SHARE, REST_ROWS, REST_ROWS_IN_LOOPS

MOST_PANEL_BYTES = PRIVATE_BYTES // 2
"""Most bytes of a packed panel that each thread has for itself."""


class ContractionEmitter:
    """Emits the loops of a plan over the buffers of a function."""

    def __init__(self, plan: RegisterTilePlan, memory: TensorBuffers):
        self.plan = plan
        self.code = Code(memory)
        self.rows: int | None = None
        """Rows of the current block, if rows are processed in blocks."""
        self.rest: Dim | None = None
        """Rows behind whole blocks, if their number is dynamic."""
        self._tiled_rows: TiledRows | None = None

    def emit(self) -> None:
        """Emit everything at the insertion point."""
        self.prepare()
        self.emit_loops()

    def emit_loops(self) -> None:
        """Emit all loops at the insertion point, which may be in a branch."""
        start = TileCursors.start(self.code, self.plan)
        loops = self.plan.order_of_loops
        axis, size = loops.depth_axis, loops.depth_block
        if axis is None:
            self._row_blocks(start)
            return
        last = (axis.extent - 1) // size * size
        value, access = self.plan.contraction.writes[0]
        held = self.code.scratch(prod(access.shape), self.plan.contraction.product.accumulate_type)

        def part(k: LoopIndex) -> None:
            self.tiles.part = KBlock(axis.id, size, held, self._is_zero(k), is_last=False)
            self._row_blocks(self._from(start, axis, k))

        self.code.loop(Span(0, last, size), part)
        self.tiles.part = KBlock(axis.id, axis.extent - last, held, False, is_last=True)
        self._row_blocks(self._from(start, axis, last))

    def _from(self, start: TileCursors, axis: LoopAxis, k: LoopIndex) -> TileCursors:
        """Return the cursors for a K block; prefetches of the next panel are for the same block."""
        places = start.advance(axis, k)
        if start.ahead is None or places.ahead is None:
            return places
        step = self.plan.columns.form.stride(axis) - start.ahead.form.stride(axis)
        whole = Cursor(self.code, IndexExpr({axis.id: step})).advance(axis, k)
        ahead = places.ahead
        if whole.base is None:
            return replace(places, ahead=ahead.shift(whole.offset))
        base = whole.base if ahead.base is None else self.code.add(ahead.base, whole.base)
        return replace(places, ahead=replace(ahead, base=base))

    def _is_zero(self, value: LoopIndex) -> bool | ir.Value:
        """Return whether an index is 0: a bool, or a value."""
        if isinstance(value, int):
            return value == 0
        assert isinstance(value, ir.Value)
        return compare("eq", value, self.code.index(0))

    def _row_blocks(self, places: TileCursors) -> None:
        """Emit all rows at once, or block by block."""
        axis, size = self.plan.row_axis, self.plan.order_of_loops.row_block
        if axis is None or not size:
            self._all(places)
            return

        def block(i: LoopIndex, rows: int) -> None:
            self.rows = rows
            self._all(self._at_block(places, axis, i))
            self.rows = None

        if isinstance(axis.extent, int):
            parts = spans(axis.extent, size)
            self.code.loop_with_tail(parts, lambda i, number: block(i, parts[number].size), parallel=True)
            return
        whole = axis.extent // size * size
        self.code.loop(Span(0, whole, size), lambda i: block(i, size), parallel=True)
        if axis.extent % size == 0:
            return
        self.rest = axis.extent - whole
        if_any(
            self.code.index(whole), self.code.index(axis.extent), lambda i: self._all(self._at_block(places, axis, i))
        )

    def _at_block(self, places: TileCursors, axis: LoopAxis, i: LoopIndex) -> TileCursors:
        """Return the cursors for a block of rows, which prefetches the next panel anew."""
        return replace(places.advance(axis, i), ahead=places.ahead)

    def _all(self, places: TileCursors) -> None:
        """Emit all panels for the current rows."""
        plan = self.plan
        if plan.rows_first:
            self._nest(plan.row_loops, places, lambda at, _: self._column_loops(at, True), parallel=True)
        else:
            self._column_loops(places, not self.shares_rows or self.shares_both)

    def prepare(self) -> None:
        """Allocate all memory that is needed, outside of all loops."""
        plan, code = self.plan, self.code
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
                kind = ir.IntegerType.get_signless(16) if plan.group.is_stored else kind
            self.panel = code.scratch(plan.panel_rows * width, kind)
        self.source = source
        buffers = Buffers(
            self._side(plan.rows),
            source if self.panel is None else self.panel,
            source,
            [code.flat(value) for value, _ in plan.contraction.writes],
            [[None if r is None else code.flat(r.value) for r in stage.reads] for stage in plan.contraction.stages],
        )
        grouped = MatrixTiles if plan.group is not None and plan.group.is_matrix else GroupedTiles
        dots = ShortDotTiles if plan.is_short else DotTiles
        make_tiles = dots if plan.dot else Tiles if plan.group is None else grouped
        self.tiles = make_tiles(code, plan, buffers, packed=self.panel is not None)

    def row_spans(self) -> list[Span]:
        """Return the tiles along the rows."""
        extent = self.plan.row_axis.extent if self.rows is None and self.plan.row_axis is not None else self.rows
        return spans(extent, self.plan.tile_rows) if isinstance(extent, int) else []

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

    def _column_loops(self, places: TileCursors, parallel: bool) -> None:
        self._nest(self.plan.column_loops, places, self._panels, parallel)

    def _side(self, side: ContractionOperand) -> ir.Value:
        if side.padded_shape is None and not side.is_converted:
            return self.code.flat(side.access.value)
        group, lanes = self.plan.group, self.plan.lanes
        is_widened = side.is_converted and group is None
        kind = self.plan.contraction.product.accumulate_type if is_widened else side.access.element_type
        if side.is_converted and group is not None and group.widens:
            kind = ir.IntegerType.get_signless(16)

        def convert(element: ir.Value, lanes: int) -> ir.Value:
            if not side.is_converted:
                return element
            return (
                converted(self.plan, side, element, lanes)
                if group is None
                else prepared_rows(self.code, group, element)
            )

        lanes *= 1 if group is None else group.size
        return PaddedCopy(self.code, side, lanes, self.plan.machine.masked, convert, kind).emit()

    def _nest(
        self, axes: list[LoopAxis], places: TileCursors, inside: Callable[[TileCursors, bool], None], parallel: bool
    ) -> None:
        """Emit loops over these axes, the outermost parallel if allowed; `inside(places, parallel)`."""
        if not axes:
            inside(places, parallel)
            return
        axis, *inner = axes
        ragged = self.plan.contraction.ragged
        parts = [Span(0, axis.extent, 1)]
        if ragged is not None and axis.id == ragged.outer:
            parts = [Span(0, axis.extent - 1, 1), Span(axis.extent - 1, axis.extent, 1)]

        def one(i: LoopIndex, number: int) -> None:
            if number == 0:
                self._nest(inner, places.advance(axis, i), inside, parallel and may_divide_inside(axis.extent, i))
            else:
                assert ragged is not None
                self._panels(places.advance(axis, i), False, ragged.last)

        self.code.loop_with_tail(parts, one, parallel, apart=self.shares_rows)

    def _panels(self, places: TileCursors, parallel: bool, columns: int | None = None) -> None:
        extent = columns or self.plan.lane_axis.extent
        if not isinstance(extent, int):
            self._dynamic_panels(places, parallel, extent)
            return
        parts = spans(extent, self.plan.tile_columns)

        def panel(i: LoopIndex, number: int) -> None:
            cut = self.plan.cut(parts[number].size)
            self._panel(places.advance(self.plan.lane_axis, i), cut, parallel and isinstance(i, int))

        self.code.loop_with_tail(parts, panel, parallel, apart=self.shares_rows)

    def _dynamic_panels(self, places: TileCursors, parallel: bool, extent: Dim) -> None:
        """Emit panels of a dynamic number of columns: the last one masked, or column by column."""
        plan, width = self.plan, self.plan.tile_columns
        whole = extent // width * width
        if parallel and plan.packing is not None:

            def packed(i: ir.Value) -> None:
                at = places.advance(plan.lane_axis, i)
                sizes = (width, extent - whole)
                full, rest = (partial(self._panel, at, plan.cut(size), parallel) for size in sizes)
                either(compare("lt", i, self.code.index(whole)), full, rest)

            # One loop, inside of which the panel is: each thread has its own.
            self.code.loop(Span(0, extent, width), packed, parallel=True)
            return
        is_single = plan.dot and not (plan.is_short and plan.machine.masked)
        rest = (Span(whole, extent, 1), 1) if is_single else (Span(whole, extent, width), extent - whole)
        for span, columns in ((Span(0, whole, width), width), rest):
            cut = plan.cut(columns)

            def panel(i: ir.Value, cut: list[ColumnVector] = cut) -> None:
                self._panel(places.advance(plan.lane_axis, i), cut, parallel)

            if span.start != span.stop:
                self.code.loop(span, panel, parallel=parallel)

    def _panel(self, places: TileCursors, cut: list[ColumnVector], parallel: bool) -> None:
        plan = self.plan
        if plan.packing is not None:

            def convert(element: ir.Value, lanes: int) -> ir.Value:
                return converted(plan, plan.columns, element, lanes)

            assert self.panel is not None
            grouped = ExtendedPanelCopy if plan.group is not None and plan.group.is_stored else GroupedPanelCopy
            copy = PanelCopy if plan.group is None else grouped
            packed = copy(self.code, plan, self.source, self.panel, convert)
            packed.emit(places.columns, cut)
            width = sum(piece.lanes for piece in cut) * packed.group_size
            places = places.with_columns(Cursor.start(self.code, plan.packing.panel * width))
        loops = [] if plan.rows_first else plan.row_loops
        free = parallel or ((self.shares_rows or self.shares_both) and not plan.rows_first)
        self._nest(loops, places, lambda at, still: self._rows(at, cut, still), free)

    def _rows(self, places: TileCursors, cut: list[ColumnVector], parallel: bool) -> None:
        axis = self.plan.row_axis
        if axis is None:
            self.tiles.emit(places, Extent(1, cut))
            return
        if self.plan.dynamic_rows and self.rows is None:
            self._dynamic_rows(axis, places, cut, parallel)
            return
        parts = self.row_spans()

        def tile(i: LoopIndex, number: int) -> None:
            self.tiles.emit(places.advance(axis, i), Extent(parts[number].size, cut))

        self.code.loop_with_tail(parts, tile, parallel)

    def _dynamic_rows(self, axis: LoopAxis, places: TileCursors, cut: list[ColumnVector], parallel: bool) -> None:
        """Emit tiles of a dynamic number of rows."""
        rows = self.dynamic_tiles()

        def tile(first: ir.Value, size: int) -> None:
            self.tiles.emit(places.advance(axis, first), Extent(size, cut))

        def rest() -> None:
            if self.tiles.has_epilogue and self.tiles.epilogue.shares_rest(rows, cut):
                self.tiles.epilogue.finish_together(places, rows, cut, tile)
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
            extent = axis.extent if self.rest is None else self.rest
            count = self.code.index(extent)
            with ir.InsertionPoint.after(count.owner), self.code.buffers.location:
                if extent % size == 0:
                    whole = DynamicTiles(size, self.code.index(0), count, None)
                    self._tiled_rows = TiledRows(count, whole, (), count)
                else:
                    smaller = REST_ROWS_IN_LOOPS if len(self.plan.contraction.spatial) > 2 else REST_ROWS
                    self._tiled_rows = dynamic_tiles(count, size, smaller)
        return self._tiled_rows


def summary(plan: RegisterTilePlan) -> dict[str, int | list[int] | str]:
    """Return the parameters of the function's schedule attribute."""
    cycles = expected_cycles(plan)
    return {
        "tile": [plan.tile_rows, plan.tile_columns],
        "lanes": plan.lanes,
        "depth": prod(axis.extent for axis in plan.contraction.reduce),
        "dot": plan.dot,
        "packed": plan.packing is not None,
        **_order(plan),
        **({} if plan.group is None else {"instruction": plan.group.instruction}),
        "padded": plan.rows.padded_shape is not None or plan.columns.padded_shape is not None,
        **({} if cycles is None else {CYCLES: round(cycles)}),
    }


def _order(plan: RegisterTilePlan) -> dict[str, int | bool | str]:
    """Return the order of the loops, if it is not the default one."""
    loops = plan.order_of_loops
    result: dict[str, int | bool | str] = {}
    if loops.row_block:
        result["row_block"] = loops.row_block
    if loops.depth_axis is not None:
        result["depth_block"] = loops.depth_block
    if plan.free.swap and loops.rows_outside:
        result["rows_outside"] = True
    if loops.share is not None:
        result["share"] = ("panels", "rows", "both")[loops.share]
    return result
