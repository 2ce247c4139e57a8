"""Packing: copies of panels of columns, in the order in which the tiles read them."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.primitives.transposed import transpose_tile
from mirlo.targets.llvm.schedule.contraction.code import Code, Cursor
from mirlo.targets.llvm.schedule.contraction.padding import Convert
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.tiles import ColumnVector, Span, spans


class PanelCopy:
    """Packs the panel at a position of the column operand: one row of columns for each k-step."""

    def __init__(self, code: Code, plan: RegisterTilePlan, source: ir.Value, panel: ir.Value, convert: Convert):
        assert plan.packing is not None
        self.code = code
        self.plan = plan
        self.packing = plan.packing
        self.source = source
        self.panel = panel
        self.convert = convert
        self.stride = plan.columns.form.stride(plan.lane_axis)
        last = plan.packing.axes[-1] if plan.packing.axes else None
        along_sum = last is not None and plan.packing.source.stride(last) == 1
        self.transposes = self.stride != 1 and along_sum
        self.group_size = 1 if plan.group is None else plan.group.size

    def emit(self, at: Cursor, cut: list[ColumnVector]) -> None:
        """Pack the panel whose first column is at this cursor."""
        width = sum(piece.lanes for piece in cut) * self.group_size
        read = Cursor(self.code, self.packing.source, at.base, at.offset)
        write = Cursor.start(self.code, self.packing.target * width)
        self._level(self.packing.axes, read, write, cut)

    def _level(self, axes: list[LoopAxis], read: Cursor, write: Cursor, cut: list[ColumnVector]) -> None:
        if self.transposes and len(axes) == 1:
            for piece in cut:
                self._transpose_columns(axes[0], read.shift(piece.offset * self.stride), write, piece)
        elif axes:
            self._loop(axes, read, write, cut)
        else:
            for piece in cut:
                position = read.position(piece.offset * self.stride)
                self._store(self.code.load_lanes(self.source, position, self.stride, piece), write, 0, piece)

    def _loop(self, axes: list[LoopAxis], read: Cursor, write: Cursor, cut: list[ColumnVector]) -> None:
        """Emit a loop over the first of these axes, and the level of the others in it."""
        axis, *inner = axes
        self.code.loop(
            Span(0, axis.extent, 1),
            lambda i: self._level(inner, read.advance(axis, i), write.advance(axis, i), cut),
        )

    def _transpose_columns(self, axis: LoopAxis, read: Cursor, write: Cursor, piece: ColumnVector) -> None:
        """Pack columns that are contiguous along K: transpose squares of them in registers.

        What squares leave is a part of one where vectors may be masked, and lines of columns elsewhere.
        """

        def square(k: int, count: int) -> None:
            at, to = read.advance(axis, k), write.advance(axis, k)
            part = ColumnVector(0, piece.lanes, count)
            lines = [
                self.code.load_vector(self.source, at.position(column * self.stride), part)
                for column in _columns(piece)
            ]
            for i, row in enumerate(transpose_tile(lines, piece.lanes)[:count]):
                self._store(row, to, i * write.form.stride(axis), piece)

        if not isinstance(axis.extent, int) or not self.plan.machine.masked:
            whole = axis.extent // piece.lanes * piece.lanes
            if whole != 0:
                self.code.loop(Span(0, whole, piece.lanes), lambda k: square(k, piece.lanes))

            def line(k: int | ir.Value) -> None:
                position = read.advance(axis, k).position()
                values = self.code.load_lanes(self.source, position, self.stride, piece)
                self._store(values, write.advance(axis, k), 0, piece)

            if whole != axis.extent:
                self.code.loop(Span(whole, axis.extent, 1), line)
            return
        for span in spans(axis.extent, piece.lanes):
            self.code.loop(span, lambda k, count=span.size: square(k, count))

    def _store(self, value: ir.Value, write: Cursor, shift: int, piece: ColumnVector) -> None:
        position = write.position(shift + piece.offset)
        self.code.store_vector(self.convert(value, piece.lanes), self.panel, position, piece, whole=True)


def _columns(piece: ColumnVector) -> list[Dim]:
    """Return the columns of a vector; if their number is dynamic, the last column in place of those beyond it."""
    if isinstance(piece.active, int):
        return list(range(piece.active))
    return [D.minimum(column, piece.active - 1) for column in range(piece.lanes)]
