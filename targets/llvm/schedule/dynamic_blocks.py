"""Attention in blocks of rows, with a dynamic number of rows or columns.

Blocks have a fixed number of rows, the last one fewer; the scores of a block have as many columns as there are keys.
Their memory cannot be on a thread's stack, as its size is dynamic: each thread has a slot of one shared buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import lcm

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import Value, emit_constant, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.dynamic_tiles import TiledRows, dynamic_tiles
from mirlo.passes.schedule.loops import for_loop, store
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.vector_memory import Piece
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.contraction.kernel import Index
from mirlo.targets.llvm.schedule.cost import REST_ROWS
from mirlo.targets.llvm.schedule.row_blocks import KEPT, BlockedPlan, BlockKernel, RowBlockContraction

_ADDI = 1
"""The sum of integers as the kind of `memref.atomic_rmw`."""


@dataclass(frozen=True)
class DynamicBlockedPlan(BlockedPlan):
    """The plan of two contractions, and the row operations between them, block by block, for dynamic sizes."""

    slots: int = 1
    """Number of threads that compute blocks at the same time."""

    def emit(self, memory: TensorBuffers) -> None:
        """Emit all blocks at the insertion point."""
        for value in self.local:
            elements = self.slots * self.block * elements_of_row(value, self.total)
            memory.place(value, memory.buffers.shared_scratch(elements, value.type.element_type))
        self.reuse_scores(memory)
        first, last = (DynamicBlockKernel(part, memory, self.order) for part in (self.first, self.last))
        rows = self.rows.row_by_row(memory)
        heads = D.product([extent for _, extent in self.loops])
        step = lcm(self.first.plan.tile_columns, *self.rows.steps) if self.limit is not None else 1
        # The same block of all heads first: causal blocks take longer, the later their rows.
        tasks = D.ceildiv(self.extent, self.block) * heads

        def task(number: Value, slot: Value) -> None:
            start, head = number.divide_unsigned(heads) * self.block, number.remainder_unsigned(heads)
            count = (index(self.extent) - start).minimum(self.block)
            indices = self.indices(head)
            needed = self._needed(start, count, step)
            first.limit, last.tiles.limits = needed, {axis.id: needed for axis in self.last.plan.reduce}
            kept = slot * self.block
            first.run_block(indices, start, count, kept)
            if self.rows.rows:
                for_loop(0, count, 1, lambda r: rows.emit(kept + r, needed))
            else:
                rows.emit(limit=needed)
            last.run_block(indices, start, count, kept)

        emit_tasks(memory, self.slots, tasks, task)

    @property
    def total(self) -> Dim:
        """Return the rows of all blocks."""
        return D.product([extent for _, extent in self.loops]) * self.extent


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


class DynamicBlockKernel(BlockKernel):
    """A contraction that is emitted for blocks of a dynamic number of rows."""

    def __init__(self, part: RowBlockContraction, memory: TensorBuffers, order: tuple[Dim, ...]):
        super().__init__(part, memory, order)
        self.tiles_now: TiledRows | None = None

    def run_block(self, indices: Mapping[Dim, Index], start: ir.Value, count: ir.Value, kept: ir.Value) -> None:
        """Emit `count` rows from `start` on; `kept` is the first of the rows that are stored."""
        if self.part.row_axis is not None:
            self.tiles_now = dynamic_tiles(count, self.plan.tile_rows, REST_ROWS)
        self._panels(self._values(indices, start).at({KEPT.id: kept}))

    def dynamic_tiles(self) -> TiledRows:
        assert self.tiles_now is not None
        return self.tiles_now

    def _rows(self, values: LoopValues, cut: list[Piece], parallel: bool) -> None:
        axis = self.plan.row_axis
        if axis is None:
            super()._rows(values, cut, parallel)
        else:
            self._dynamic_rows(axis, values, cut, False)

    def _panels(self, values: LoopValues) -> None:
        """Emit the panels before the limit; the last one is masked if it is partial."""
        axis, width, limit = self.plan.lane_axis, self.plan.tile_columns, self.limit
        if limit is None or isinstance(axis.extent, int):
            super()._panels(values)
            return
        whole = axis.extent // width * width
        for first, stop, held in ((0, whole, width), (whole, axis.extent, axis.extent - whole)):
            cut = self.plan.cut(held)
            end = create("arith.minsi", limit.type, limit, self.constants.index(stop))

            def panel(i: ir.Value, cut: list[Piece] = cut) -> None:
                self._panel(values.at({axis.id: i}), cut)

            for_loop(first, end, width, panel)


def elements_of_row(value: ir.Value, total: Dim) -> Dim:
    """Return the elements of a value per row, for this many rows."""
    return D.product(dims_of(value.type)) // total
