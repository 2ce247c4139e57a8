"""Code of one point of a block: its reads, computations and stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.index_expr import Extents, IndexExpr
from mirlo.dialects.core.value import Value, create
from mirlo.passes.schedule.loops import KnownBody, ScalarBody, attribute_constant, load, read_inside, store, when
from mirlo.passes.schedule.primitives.analysis import KnownValues
from mirlo.passes.schedule.primitives.contiguity import is_beyond
from mirlo.passes.schedule.primitives.held import Register, register_of
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.lane_access import EdgeTest
from mirlo.passes.schedule.primitives.lanes import edge_tests
from mirlo.passes.schedule.primitives.memory import PlacedBuffers
from mirlo.passes.schedule.primitives.tree import BlockLeaf, BufferAccess, Guard
from mirlo.passes.schedule.vectors import vector_body


class PointEmitter:
    """Emits the points of blocks, at values of the loops around them."""

    def __init__(self, placed: PlacedBuffers, extents: Extents) -> None:
        self.placed, self.extents = placed, extents
        self.passed: frozenset[EdgeTest] = frozenset()
        """The tests of edges that all iterations pass which are emitted now."""
        self.failed: tuple[list[EdgeTest], ...] = ()
        """Tests of edges of which no iteration passes all."""
        self._inlined: dict[tuple[int, tuple[IndexExpr, ...]], ir.Value] | None = None
        """The elements of inlined blocks at the point that is emitted now."""
        self._held: dict[int, ir.Value] = {}
        """The results that blocks computed on them read, by their buffers."""
        self.loaded: dict[int, ir.Value] = {}
        """The elements that are loaded before anything is computed, by the accesses."""
        self.registers: dict[Register, ir.Value] = {}
        """The elements that blocks after them read in registers."""

    def store(self, value: ir.Value, access: BufferAccess, at: list[IndexExpr], values: LoopValues) -> None:
        placed = self.placed[access.buffer]
        if self.by_position(access, at, values):
            memref.StoreOp(value, placed.flat, [self.position(access, at, values)])
            return
        store(value, placed.value, placed.shape, self.address(access, at, values))

    def guarded(self, guards: Sequence[Guard], values: LoopValues, body: Callable[[], None]) -> None:
        """Emit a body for iterations that pass the guards."""
        when(self.condition(guards, values), body)

    def condition(self, guards: Sequence[Guard], values: LoopValues) -> ir.Value | None:
        """Emit whether an iteration passes the guards; None if there are none."""
        condition = None
        for expression, bound in guards:
            test = values.emit(expression) < values.emit(bound)
            condition = test if condition is None else create("arith.andi", test.type, condition, test)
        return condition

    def hold(self, results: Sequence[ir.Value], writes: Sequence[BufferAccess], values: LoopValues) -> None:
        """Keep the results of a block for blocks that read them in registers."""
        for value, access in zip(results, writes, strict=True):
            self.registers[register_of(access, access, values)] = value

    def finish_point(self, results: Sequence[ir.Value], leaf: BlockLeaf, values: LoopValues) -> None:
        """Store the results of a block as `finish` does, of those that all threads compute by one of them."""
        if not leaf.stored_by:
            self.finish(results, leaf, values)
            return
        self.hold(results, leaf.writes, values)
        if leaf.epilogue or not all(access.is_held for access in leaf.writes):
            self.guarded(leaf.stored_by, values, partial(self.finish, results, leaf, values))

    def finish(self, results: Sequence[ir.Value], leaf: BlockLeaf, values: LoopValues) -> None:
        """Store the results of a block, and compute its epilogue where that is not computed elsewhere."""
        before, self._held = self._held, {}
        try:
            self._store_results(results, leaf, leaf.at, values)
            for after, at in self.placed.epilogue(leaf):
                self._store_results(self.computed(after, at, values), after, at, values)
        finally:
            self._held = before

    def computed_with(
        self, leaf: BlockLeaf, values: LoopValues
    ) -> list[tuple[Sequence[ir.Value], BlockLeaf, list[IndexExpr]]]:
        """Emit the values of a block and of its epilogue, without storing them."""
        before, self._held = self._held, {}
        result: list[tuple[Sequence[ir.Value], BlockLeaf, list[IndexExpr]]] = []
        try:
            for each, at in [(leaf, leaf.at), *self.placed.epilogue(leaf)]:
                computed = self.computed(each, at, values)
                self._held.update({id(w.buffer): v for w, v in zip(each.writes, computed, strict=True)})
                self.hold(computed, each.writes, values)
                result.append((computed, each, at))
        finally:
            self._held = before
        return result

    def store_all(
        self, computed: Sequence[tuple[Sequence[ir.Value], BlockLeaf, list[IndexExpr]]], values: LoopValues
    ) -> None:
        """Store the values of a block and of its epilogue."""
        for results, leaf, at in computed:
            for value, access in zip(results, leaf.writes, strict=True):
                if not access.is_held:
                    self.store(value, access, at, values)

    def loads(self, leaf: BlockLeaf, values: LoopValues) -> dict[int, list[ir.Value]]:
        """Load the elements that a block and its epilogue read without conditions."""
        blocks = [(leaf, leaf.at), *self.placed.epilogue(leaf)]
        written = [access.buffer for each, _ in blocks for access in each.writes]
        return {
            id(access): [self.load(access, at, values)]
            for each, at in blocks for access in each.reads
            if not access.is_opaque and access.inlined is None and access.outside is None and access.register is None
            and access.buffer not in written
        }  # fmt: skip

    def _store_results(
        self, results: Sequence[ir.Value], leaf: BlockLeaf, at: list[IndexExpr], values: LoopValues
    ) -> None:
        self.hold(results, leaf.writes, values)
        for value, access in zip(results, leaf.writes, strict=True):
            self._held[id(access.buffer)] = value
            if not access.is_held:
                self.store(value, access, at, values)

    def computed_from(
        self, emitted: Mapping[ir.Value, ir.Value], leaf: BlockLeaf, values: LoopValues
    ) -> list[ir.Value]:
        """Emit the values of a block at one point, of whose body these values are emitted already."""
        rest = [op for op in leaf.body.body_ops if op.results[0] not in emitted]
        return self.evaluate(KnownBody(rest, leaf.body.yielded, {}), leaf, leaf.at, values, emitted)

    def computed(self, leaf: BlockLeaf, at: list[IndexExpr], values: LoopValues) -> list[ir.Value]:
        """Emit the values of a block at one point, given the values of its axes."""
        if leaf.is_start:
            assert leaf.view is not None
            return [attribute_constant(attribute) for attribute in leaf.view.init]
        if leaf.view is None:
            return [self.read(leaf.reads[0], at, values)]
        pairs = zip(leaf.body.accumulators, leaf.writes, strict=False)
        former = {argument: self.read(access, at, values) for argument, access in pairs}
        return self.evaluate(leaf.body, leaf, at, values, former)

    def evaluate(
        self,
        body: ScalarBody,
        leaf: BlockLeaf,
        at: list[IndexExpr],
        values: LoopValues,
        former: Mapping[ir.Value, ir.Value],
    ) -> list[ir.Value]:
        """Emit the results of a body, given its former results, and those of operations that it lacks."""
        known = None
        if leaf.body.indices:
            known = self.placed.known(leaf, list(map(values.with_numbers, at)))
        env = {**self._environment(leaf, at, values, known), **former}
        # As one lane: an element that is a tail of vectors has the operations of these.
        return vector_body(body if known is None else known.rest(body), env, lanes=1)

    def _environment(
        self, leaf: BlockLeaf, at: list[IndexExpr], values: LoopValues, known: KnownValues | None
    ) -> dict[ir.Value, ir.Value]:
        """Emit the elements that the body of a block reads, without former results, and its known values."""
        env: dict[ir.Value, ir.Value] = {
            argument: values.emit(at[axis])
            for axis, argument in leaf.body.indices
            if known is None or argument in known.needed
        }
        around = self._inlined
        self._inlined = {} if around is None else around
        try:
            for argument, access in zip(leaf.body.inputs, leaf.reads, strict=True):
                if known is None or argument in known.needed:
                    env[argument] = self.read(access, at, values)
        finally:
            self._inlined = around
        return env if known is None else {**env, **known.emit(values.emit)}

    def read(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> ir.Value:
        if access.is_opaque:
            return self.placed[access.buffer].value
        if access.register is not None:
            return self.registers[register_of(access.register, access, values)]
        if id(access) in self.loaded:
            return self.loaded[id(access)]
        if id(access.buffer) in self._held:
            return self._held[id(access.buffer)]
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
        is_failed = any(all(test in tests for test in failed) for failed in self.failed)
        if is_failed or any(is_beyond(values.with_numbers(each), size, self.extents) for each, size in tests):
            return attribute_constant(access.outside)
        inside = self.all_inside(tests, values)
        if self.placed.in_threads and self.by_position(access, axes, values):
            self.position(access, axes, values)  # before the branch: elements next to this one share it
        return read_inside(inside, lambda: self.load(access, axes, values), access.outside)

    def load(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> ir.Value:
        placed = self.placed[access.buffer]
        if self.placed.is_constant(access.buffer):
            return self._load_once(access, axes, values)
        if self.by_position(access, axes, values):
            return memref.LoadOp(placed.flat, [self.position(access, axes, values)]).result
        return load(placed.value, placed.shape, self.address(access, axes, values))

    def _load_once(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> ir.Value:
        """Load an element of a thread that nothing writes, or return it where it is loaded already."""
        where = self.placed.simplified(values.with_numbers(self.placed.flat_index(access, axes)))
        key = id(access.buffer), where
        loaded = values.loaded(key)
        if loaded is None:
            loaded = [memref.LoadOp(self.placed[access.buffer].flat, [values.emit(where)]).result]
            values.keep_loaded(key, loaded)
        return loaded[0]

    def start(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> None:
        """Emit the start of the elements that loops inside of these access (`LoopValues.inside`)."""
        values.start(self.placed.flat_index(access, axes))
        for each, _ in edge_tests(access, self.placed.indices(access, axes), values, self.extents):
            values.start(each)

    def inside(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> ir.Value | None:
        """Emit whether the element of an access is within the bounds of its tensor; None if that is certain."""
        tests = edge_tests(access, self.placed.indices(access, axes), values, self.extents)
        return self.all_inside(tests, values) if tests else None

    def all_inside(self, tests: Sequence[EdgeTest], values: LoopValues) -> Value:
        """Emit whether all indices are within the bounds of their tensors."""
        # An unsigned comparison also covers negative indices.
        condition, *others = (values.emit(each).below(values.emit(size)) for each, size in tests)
        for other in others:
            condition = condition & other
        return condition

    def by_position(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> bool:
        """Return whether an element is addressed by its position, which has no divisions, unlike its indices."""
        if self.placed[access.buffer].is_flat or self.placed.in_threads:
            return True
        if not self.placed.has_views:
            return False
        indices = self.placed.in_memory(access, axes)
        if not any(values.with_numbers(index).divisions for index in indices):
            return False
        return not values.with_numbers(self.placed.flat_index(access, axes)).divisions

    def position(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> ir.Value:
        """Emit the position in memory of the element that a block with these axes accesses."""
        return values.emit(self.placed.simplified(values.with_numbers(self.placed.flat_index(access, axes))))

    def address(self, access: BufferAccess, axes: list[IndexExpr], values: LoopValues) -> list[ir.Value]:
        """Emit the indices in memory of the element that a block with these axes accesses."""
        return [values.emit(each) for each in self.placed.in_memory(access, axes)]
