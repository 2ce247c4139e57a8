"""Emission of two contractions with row operations between them, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import lcm, prod

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import Value, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import loop_over_tiles, loop_with_tail
from mirlo.passes.schedule.primitives.index import LoopValue
from mirlo.passes.schedule.primitives.memory import PartLayout, PartLayouts
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.shifted_tiles import STORED_ROW, RowSpan, plus
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction, TiledLoops
from mirlo.targets.llvm.schedule.contraction.tiles import tile_ranges
from mirlo.targets.llvm.schedule.rows import RowsPlan

Index = ir.Value | int


@dataclass(frozen=True)
class BlockLoops:
    """The loops of a contraction, arranged for blocks of rows."""

    s: Schedule
    around: TiledLoops
    outer: dict[str, tuple[Dim, Dim]]
    """The loops outside of the blocks, with their steps in rows and their iterations."""
    is_counted: bool
    """Whether the loop over tiles computes as many rows as a block has, from one on; else it computes all rows."""


@dataclass(frozen=True)
class RowBlockContraction:
    """A contraction planned for a block of rows."""

    plan: TiledContraction
    group: BlockGroup[Machine]
    form: IndexExpr
    """The position, by the axes, of an element of the rows that it reads as the second one, or writes."""
    loops: BlockLoops

    @property
    def rows(self) -> Dim:
        """Return the iterations of the loop over rows."""
        axis = self.plan.tile.row_axis
        return 1 if axis is None else axis.extent


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
        for value in self.local:
            elements = elements_of_row(value, self.total) * self.block
            memory.place(value, memory.buffers.scratch([elements], value.type.element_type))
        self.reuse_scores(memory)
        first, last = (BlockTiles(part, self, memory) for part in (self.first, self.last))
        rows = self.rows.row_by_row(memory)
        heads = prod(extent for _, extent in self.loops)
        step = self.columns_at_once

        def blocks(head: Index) -> None:
            indices = self.indices(head)
            parts = tile_ranges(static_dim(self.extent), static_dim(self.block))

            def one(start: Index, part: int) -> None:
                count = parts[part].step
                needed = self._needed(start, count, step)
                first.emit(indices, start, count, 0, columns=needed)
                if self.rows.rows:
                    loop_over_tiles(0, count, 1, lambda r: rows.emit(r, needed))
                else:
                    rows.emit()
                last.emit(indices, start, count, 0, depth=needed)

            # The rest is part of the loop: scratch memory that is used inside of it only is private to each thread.
            loop_with_tail(parts, one, parallel=heads == 1)

        loop_over_tiles(0, heads, 1, blocks, parallel=True)

    @property
    def total(self) -> Dim:
        """Return the rows of all blocks."""
        return D.product([extent for _, extent in self.loops]) * self.extent

    @property
    def columns_at_once(self) -> int:
        """Return the columns that all loops compute at a time, if not all columns are computed."""
        return lcm(self.first.plan.tile.columns, *self.rows.steps) if self.limit is not None else 1

    @property
    def order(self) -> tuple[Dim, ...]:
        """Return the steps of all loops over rows, the innermost first, and the number of rows."""
        strides = [stride for stride, _ in reversed(self.loops)]
        return (*strides, self.loops[0][0] * self.loops[0][1]) if self.loops else (self.extent,)

    def describe(self) -> dict[str, Dim | bool | list[int]]:
        return {
            "block": self.block,
            "tile": [self.first.plan.tile.rows, self.first.plan.tile.columns],
            "last_tile": [self.last.plan.tile.rows, self.last.plan.tile.columns],
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


class BlockTiles:
    """Emits the tiles of a contraction, block of rows by block of rows."""

    def __init__(
        self, part: RowBlockContraction, plan: BlockedPlan, memory: TensorBuffers, others: PartLayouts | None = None
    ) -> None:
        """Take a contraction of a plan; `others` are values, besides those of a block, of which memory has a part."""
        self._loops, self._rows, self._order, self._memory = part.loops, part.rows, plan.order, memory
        outer = frozenset([*self._loops.outer, *([self._loops.around.tiles] if self._loops.is_counted else [])])
        layouts: dict[ir.Value | None, PartLayout] = {
            value: PartLayout(outer, IndexExpr({STORED_ROW: elements_of_row(value, plan.total)}))
            for value in plan.local
        }
        self._emitter = self._loops.s.part_emitter({**layouts, **(others or {})})

    def elsewhere(self, value: ir.Value, buffer: ir.Value) -> BlockTiles:
        """Return an emitter of the same tiles, with a value in another buffer."""
        result = copy(self)
        result._emitter = self._emitter.elsewhere(self._memory, value, buffer)
        return result

    def emit(
        self,
        indices: Mapping[Dim, Index],
        start: Index,
        count: Index,
        stored: Index,
        columns: ir.Value | None = None,
        depth: ir.Value | None = None,
        others: Mapping[str, LoopValue] | None = None,
    ) -> None:
        """Emit `count` rows from `start` on; `indices` are those of the shared loops, `others` those of other loops.

        `stored` is the row of the memory of a block where the first one is; the loops over columns and along K end at
        `columns` and `depth`, if these are given.
        """
        loops = self._loops
        at: dict[str, LoopValue] = {name: self._index(indices, *each) for name, each in loops.outer.items()}
        ends = {} if columns is None else {loops.around.panel: columns}
        ends |= {} if depth is None else dict.fromkeys(loops.around.over, depth)
        spans: dict[str, RowSpan] = {}
        if loops.is_counted:
            first = start
            for distance in self._between(self._order[0], self._rows):
                first = plus(first, times(indices[distance], distance))
            spans[loops.around.tiles] = RowSpan(first, count, stored)
        else:
            at[STORED_ROW] = stored
        self._emitter.emit(self._memory, indices={**at, **(others or {})}, ends=ends, spans=spans)

    def _index(self, indices: Mapping[Dim, Index], stride: Dim, extent: Dim) -> Index:
        """Return the index of a loop that steps by this many rows."""
        total: Index = 0
        for distance in self._between(stride, stride * extent):
            total = plus(total, times(indices[distance], distance // stride))
        return total

    def _between(self, low: Dim, high: Dim) -> Sequence[Dim]:
        """Return the steps of the loops that one is fused of, from its step to its end."""
        return self._order[self._order.index(low) : self._order.index(high)]


def elements_of_row(value: ir.Value, total: Dim) -> Dim:
    """Return the elements of a value per row, for this many rows."""
    return D.product(dims_of(value.type)) // total


def times(value: Index, factor: Dim) -> Index:
    """Emit a multiple of an index; of an integer, return it."""
    if isinstance(value, int):
        return value * factor if isinstance(factor, int) else index(factor) * value
    return Value(value) * factor
