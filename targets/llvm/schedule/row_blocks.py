"""Emission of two contractions with row operations between them, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm, prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.contraction.forms import LoopAxis
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import for_loop, loop_over_tiles, loop_with_tail
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.vector_memory import Piece
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.kernel import ContractionEmitter, Index, plus
from mirlo.targets.llvm.schedule.contraction.register_tile import RegisterTilePlan
from mirlo.targets.llvm.schedule.contraction.tiles import tile_ranges
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
        total = prod(extent for _, extent in self.loops) * self.extent
        for value in self.local:
            elements = prod(value.type.shape) // total * self.block
            memory.place(value, memory.buffers.scratch([elements], value.type.element_type))
        self.reuse_scores(memory)
        first, last = (BlockKernel(part, memory, self.order) for part in (self.first, self.last))
        rows = self.rows.row_by_row(memory)
        heads = prod(extent for _, extent in self.loops)
        step = lcm(self.first.plan.tile_columns, *self.rows.steps) if self.limit is not None else 1

        def blocks(head: Index) -> None:
            indices = self.indices(head)
            parts = tile_ranges(static_dim(self.extent), static_dim(self.block))

            def one(start: Index, part: int) -> None:
                count = parts[part].step
                needed = self._needed(start, count, step)
                first.limit, last.tiles.limits = needed, {axis.id: needed for axis in self.last.plan.reduce}
                first.run(indices, start, count)
                if self.rows.rows:
                    loop_over_tiles(0, count, 1, lambda r: rows.emit(r, needed))
                else:
                    rows.emit()
                last.run(indices, start, count)

            # The rest is part of the loop: scratch memory that is used inside of it only is private to each thread.
            loop_with_tail(parts, one, parallel=heads == 1)

        loop_over_tiles(0, heads, 1, blocks, parallel=True)

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

    def _needed(self, start: Index, count: Index, step: int) -> ir.Value | None:
        """Return the number of columns that a block of rows needs, in whole steps; None if it needs all."""
        if self.limit is None:
            return None
        scale, beyond = self.limit
        end = plus(plus(start, count), -1)
        if isinstance(end, int):
            needed = max(-(-(scale * end + beyond) // step), 1) * step
            return None if needed >= self.width else index(needed)
        last = Value(end) * scale + (beyond + step - 1)
        steps = create("arith.floordivsi", ir.IndexType.get(), last, index(step)).maximum(1)
        return (steps * step).minimum(index(self.width))

    def indices(self, head: Index) -> dict[Dim, Index]:
        """Return the index of each shared loop, by its step, from a linear index over all of them."""
        indices: dict[Dim, Index] = {}
        below: Dim = 1
        for i, (stride, extent) in reversed(list(enumerate(self.loops))):
            if isinstance(head, int):
                indices[stride] = head // static_dim(below) % static_dim(extent)
            else:
                value = Value(head) if below == 1 else Value(head).divide_unsigned(below)
                indices[stride] = value if i == 0 else value.remainder_unsigned(extent)
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

    def run(self, indices: Mapping[Dim, Index], start: Index, count: int) -> None:
        """Emit `count` rows from `start` on; `indices` are those of the shared loops."""
        self.rows_now = count
        self._panels(self._values(indices, start))

    def _values(self, indices: Mapping[Dim, Index], start: Index) -> LoopValues:
        """Return where the first row of a block is."""
        at: dict[int, Index] = {}
        for axis, stride in self.part.outer.values():
            at[axis.id] = 0
            for distance in self._between(stride, stride * axis.extent):
                at[axis.id] = plus(at[axis.id], times(indices[distance], distance // stride))
        row_axis = self.part.row_axis
        if row_axis is not None:
            at[BLOCK.id] = start
            for distance in self._between(self.order[0], row_axis.extent):
                at[BLOCK.id] = plus(at[BLOCK.id], times(indices[distance], distance))
        return LoopValues(at)

    def _between(self, low: Dim, high: Dim) -> Sequence[Dim]:
        """Return the steps of the loops that an axis is fused of, from its step to its end."""
        return self.order[self.order.index(low) : self.order.index(high)]

    def _panels(self, values: LoopValues) -> None:
        if self.limit is None:
            super()._panels(values)
            return
        axis = self.plan.lane_axis
        assert isinstance(axis.extent, int)
        for each in tile_ranges(axis.extent, self.plan.tile_columns):
            cut = self.plan.cut(each.step)
            end = create("arith.minsi", self.limit.type, self.limit, self.constants.index(each.stop))

            def panel(i: ir.Value, cut: list[Piece] = cut) -> None:
                self._panel(values.at({axis.id: i}), cut)

            for_loop(each.start, end, each.step, panel)

    def row_tiles(self) -> list[range]:
        return tile_ranges(self.rows_now, self.plan.tile_rows)


def times(value: Index, factor: Dim) -> Index:
    """Emit a multiple of an index; of an integer, return it."""
    if isinstance(value, int):
        return value * factor if isinstance(factor, int) else index(factor) * value
    return Value(value) * factor
