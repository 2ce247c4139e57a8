"""The blocks of an attention as leaves of the tree of loops, and the code of their points in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr, loop_index
from mirlo.dialects.core.value import Value
from mirlo.passes.schedule.blocks.attention import AttentionBlocks, Read
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.passes.schedule.buffers import TensorBuffers
from mirlo.passes.schedule.words.index import LoopValues
from mirlo.passes.schedule.words.memory import memory_accesses, place_in_threads
from mirlo.passes.schedule.words.points import PointEmitter
from mirlo.passes.schedule.words.tree import BlockLeaf, BufferAccess, ScheduleBuffer, buffer_of, leaf_of, loop_names

Loops = Mapping[int, Value]
"""The index of each known loop."""


class AttentionLeaves:
    """The blocks of an attention in its loops.

    Scores, the sum of the weights and the weighted values are in registers, as kernels compute them; what the blocks
    of the mask and of the epilogue compute is, too, for those after them.
    """

    def __init__(self, attention: AttentionBlocks, memory: TensorBuffers) -> None:
        """Place the blocks; the views of memory that they access are made at the insertion point."""
        self._names = loop_names("attention", len(attention.extents))
        self._buffers: dict[ir.Value, ScheduleBuffer] = {}
        self._held: dict[ScheduleBuffer, BufferAccess] = {}
        """The writes of what is in registers."""
        scores, total, weighted = (attention.scores, attention.total, attention.weighted)
        self._scores, self._total, self._weighted = (self._hold(self._buffer(v)) for v in (scores, total, weighted))
        self._mask = [self._leaf(instance) for instance in attention.mask]
        within = frozenset(bound.condition for bound in attention.bounds)
        self._mask_inside = [replace(leaf, assumed=within) for leaf in self._mask]
        self._after = [self._leaf(instance, attention.group.kept) for instance in attention.after]
        self._reads = {read.instance: self._read(read) for read in (attention.query, attention.key, attention.value)}
        accesses = [access for leaf in (*self._mask, *self._after) for access in memory_accesses(leaf)]
        extents = dict(zip(self._names, attention.extents, strict=True))
        self._placed = place_in_threads([*(access for access, _ in self._reads.values()), *accesses], memory, extents)
        self._points = PointEmitter(self._placed, extents)

    def _buffer(self, value: ir.Value) -> ScheduleBuffer:
        if value not in self._buffers:
            self._buffers[value] = buffer_of(value, f"t{len(self._buffers)}")
        return self._buffers[value]

    def _hold(self, buffer: ScheduleBuffer) -> BufferAccess:
        """Let the elements of a buffer be in registers where they are read; return the access that writes them."""
        self._held[buffer] = BufferAccess(buffer, [], is_held=True)
        return self._held[buffer]

    def _named(self, expression: IndexExpr) -> IndexExpr:
        """Return an expression of the numbered loops of an attention over the loops of the tree."""
        return expression.substitute(lambda loop: loop_index(self._names[loop]))

    def _in_loops(self, instance: BlockInstance) -> BlockLeaf:
        """Return a block in the loops of the tree."""
        block = instance.block
        for operand in (*block.inputs, *block.outputs):
            self._buffer(operand.value)
        return leaf_of(block.name, block, self._buffers, [self._named(axis) for axis in instance.where])

    def _leaf(self, instance: BlockInstance, kept: frozenset[ir.Value] = frozenset()) -> BlockLeaf:
        """Return a block whose results blocks after it read in registers; only those that are kept are stored."""
        leaf = self._in_loops(instance)
        for access in leaf.reads:
            access.register = self._held.get(access.buffer)
        for access, output in zip(leaf.writes, instance.block.outputs, strict=True):
            access.is_held = output.value not in kept
            self._held[access.buffer] = access
        return leaf

    def _read(self, read: Read) -> tuple[BufferAccess, list[IndexExpr]]:
        """Return the access to an operand of one of the products, and the axes of its block."""
        leaf = self._in_loops(read.instance)
        return leaf.reads[leaf.body.inputs.index(read.factor.argument)], leaf.at

    def _values(self, loops: Loops) -> LoopValues:
        return LoopValues({self._names[loop]: value for loop, value in loops.items()})

    # Positions

    def index(self, expression: IndexExpr, loops: Loops) -> Value:
        """Emit an expression of the numbered loops."""
        return self._values(loops).emit(self._named(expression))

    def position(self, read: Read, loops: Loops) -> ir.Value:
        """Emit the position of an operand's element in memory."""
        return self._points.position(*self._reads[read.instance], self._values(loops))

    @property
    def results(self) -> list[tuple[BufferAccess, IndexExpr]]:
        """Return the stored outputs, and their positions as expressions of the numbered loops."""
        numbers = {name: loop_index(number) for number, name in enumerate(self._names)}
        return [
            (access, self._placed.flat_index(access, leaf.at).replace(numbers))
            for leaf in self._after for access in leaf.writes if not access.is_held
        ]  # fmt: skip

    # Values

    def load(self, read: Read, loops: Loops) -> ir.Value:
        """Load an element of an operand of one of the products."""
        return self._points.read(*self._reads[read.instance], self._values(loops))

    def score(self, total: ir.Value, loops: Loops, inside: bool, emitted: Mapping[ir.Value, ir.Value]) -> ir.Value:
        """Emit a masked score; `inside` says whether its key is within all bounds.

        Values of the mask's body that are `emitted` are not computed.
        """
        values = self._values(loops)
        self._points.hold([total], [self._scores], values)
        for leaf in self._mask_inside if inside else self._mask:
            results = self._points.computed_from(emitted, leaf, values)
            self._points.hold(results, leaf.writes, values)
            total = results[0]
        return total

    def finish(self, total: ir.Value, weighted: ir.Value, loops: Loops) -> None:
        """Emit the epilogue of an element, given the sum of its row's weights and its weighted values, and store it."""
        values = self._values(loops)
        results = self._finished(total, weighted, values)
        for leaf in self._after:
            for access in leaf.writes:
                if not access.is_held:
                    self._points.store(results[access.buffer], access, leaf.at, values)

    def finished(self, total: ir.Value, weighted: ir.Value, loops: Loops) -> Mapping[ScheduleBuffer, ir.Value]:
        """Emit the epilogue of an element; return the results, by buffer."""
        return self._finished(total, weighted, self._values(loops))

    def _finished(self, total: ir.Value, weighted: ir.Value, values: LoopValues) -> Mapping[ScheduleBuffer, ir.Value]:
        self._points.hold([total, weighted], [self._total, self._weighted], values)
        results: dict[ScheduleBuffer, ir.Value] = {}
        for leaf in self._after:
            computed = self._points.computed(leaf, leaf.at, values)
            self._points.hold(computed, leaf.writes, values)
            results.update(zip((access.buffer for access in leaf.writes), computed, strict=True))
        return results
