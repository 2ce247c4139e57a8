"""Emission of two contractions with row operations between them, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm, prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import for_loop
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.code import Code, LoopIndex
from mirlo.targets.llvm.schedule.contraction.cursors import TileCursors
from mirlo.targets.llvm.schedule.contraction.kernel import ContractionEmitter
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.tiles import ColumnVector, Span, spans
from mirlo.targets.llvm.schedule.rows import RowsPlan

BLOCK, KEPT = LoopAxis(-3, 1, False), LoopAxis(-4, 1, False)
"""Axes that stand for the first row of a block, and for the first of its stored rows."""


@dataclass(frozen=True)
class RowBlockContraction:
    """A contraction planned for a block of rows."""

    plan: RegisterTilePlan
    """Without loops over rows or columns except those of tiles; positions in values of the block are relative to it."""
    outer: Mapping[int, tuple[LoopAxis, Dim]]
    """The outer axes, by id, with their steps in rows."""
    row_axis: LoopAxis | None


@dataclass(frozen=True)
class BlockedPlan:
    """The plan of two contractions, and the row operations between them, block by block."""

    first: RowBlockContraction
    rows: RowsPlan
    last: RowBlockContraction
    loops: tuple[tuple[Dim, Dim], ...]
    """The shared loops outside of the blocks: their steps in rows, and their extents."""
    extent: Dim
    """Rows within these loops. All sizes are static, except in plans for dynamic sizes."""
    block: Dim
    local: tuple[ir.Value, ...]
    """Values that are stored for one block only."""
    weights: ir.Value
    width: Dim
    """Columns of the weights."""
    limit: tuple[int, Dim] | None = None
    """Row r needs no column from `limit[0] * r + limit[1]` on: the mask hides it."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit all blocks at the insertion point."""
        code = Code(memory)
        total = prod(extent for _, extent in self.loops) * self.extent
        for value in self.local:
            elements = prod(value.type.shape) // total * self.block
            memory.place(value, memory.buffers.scratch([elements], value.type.element_type))
        self.reuse_scores(memory)
        first, last = (BlockKernel(part, memory, self.order) for part in (self.first, self.last))
        rows = self.rows.row_by_row(memory)
        heads = prod(extent for _, extent in self.loops)
        step = lcm(self.first.plan.tile_columns, *self.rows.steps) if self.limit is not None else 1

        def blocks(head: ir.Value) -> None:
            indices = self.indices(head, code)
            parts = spans(static_dim(self.extent), static_dim(self.block))

            def one(start: LoopIndex, part: int) -> None:
                count = parts[part].size
                needed = self._needed(code, start, count, step)
                first.limit, last.tiles.limits = needed, {axis.id: needed for axis in self.last.plan.reduce}
                first.run(indices, start, count)
                if self.rows.rows:
                    code.loop(Span(0, count, 1), lambda r: rows.emit(r, needed))
                else:
                    rows.emit()
                last.run(indices, start, count)

            # The rest is part of the loop: scratch memory that is used inside of it only is private to each thread.
            code.loop_with_tail(parts, one, parallel=heads == 1)

        code.loop(Span(0, heads, 1), blocks, parallel=True)

    @property
    def order(self) -> tuple[Dim, ...]:
        """Return the steps of all loops over rows, the innermost first, and the number of rows."""
        strides = [stride for stride, _ in reversed(self.loops)]
        return (*strides, self.loops[0][0] * self.loops[0][1]) if self.loops else (self.extent,)

    def describe(self) -> dict[str, Dim | bool | list[int]]:
        return {
            "block": self.block,
            "tile": [self.first.plan.tile_rows, self.first.plan.tile_columns],
            "last_tile": [self.last.plan.tile_rows, self.last.plan.tile_columns],
            **({} if self.limit is None else {"hidden": True}),
        }

    def _needed(self, code: Code, start: LoopIndex, count: LoopIndex, step: int) -> ir.Value | None:
        """Return the number of columns that a block of rows needs, in whole steps; None if it needs all."""
        if self.limit is None:
            return None
        scale, beyond = self.limit
        if isinstance(start, int) and isinstance(count, int):
            needed = max(-(-(scale * (start + count - 1) + beyond) // step), 1) * step
            return None if needed >= self.width else code.index(needed)
        index = ir.IndexType.get()
        assert isinstance(start, ir.Value)
        if isinstance(count, int):
            last = code.add(code.scaled(start, scale), code.index(scale * (count - 1) + beyond + step - 1))
        else:
            assert isinstance(count, ir.Value)
            last = code.add(code.scaled(code.add(start, count), scale), code.index(beyond - scale + step - 1))
        steps = create("arith.maxsi", index, create("arith.floordivsi", index, last, code.index(step)), code.index(1))
        return create("arith.minsi", index, code.scaled(steps, step), code.index(self.width))

    def indices(self, head: LoopIndex, code: Code) -> dict[Dim, LoopIndex]:
        """Return the index of each shared loop, by its step, from a linear index over all of them."""
        indices: dict[Dim, LoopIndex] = {}
        below: Dim = 1
        index = ir.IndexType.get()
        for i, (stride, extent) in reversed(list(enumerate(self.loops))):
            if not isinstance(head, ir.Value):
                indices[stride] = head // below % extent
            else:
                value = head if below == 1 else create("arith.divui", index, head, code.index(below))
                indices[stride] = value if i == 0 else create("arith.remui", index, value, code.index(extent))
            below *= extent
        return indices

    def reuse_scores(self, memory: TensorBuffers) -> None:
        """Store the weights in the buffer of the scores, which are read for the last time when weights are computed."""
        target = self.rows.found.walk_of(self.weights)
        for value in self.local:
            if value == self.weights or value.type != self.weights.type or self.rows.found.walk_of(value) is not None:
                continue
            readers = [
                i for i, walk in enumerate(self.rows.found.walks)
                if any(operand.value == value for block in walk.blocks for operand in block.inputs)
            ]  # fmt: skip
            if target is not None and readers and max(readers) <= target:
                memory.share(self.weights, value)
                return


class BlockKernel(ContractionEmitter):
    """A contraction that is emitted for blocks of rows, at positions given by outer loops."""

    def __init__(self, part: RowBlockContraction, memory: TensorBuffers, order: tuple[Dim, ...]):
        super().__init__(part.plan, memory)
        self.part = part
        self.order = order
        self.rows_now = 1
        self.limit: ir.Value | None = None
        """The end of the columns for these rows, an index; None for all."""
        self.prepare()

    def run(self, indices: Mapping[Dim, LoopIndex], start: LoopIndex, count: int) -> None:
        """Emit `count` rows from `start` on; `indices` are those of the shared loops."""
        self.rows_now = count
        self._panels(self._places(indices, start), False)

    def _places(self, indices: Mapping[Dim, LoopIndex], start: LoopIndex) -> TileCursors:
        """Return the position of the first row of a block."""
        places = TileCursors.start(self.code, self.plan)
        for axis, stride in self.part.outer.values():
            for distance in self._between(stride, stride * axis.extent):
                places = places.advance(axis, self._times(indices[distance], distance // stride))
        row_axis = self.part.row_axis
        if row_axis is not None:
            places = places.advance(BLOCK, start)
            for distance in self._between(self.order[0], row_axis.extent):
                places = places.advance(BLOCK, self._times(indices[distance], distance))
        return places

    def _between(self, low: Dim, high: Dim) -> Sequence[Dim]:
        """Return the steps of the loops that an axis is fused of, from its step to its end."""
        return self.order[self.order.index(low) : self.order.index(high)]

    def _times(self, value: LoopIndex, factor: Dim) -> LoopIndex:
        return self.code.scaled(value, factor) if isinstance(value, ir.Value) else value * factor

    def _panels(self, places: TileCursors, parallel: bool, columns: int | None = None) -> None:
        if self.limit is None:
            super()._panels(places, parallel, columns)
            return
        axis = self.plan.lane_axis
        assert isinstance(axis.extent, int)
        for span in spans(axis.extent, self.plan.tile_columns):
            cut = self.plan.cut(span.size)
            end = create("arith.minsi", self.limit.type, self.limit, self.code.index(span.stop))

            def panel(i: ir.Value, cut: list[ColumnVector] = cut) -> None:
                self._panel(places.advance(axis, i), cut, False)

            for_loop(span.start, end, span.size, panel)

    def row_spans(self) -> list[Span]:
        return spans(self.rows_now, self.plan.tile_rows)
