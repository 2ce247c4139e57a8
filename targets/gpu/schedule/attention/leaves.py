"""The blocks of an attention as leaves of the tree of loops, and the code of their points in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import Value
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.memory import memory_accesses, place_in_threads
from mirlo.passes.schedule.primitives.points import PointEmitter
from mirlo.passes.schedule.primitives.tree import BufferAccess, ScheduleBuffer
from mirlo.targets.gpu.schedule.leaves import HeldLeaves, PlacedAccess, compute, store, stored

Loops = Mapping[int, Value]
"""The index of each known loop."""


class AttentionLeaves:
    """The blocks of an attention in its loops.

    Scores, the sum of the weights and the weighted values are in registers, as kernels compute them; so are the results
    of the mask's and the epilogue's blocks, for later blocks.
    """

    def __init__(self, attention: AttentionBlocks, memory: TensorBuffers) -> None:
        """Place the blocks; the views of memory that they access are made at the insertion point."""
        blocks = HeldLeaves()
        scores, total, weighted = (attention.scores, attention.total, attention.weighted)
        self._scores, self._total, self._weighted = (blocks.hold(blocks.buffer(v)) for v in (scores, total, weighted))
        self._mask = [blocks.place_held(instance.block, instance.where) for instance in attention.mask]
        within = frozenset(bound.condition for bound in attention.bounds)
        self._mask_inside = [replace(leaf, assumed=within) for leaf in self._mask]
        kept = attention.group.kept
        self._after = [blocks.place_held(instance.block, instance.where, kept) for instance in attention.after]
        self._reads = {read.instance: _read(blocks, read) for read in (attention.query, attention.key, attention.value)}
        accesses = [access for leaf in (*self._mask, *self._after) for access in memory_accesses(leaf)]
        reads = (access for access, _ in self._reads.values())
        self._placed = place_in_threads([*reads, *accesses], memory, attention.extents)
        self._points = PointEmitter(self._placed, attention.extents)

    # Positions

    def index(self, expression: IndexExpr, loops: Loops) -> Value:
        """Emit an expression of the loops."""
        return LoopValues(loops).emit(expression)

    def position(self, read: Read, loops: Loops) -> ir.Value:
        """Emit the position of an operand's element in memory."""
        return self._points.position(*self._reads[read.instance], LoopValues(loops))

    @property
    def results(self) -> list[tuple[BufferAccess, IndexExpr]]:
        """Return the stored outputs, and their positions as expressions of the loops."""
        return [(access, self._placed.flat_index(access, at)) for access, at in stored(self._after)]

    # Values

    def load(self, read: Read, loops: Loops) -> ir.Value:
        """Load an element of an operand of one of the products."""
        return self._points.read(*self._reads[read.instance], LoopValues(loops))

    def score(self, total: ir.Value, loops: Loops, inside: bool, emitted: Mapping[ir.Value, ir.Value]) -> ir.Value:
        """Emit a masked score; `inside` says whether its key is within all bounds.

        Values of the mask's body that are `emitted` are not computed.
        """
        values = LoopValues(loops)
        self._points.hold([total], [self._scores], values)
        for leaf in self._mask_inside if inside else self._mask:
            results = self._points.computed_from(emitted, leaf, values)
            self._points.hold(results, leaf.writes, values)
            total = results[0]
        return total

    def finish(self, total: ir.Value, weighted: ir.Value, loops: Loops) -> None:
        """Emit the epilogue of an element, given the sum of its row's weights and its weighted values, and store it."""
        values = LoopValues(loops)
        store(self._points, stored(self._after), self._finished(total, weighted, values), values)

    def finished(self, total: ir.Value, weighted: ir.Value, loops: Loops) -> Mapping[ScheduleBuffer, ir.Value]:
        """Emit the epilogue of an element; return the results, by buffer."""
        return self._finished(total, weighted, LoopValues(loops))

    def _finished(self, total: ir.Value, weighted: ir.Value, values: LoopValues) -> Mapping[ScheduleBuffer, ir.Value]:
        self._points.hold([total, weighted], [self._total, self._weighted], values)
        return compute(self._points, self._after, values)


def _read(blocks: HeldLeaves, read: Read) -> PlacedAccess:
    """Return the access to an operand of one of the products, and the axes of its block."""
    leaf = blocks.place(read.instance.block, read.instance.where)
    return leaf.reads[leaf.body.inputs.index(read.factor.argument)], leaf.at
