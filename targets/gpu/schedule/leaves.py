"""Blocks of kernels with skeletons of their own, contractions and attention, as leaves of the tree of loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.points import PointEmitter
from mirlo.passes.schedule.primitives.tree import BlockLeaf, BufferAccess, ScheduleBuffer, buffer_of, leaf_of

PlacedAccess = tuple[BufferAccess, list[IndexExpr]]
"""An access of a block, and the block's axes as expressions of the loops of the kernel, which are numbered."""


class HeldLeaves:
    """Blocks whose results, and values that the kernel computes for them, are in registers for later blocks."""

    def __init__(self) -> None:
        self._buffers: dict[ir.Value, ScheduleBuffer] = {}
        self._held: dict[ScheduleBuffer, BufferAccess] = {}
        """The writes of what is in registers."""

    def buffer(self, value: ir.Value) -> ScheduleBuffer:
        """Return the buffer of a tensor value."""
        if value not in self._buffers:
            self._buffers[value] = buffer_of(value, f"t{len(self._buffers)}")
        return self._buffers[value]

    def hold(self, buffer: ScheduleBuffer) -> BufferAccess:
        """Keep the elements of a buffer in registers; return the access that writes them."""
        self._held[buffer] = BufferAccess(buffer, [], is_held=True)
        return self._held[buffer]

    def place(self, block: BlockView, where: Sequence[IndexExpr]) -> BlockLeaf:
        """Return a block whose axes are these expressions of the loops."""
        for operand in (*block.inputs, *block.outputs):
            self.buffer(operand.value)
        return leaf_of(block.name, block, self._buffers, list(where))

    def place_held(
        self, block: BlockView, where: Sequence[IndexExpr], kept: frozenset[ir.Value] = frozenset()
    ) -> BlockLeaf:
        """Return a block whose results later blocks read in registers; only results of the kernel are stored."""
        leaf = self.place(block, where)
        for access in leaf.reads:
            access.register = self._held.get(access.buffer)
        for access, output in zip(leaf.writes, block.outputs, strict=True):
            access.is_held = output.value not in kept
            self._held[access.buffer] = access
        return leaf


def stored(leaves: Iterable[BlockLeaf]) -> list[PlacedAccess]:
    """Return the accesses of blocks that store their results."""
    return [(access, leaf.at) for leaf in leaves for access in leaf.writes if not access.is_held]


def compute(points: PointEmitter, leaves: Iterable[BlockLeaf], values: LoopValues) -> dict[ScheduleBuffer, ir.Value]:
    """Emit the results of blocks at a point, in order; later blocks read them in registers."""
    results: dict[ScheduleBuffer, ir.Value] = {}
    for leaf in leaves:
        computed = points.computed(leaf, leaf.at, values)
        points.hold(computed, leaf.writes, values)
        results.update(zip((access.buffer for access in leaf.writes), computed, strict=True))
    return results


def store(
    points: PointEmitter,
    accesses: Iterable[PlacedAccess],
    results: Mapping[ScheduleBuffer, ir.Value],
    values: LoopValues,
) -> None:
    """Store the results of blocks at a point."""
    for access, at in accesses:
        points.store(results[access.buffer], access, at, values)
