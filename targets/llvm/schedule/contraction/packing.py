"""Packing: copies of panels of columns, in the order in which the tiles read them."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, Variable
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.loops import loop_over_tiles
from mirlo.passes.schedule.primitives.function_constants import FunctionConstants
from mirlo.passes.schedule.primitives.transposed import transpose_tile
from mirlo.passes.schedule.primitives.vector_memory import Piece, Position, VectorMemory
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.tiles import tile_ranges

Convert = Callable[[ir.Value, int], ir.Value]
"""Converts a vector of elements, with this many lanes, to the stored type."""


class PanelCopy(VectorMemory):
    """Packs the panel at a position of the column operand: one row of columns for each k-step."""

    def __init__(
        self,
        constants: FunctionConstants,
        plan: RegisterTilePlan,
        source: ir.Value,
        panel: ir.Value,
        convert: Convert,
    ):
        super().__init__(constants)
        assert plan.packing is not None
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

    def emit(self, at: Position, cut: list[Piece]) -> None:
        """Pack the panel whose first column is at this position."""
        width = sum(piece.lanes for piece in cut) * self.group_size
        read = Position(at.base, at.offset, _steps(self.packing.source))
        write = Position(None, self.packing.target.constant * width, _steps(self.packing.target * width))
        self._level(self.packing.axes, read, write, cut)

    def _level(self, axes: list[LoopAxis], read: Position, write: Position, cut: list[Piece]) -> None:
        if self.transposes and len(axes) == 1:
            for piece in cut:
                self._transpose_columns(axes[0], read.shift(piece.offset * self.stride), write, piece)
        elif axes:
            self._loop(axes, read, write, cut)
        else:
            for piece in cut:
                position = self.at(read, piece.offset * self.stride)
                self._store(self.load_lanes(self.source, position, self.stride, piece), write, 0, piece)

    def _loop(self, axes: list[LoopAxis], read: Position, write: Position, cut: list[Piece]) -> None:
        """Emit a loop over the first of these axes, and the level of the others in it."""
        axis, *inner = axes
        loop_over_tiles(
            0, axis.extent, 1,
            lambda i: self._level(inner, self.moved(read, axis.id, i), self.moved(write, axis.id, i), cut),
        )  # fmt: skip

    def _transpose_columns(self, axis: LoopAxis, read: Position, write: Position, piece: Piece) -> None:
        """Pack columns that are contiguous along K: transpose squares of them in registers.

        The remainder of the squares is a partial square where vectors may be masked, else lines of columns.
        """

        def square(k: int, count: int) -> None:
            at, to = self.moved(read, axis.id, k), self.moved(write, axis.id, k)
            part = Piece(0, piece.lanes, count)
            lines = [self.load(self.source, self.at(at, column * self.stride), part) for column in _columns(piece)]
            for i, row in enumerate(transpose_tile(lines, piece.lanes)[:count]):
                self._store(row, to, i * write.step(axis.id), piece)

        if not isinstance(axis.extent, int) or not self.plan.machine.masked:
            whole = axis.extent // piece.lanes * piece.lanes
            if whole != 0:
                loop_over_tiles(0, whole, piece.lanes, lambda k: square(k, piece.lanes))

            def line(k: int | ir.Value) -> None:
                position = self.at(self.moved(read, axis.id, k))
                values = self.load_lanes(self.source, position, self.stride, piece)
                self._store(values, self.moved(write, axis.id, k), 0, piece)

            if whole != axis.extent:
                loop_over_tiles(whole, axis.extent, 1, line)
            return
        for each in tile_ranges(axis.extent, piece.lanes):
            loop_over_tiles(each.start, each.stop, each.step, lambda k, count=each.step: square(k, count))

    def _store(self, value: ir.Value, write: Position, shift: Dim, piece: Piece) -> None:
        position = self.at(write, shift + piece.offset)
        self.store(self.convert(value, piece.lanes), self.panel, position, piece, whole=True)


def _steps(form: IndexExpr) -> dict[Variable, Dim]:
    """Return how far a position moves along each loop."""
    return {atom: count for atom, count in form.terms.items() if isinstance(atom, (int, str))}


def _columns(piece: Piece) -> list[Dim]:
    """Return the columns of a vector; if their number is dynamic, the last column in place of those beyond it."""
    if isinstance(piece.active, int):
        return list(range(piece.active))
    return [D.minimum(column, piece.active - 1) for column in range(piece.lanes)]
