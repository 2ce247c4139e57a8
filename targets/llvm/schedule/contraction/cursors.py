"""The current position of a kernel in each of its buffers, and the buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.code import Code, Cursor, LoopIndex
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.stream import next_panel


@dataclass(frozen=True)
class TileCursors:
    """A cursor for every access of a kernel; loops advance all of them."""

    rows: Cursor
    columns: Cursor
    ahead: Cursor | None
    """What to prefetch for the next panel."""
    guards: tuple[Cursor, ...]
    """The index of the first tap of each guarded window."""
    writes: tuple[Cursor, ...]
    reads: tuple[tuple[Cursor | None, ...], ...]
    indices: tuple[tuple[Cursor, ...], ...]

    def map(self, move: Callable[[Cursor], Cursor]) -> TileCursors:
        return TileCursors(
            move(self.rows), move(self.columns), None if self.ahead is None else move(self.ahead),
            tuple(map(move, self.guards)),
            tuple(map(move, self.writes)),
            tuple(tuple(None if c is None else move(c) for c in group) for group in self.reads),
            tuple(tuple(map(move, group)) for group in self.indices),
        )  # fmt: skip

    def advance(self, axis: LoopAxis, value: LoopIndex) -> TileCursors:
        """Substitute a value, an integer or an index, for an axis."""
        return self.map(lambda cursor: cursor.advance(axis, value))

    def with_columns(self, columns: Cursor) -> TileCursors:
        """Replace the cursor of the column operand, by that of its packed panel."""
        return replace(self, columns=columns)

    @staticmethod
    def start(code: Code, plan: RegisterTilePlan) -> TileCursors:
        def at(form: IndexExpr) -> Cursor:
            return Cursor.start(code, form)

        ahead = next_panel(plan)
        return TileCursors(
            at(plan.rows.form), at(plan.columns.form), None if ahead is None else at(ahead),
            tuple(at(w.form) for w in plan.guards),
            tuple(map(at, plan.writes)),
            tuple(tuple(None if f is None else at(f) for f in group) for group in plan.reads),
            tuple(tuple(map(at, group)) for group in plan.indices),
        )  # fmt: skip


@dataclass(frozen=True)
class Buffers:
    """The flat buffers that a tile reads and writes."""

    rows: ir.Value
    columns: ir.Value
    """The column operand, or the copy of a panel."""
    streamed: ir.Value
    """The column operand as it is in memory, which is prefetched."""
    writes: list[ir.Value]
    reads: list[list[ir.Value | None]]
