"""Code of one point of a block: what it reads, computes and stores."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.loops import attribute_constant, clone_body, load, read_inside, store
from mirlo.passes.schedule.words.index import LoopValues
from mirlo.passes.schedule.words.lanes import EdgeTest, edge_tests
from mirlo.passes.schedule.words.memory import PlacedBuffers
from mirlo.passes.schedule.words.tree import BlockLeaf, BufferAccess


class PointEmitter:
    """Emits the points of blocks, at values of the loops around them."""

    def __init__(self, placed: PlacedBuffers, extents: dict[str, Dim]) -> None:
        self.placed, self.extents = placed, extents
        self.passed: frozenset[EdgeTest] = frozenset()
        """The tests of edges that all iterations pass which are emitted now."""
        self.failed: tuple[list[EdgeTest], ...] = ()
        """Tests of edges of which no iteration passes all."""
        self._inlined: dict[tuple[int, tuple[IndexExpr, ...]], ir.Value] | None = None
        """The elements of inlined blocks at the point that is emitted now."""

    def store(self, value: ir.Value, leaf: BlockLeaf, access: BufferAccess, values: LoopValues) -> None:
        placed = self.placed[access.buffer]
        store(value, placed.value, placed.shape, self.address(access, leaf.at, values))

    def computed(self, leaf: BlockLeaf, at: list[IndexExpr], values: LoopValues) -> list[ir.Value]:
        """Emit the values of a block at one point, given the values of its axes."""
        if leaf.part == "start":
            assert leaf.view is not None
            return [attribute_constant(attribute) for attribute in leaf.view.init]
        if leaf.view is None:
            return [self.read(leaf.reads[0], at, values)]
        pairs = zip(leaf.body.accumulators, leaf.writes, strict=False)
        former = {argument: self.read(access, at, values) for argument, access in pairs}
        return clone_body(leaf.body, {**self.environment(leaf, at, values), **former})

    def environment(self, leaf: BlockLeaf, at: list[IndexExpr], values: LoopValues) -> dict[ir.Value, ir.Value]:
        """Emit what the body of a block reads, without its former results."""
        env: dict[ir.Value, ir.Value] = {argument: values.emit(at[axis]) for axis, argument in leaf.body.indices}
        around = self._inlined
        self._inlined = {} if around is None else around
        try:
            for argument, access in zip(leaf.body.inputs, leaf.reads, strict=True):
                env[argument] = self.read(access, at, values)
        finally:
            self._inlined = around
        return env

    def read(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> ir.Value:
        if access.is_opaque:
            return self.placed[access.buffer].value
        at = self.placed.indices(access, axes)
        if access.inlined is not None:
            # Several blocks may read an element of an inlined one, which is emitted once.
            element = (id(access.inlined), tuple(at))
            inlined = {} if self._inlined is None else self._inlined
            if element not in inlined:
                inlined[element] = self.computed(access.inlined, at, values)[0]
            return inlined[element]
        if access.outside is None:
            return self.load(access, axes, values)
        tests = [test for test in edge_tests(access, at, values, self.extents) if test not in self.passed]
        if not tests:
            return self.load(access, axes, values)
        if any(all(test in tests for test in failed) for failed in self.failed):
            return attribute_constant(access.outside)
        inside = self.all_inside(tests, values)
        return read_inside(inside, lambda: self.load(access, axes, values), access.outside)

    def load(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> ir.Value:
        placed = self.placed[access.buffer]
        return load(placed.value, placed.shape, self.address(access, axes, values))

    def all_inside(self, tests: Sequence[EdgeTest], values: LoopValues) -> ir.Value:
        """Emit whether all indices are within the bounds of their tensors."""
        # An unsigned comparison also covers negative indices.
        condition, *others = (values.emit(each).below(values.emit(size)) for each, size in tests)
        for other in others:
            condition = condition & other
        return condition

    def address(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> list[ir.Value]:
        """Emit the indices in memory of the element that a block with these axes accesses."""
        return [values.emit(each) for each in self.placed.in_memory(access, axes)]
