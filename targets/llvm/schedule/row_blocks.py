"""Emission of two contractions with row operations between them, a block of rows at a time.

Where sizes are static, threads divide the loops outside of blocks, or the blocks. Where the number of rows or of
columns is dynamic, blocks have a fixed number of rows, the last one fewer, and the scores of a block as many columns as
there are keys. Their memory cannot be on a thread's stack then: each thread has a slot of one shared buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import lcm, prod

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import Value, compare, emit_constant, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.schedule.blocks.group import BlockGroup
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.loops import either, for_loop, loop_over_tiles, loop_with_tail, store
from mirlo.passes.schedule.primitives.index import LoopValue
from mirlo.passes.schedule.primitives.memory import PartLayout, PartLayouts
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.shifted_tiles import STORED_ROW, RowSpan, plus
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.tiled_contraction import TiledContraction, TiledLoops
from mirlo.targets.llvm.schedule.contraction.tiles import tile_ranges
from mirlo.targets.llvm.schedule.rows import RowLoops, RowsPlan

Index = ir.Value | int
_ADDI = 1
"""The sum of integers as the kind of `memref.atomic_rmw`."""


@dataclass(frozen=True)
class RowBlockContraction:
    """A contraction planned for a block of rows."""

    plan: TiledContraction
    group: BlockGroup[Machine]
    form: IndexExpr
    """The position, by the axes, of an element of the rows that it reads as the second one, or writes."""

    @property
    def rows(self) -> Dim:
        """Return the iterations of the loop over rows."""
        axis = self.plan.tile.row_axis
        return 1 if axis is None else axis.extent


@dataclass(frozen=True)
class AttentionStages:
    """Two products and the rows between them."""

    group: BlockGroup[Machine]
    """Their blocks, and the values that are stored, of a block of rows or all of them."""
    first: RowBlockContraction
    rows: RowsPlan
    last: RowBlockContraction
    width: Dim
    """Columns of the rows between them."""


@dataclass(frozen=True)
class ContractionNest:
    """The loops of a contraction in the tree of an attention, arranged for blocks of rows."""

    around: TiledLoops
    outer: dict[str, tuple[Dim, Dim]]
    """The loops outside of the blocks, with their steps in rows and their iterations."""
    is_counted: bool
    """Whether the loop over tiles computes as many rows as a block has, from one on; else it computes all rows."""

    @property
    def outside(self) -> list[str]:
        """Return the loops outside of a block of rows."""
        return [*self.outer, *([self.around.tiles] if self.is_counted else [])]


@dataclass(frozen=True)
class AttentionLoops:
    """The loops of an attention as one tree: a nest of each product, and of the rows between them."""

    s: Schedule
    first: ContractionNest
    rows: RowLoops
    last: ContractionNest

    @property
    def outside(self) -> frozenset[str]:
        """Return the loops outside of a block of rows."""
        return frozenset([*self.first.outside, *self.rows.rows, *self.last.outside])


@dataclass(frozen=True)
class BlockedPlan:
    """The plan of two contractions, and the row operations between them, block by block."""

    stages: AttentionStages
    nests: AttentionLoops
    loops: tuple[tuple[Dim, Dim], ...]
    """The shared loops outside of the blocks: their steps in rows, and their extents."""
    extent: Dim
    """Rows within these loops. All sizes are static, except in plans for dynamic sizes."""
    block: Dim
    local: tuple[ir.Value, ...]
    """Values that are stored for one block only."""
    weights: ir.Value
    limit: tuple[int, Dim] | None = None
    """Row r needs no column from `limit[0] * r + limit[1]` on: the mask hides it."""
    slots: int | None = None
    """How many threads compute blocks at the same time, if sizes are dynamic; None if all are static."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit all blocks at the insertion point."""
        self.place_values(memory, self.block)
        blocks = RowBlockEmitter(self, self.nests, memory)
        if self.slots is None:
            self._emit_known(blocks)
        else:
            self._emit_tasks(blocks, memory, self.slots)

    def _emit_known(self, blocks: RowBlockEmitter) -> None:
        """Emit blocks of a known number of rows."""
        heads = prod(extent for _, extent in self.loops)
        parts = tile_ranges(static_dim(self.extent), static_dim(self.block))

        def of_head(head: Index) -> None:
            indices = self.indices(head)
            # The rest is part of the loop: scratch memory that is used inside of it only is private to each thread.
            loop_with_tail(
                parts, lambda start, part: blocks.emit(indices, start, parts[part].step, 0), parallel=heads == 1
            )

        loop_over_tiles(0, heads, 1, of_head, parallel=True)

    def _emit_tasks(self, blocks: RowBlockEmitter, memory: TensorBuffers, slots: int) -> None:
        """Emit blocks of a number of rows that only the run time knows."""
        heads = D.product([extent for _, extent in self.loops])
        # The same block of all heads first: causal blocks take longer, the later their rows.
        tasks = D.ceildiv(self.extent, self.block) * heads

        def task(number: Value, slot: Value) -> None:
            start, head = number.divide_unsigned(heads) * self.block, number.remainder_unsigned(heads)
            count = (index(self.extent) - start).minimum(self.block)
            blocks.emit(self.indices(head), start, count, slot)

        emit_tasks(memory, slots, tasks, task)

    def place_values(self, memory: TensorBuffers, rows: Dim) -> None:
        """Place the values of a block of this many rows in memory, of which each thread has its own."""
        for value in self.local:
            elements, kind = rows * elements_of_row(value, self.total), value.type.element_type
            if self.slots is None:
                memory.place(value, memory.buffers.scratch([elements], kind))
            else:
                memory.place(value, memory.buffers.shared_scratch(self.slots * elements, kind))
        self._reuse_scores(memory)

    @property
    def tokens(self) -> Dim | None:
        """Return the symbol that the number of rows, but not of columns, depends on, if it is one."""
        symbols = D.symbols_of(self.extent)
        is_one = len(symbols) == 1 and not symbols & D.symbols_of(self.stages.width)
        return D.symbol(next(iter(symbols))) if is_one else None

    @property
    def total(self) -> Dim:
        """Return the rows of all blocks."""
        return D.product([extent for _, extent in self.loops]) * self.extent

    @property
    def columns_at_once(self) -> int:
        """Return the columns that all loops compute at a time, if not all columns are computed."""
        return lcm(self.stages.first.plan.tile.columns, *self.nests.rows.steps) if self.limit is not None else 1

    @property
    def order(self) -> tuple[Dim, ...]:
        """Return the steps of all loops over rows, the innermost first, and the number of rows."""
        strides = [stride for stride, _ in reversed(self.loops)]
        return (*strides, self.loops[0][0] * self.loops[0][1]) if self.loops else (self.extent,)

    def describe(self) -> dict[str, Dim | bool | list[int]]:
        return {
            "block": self.block,
            "tile": [self.stages.first.plan.tile.rows, self.stages.first.plan.tile.columns],
            "last_tile": [self.stages.last.plan.tile.rows, self.stages.last.plan.tile.columns],
            **({} if self.limit is None else {"hidden": True}),
        }

    def needed_columns(self, start: Index, count: Index) -> ir.Value | None:
        """Return the number of columns that a block of rows needs, in whole steps; None if it needs all."""
        if self.limit is None:
            return None
        (scale, beyond), step = self.limit, self.columns_at_once
        end = plus(plus(start, count), -1)
        if isinstance(end, int):
            needed = max(-(-(scale * end + beyond) // step), 1) * step
            return None if needed >= self.stages.width else index(needed)
        last = Value(end) * scale + (beyond + step - 1)
        steps = create("arith.floordivsi", ir.IndexType.get(), last, index(step)).maximum(1)
        return (steps * step).minimum(index(self.stages.width))

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

    def _reuse_scores(self, memory: TensorBuffers) -> None:
        """Store the weights in the buffer of the scores, which are read for the last time when weights are computed."""
        rows = self.stages.rows.found
        target = rows.walk_of(self.weights)
        for value in self.local:
            if value == self.weights or value.type != self.weights.type or rows.walk_of(value) is not None:
                continue
            readers = [
                i for i, walk in enumerate(rows.walks)
                if any(operand.value == value for block in walk.blocks for operand in block.inputs)
            ]  # fmt: skip
            if target is not None and readers and max(readers) <= target:
                memory.share(self.weights, value)
                return


class RowBlockEmitter:
    """Emits blocks of rows: a product, what is computed of each row, and the other product.

    `others` are values, besides those of a block, of which memory has a part.
    """

    def __init__(
        self, plan: BlockedPlan, nests: AttentionLoops, memory: TensorBuffers, others: PartLayouts | None = None
    ) -> None:
        self._plan, self._nests, self._memory = plan, nests, memory
        layouts: dict[ir.Value | None, PartLayout] = {
            value: PartLayout(nests.outside, IndexExpr({STORED_ROW: elements_of_row(value, plan.total)}))
            for value in plan.local
        }
        self._emitter = nests.s.part_emitter({**layouts, **(others or {})})

    def elsewhere(self, value: ir.Value, buffer: ir.Value) -> RowBlockEmitter:
        """Return an emitter of the same loops, with a value in another buffer."""
        result = copy(self)
        result._emitter = self._emitter.elsewhere(self._memory, value, buffer)
        return result

    def emit(self, indices: Mapping[Dim, Index], start: Index, count: Index, slot: Index) -> None:
        """Emit `count` rows from `start` on, in a slot of the memory of blocks."""
        needed = self._plan.needed_columns(start, count)
        stored = times(slot, self._plan.block)
        columns = {} if needed is None else {self._nests.first.around.panel: needed}
        self.emit_product(self._plan.stages.first, indices, start, count, stored, columns)
        if not self._nests.rows.rows:
            self.emit_row(0, needed)
        elif isinstance(count, int):
            loop_over_tiles(0, count, 1, lambda r: self.emit_row(plus(stored, r), needed))
        else:
            for_loop(0, count, 1, lambda r: self.emit_row(plus(stored, r), needed))
        depth = {} if needed is None else dict.fromkeys(self._nests.last.around.over, needed)
        self.emit_product(self._plan.stages.last, indices, start, count, stored, depth)

    def emit_row(self, stored: Index, limit: ir.Value | None = None) -> None:
        """Emit what is computed of a row between the products; `stored` is its row of the memory of blocks.

        With `limit`, a multiple of the elements that all loops compute at a time or the end, emit only the elements
        before it.
        """
        rows = self._nests.rows
        at: dict[str, LoopValue] = {**dict.fromkeys(rows.rows, stored), STORED_ROW: stored}
        ends = {} if limit is None else dict.fromkeys(rows.limited, limit)
        self._emitter.emit(self._memory, self._emitter.nests(rows.found.group.blocks), at, ends)

    def emit_product(
        self,
        part: RowBlockContraction,
        indices: Mapping[Dim, Index],
        start: Index,
        count: Index,
        stored: Index,
        ends: Mapping[str, ir.Value],
        others: Mapping[str, LoopValue] | None = None,
    ) -> None:
        """Emit `count` rows of a product from `start` on; `indices` are those of the shared loops, `others` of others.

        `stored` is the row of the memory of a block where the first one is; `ends` are where loops end early.
        """
        nest = self._nests.first if part is self._plan.stages.first else self._nests.last
        at: dict[str, LoopValue] = {name: self._index(indices, *each) for name, each in nest.outer.items()}
        spans: dict[str, RowSpan] = {}
        if nest.is_counted:
            first = start
            for distance in self._between(self._plan.order[0], part.rows):
                first = plus(first, times(indices[distance], distance))
            spans[nest.around.tiles] = RowSpan(first, count, stored)
        else:
            at[STORED_ROW] = stored
        nodes = self._emitter.nests(part.group.blocks)
        self._emitter.emit(self._memory, nodes, {**at, **(others or {})}, ends, spans)

    def _index(self, indices: Mapping[Dim, Index], stride: Dim, extent: Dim) -> Index:
        """Return the index of a loop that steps by this many rows."""
        total: Index = 0
        for distance in self._between(stride, stride * extent):
            total = plus(total, times(indices[distance], distance // stride))
        return total

    def _between(self, low: Dim, high: Dim) -> Sequence[Dim]:
        """Return the steps of the loops that one is fused of, from its step to its end."""
        order = self._plan.order
        return order[order.index(low) : order.index(high)]


def elements_of_row(value: ir.Value, total: Dim) -> Dim:
    """Return the elements of a value per row, for this many rows."""
    return D.product(dims_of(value.type)) // total


def times(value: Index, factor: Dim) -> Index:
    """Emit a multiple of an index; of an integer, return it."""
    if isinstance(value, int):
        return value * factor if isinstance(factor, int) else index(factor) * value
    return Value(value) * factor


def emit_tasks(memory: TensorBuffers, slots: int, tasks: Dim, task: Callable[[Value, Value], None]) -> None:
    """Emit tasks that threads, each with a slot, claim one after the other: `task(number, slot)`."""
    if slots == 1:
        for_loop(0, tasks, 1, lambda number: task(number, index(0)))
        return
    following = memory.buffers.shared_scratch(1, ir.IntegerType.get_signless(64))
    store(emit_constant(0, following.type.element_type), following, [1], [index(0)])

    def worker(slot: Value) -> None:
        _claim_each(following, tasks, lambda number: task(number, slot))

    for_loop(0, slots, 1, worker, parallel=True)


def _claim_each(following: ir.Value, count: Dim, body: Callable[[Value], None]) -> None:
    """Emit a loop that takes the next of some tasks until none is left; `following` is a number that threads share.

    A thread that is slow, or starts late, takes fewer.
    """
    element, kind = following.type.element_type, ir.IndexType.get()
    loop = scf.WhileOp([kind], [])
    with ir.InsertionPoint(loop.before.blocks.append()):
        addi = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _ADDI)
        claimed = create("memref.atomic_rmw", element, emit_constant(1, element), following, index(0), kind=addi).cast(
            kind
        )
        scf.ConditionOp(claimed < count, [claimed])
    with ir.InsertionPoint(loop.after.blocks.append(kind)):
        body(Value(loop.after.blocks[0].arguments[0]))
        scf.YieldOp([])


def emit_by_rows(
    buffers: BufferFunction,
    view: PrimView,
    rows: Dim,
    one: Callable[[TensorBuffers], None],
    more: Callable[[TensorBuffers], None],
) -> None:
    """Emit a plan for one row, of a copy of the function, and that for another number of them, which is dynamic."""
    memory, whole = TensorBuffers(buffers), buffers.view
    outside = zip((*whole.arguments, *whole.returned), (*view.arguments, *view.returned), strict=True)
    for value, own in outside:
        memory.place(own, buffers.buffer(value))
    is_one = compare("eq", index(rows), index(1))
    either(is_one, lambda: one(memory), lambda: more(TensorBuffers(buffers)))
