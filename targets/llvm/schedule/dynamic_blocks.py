"""Attention in blocks of rows, with a dynamic number of rows or columns.

Blocks have a fixed number of rows, the last one fewer; the scores of a block have as many columns as there are keys.
Their memory cannot be on a thread's stack, as its size is dynamic: each thread has a slot of one shared buffer.
"""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import Value, emit_constant, index
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.loops import for_loop, store
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.schedule.row_blocks import BlockedPlan, BlockTiles, elements_of_row

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
        first, last = (BlockTiles(part, self, memory) for part in (self.first, self.last))
        rows = self.rows.row_by_row(memory)
        heads = D.product([extent for _, extent in self.loops])
        step = self.columns_at_once
        # The same block of all heads first: causal blocks take longer, the later their rows.
        tasks = D.ceildiv(self.extent, self.block) * heads

        def task(number: Value, slot: Value) -> None:
            start, head = number.divide_unsigned(heads) * self.block, number.remainder_unsigned(heads)
            count = (index(self.extent) - start).minimum(self.block)
            indices = self.indices(head)
            needed = self._needed(start, count, step)
            stored = slot * self.block
            first.emit(indices, start, count, stored, columns=needed)
            if self.rows.rows:
                for_loop(0, count, 1, lambda r: rows.emit(stored + r, needed))
            else:
                rows.emit(limit=needed)
            last.emit(indices, start, count, stored, depth=needed)

        emit_tasks(memory, self.slots, tasks, task)


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
