"""Vectorized loops of a schedule: one lane per iteration, with a mask where some iterations are left out.

The primitive `stream` makes stores go past the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import NamedTuple, Protocol

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import Extents, IndexExpr, contiguous_strides, number
from mirlo.dialects.core.value import compare, create, emit_constant, index
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.passes.schedule.blocks.combine import Reducer, in_pairs, reducer_of
from mirlo.passes.schedule.loops import ScalarBody, attribute_constant, either
from mirlo.passes.schedule.primitives import lane_access
from mirlo.passes.schedule.primitives.analysis import KnownValues
from mirlo.passes.schedule.primitives.contiguity import is_beyond, is_within, position_of
from mirlo.passes.schedule.primitives.held import Register, register_of
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.lane_access import EdgeTest
from mirlo.passes.schedule.primitives.memory import PlacedBuffers
from mirlo.passes.schedule.primitives.tree import (
    VECTORIZED,
    BlockBody,
    BlockLeaf,
    BufferAccess,
    Guard,
    Loop,
    ScheduleError,
    Update,
    around,
    extents_of,
    placed_at,
    views_of,
)
from mirlo.passes.schedule.vectors import elements_of, lane_mask, may_trap, splat, vector_body
from mirlo.runtime.records import dataclass

WIDEST_ACCESS = 16
"""Most bytes that a thread of a GPU accesses at once."""


def undecided_guards(
    leaf: BlockLeaf, values: LoopValues, assumed: frozenset[Guard] = frozenset(), ignored: frozenset[str] = frozenset()
) -> list[tuple[Guard, Guard]] | None:
    """Return the guards of a block that some iterations may not pass, as they are and with the loops that are numbers.

    None if no iteration passes all of them. Those that are `assumed` are passed; those that depend on loops that are
    `ignored` do not count.
    """
    if not leaf.guards:
        return []
    extents = extents_of(around(leaf))
    guards = []
    for guard in leaf.guards:
        if guard in assumed or guard[0].variables() & ignored:
            continue
        index, bound = values.with_numbers(guard[0]), guard[1]
        if D.is_certain(partial(_is_below, index, bound, extents)):
            continue
        if D.is_certain(partial(_is_beyond, index, bound, extents)):
            return None
        guards.append((guard, (index, bound)))
    return guards


def _is_below(index: IndexExpr, bound: Dim, extents: dict[str, Dim]) -> bool:
    return bool(index.range(extents)[1] < bound)


def _is_beyond(index: IndexExpr, bound: Dim, extents: dict[str, Dim]) -> bool:
    return bool(index.range(extents)[0] >= bound)


def can_vectorize(leaf: BlockLeaf, loop: Loop, guards: Sequence[Guard], placed: PlacedBuffers) -> bool:
    """Return whether a loop around a block alone can be vector operations."""
    if not isinstance(loop.extent, int):
        return False
    views = list(views_of(leaf))
    bodies = [op for view in views for op in view.body_ops]
    if any(len(op.regions) or len(op.results) != 1 for op in bodies):
        return False
    if may_trap(bodies) and any(loop.name in guard.variables() for guard, _ in guards):
        return False
    is_reduced = loop.name in leaf.reduce_loops()
    if is_reduced and (not isinstance(leaf.form, Update) or leaf.view is None or reducer_of(leaf.view) is None):
        return False
    if placed.in_threads:
        return has_all_lanes(loop, guards)
    point = LoopLanes(leaf, loop, LoopValues(), placed, LaneGuards(loop.extent))
    places = [(access, leaf.at) for access in leaf.writes]
    places += [(access, placed_at(after.at, leaf.at)) for after in leaf.epilogue for access in after.writes]
    written = [point.where(access, at) for access, at in places if not access.is_held]
    return is_reduced or all(where.coefficient(loop.name) != 0 for where in written)


def has_all_lanes(loop: Loop, guards: Sequence[Guard]) -> bool:
    """Return whether all lanes of a loop are active, with these guards: threads of GPUs have no masks."""
    return not any(loop.name in guard.variables() for guard, _ in guards)


def edge_tests(access: BufferAccess, at: Sequence[IndexExpr], values: LoopValues, extents: Extents) -> list[EdgeTest]:
    """Return the indices of an access that may be beyond the edges of the tensor, in loops of these extents."""
    if access.outside is None:
        return []
    tests = zip(at, access.buffer.shape, strict=True)
    return [(each, size) for each, size in tests if not is_within(values.with_numbers(each), size, extents)]


def count_active_lanes(guards: Sequence[Guard], loop: Loop) -> int | None:
    """Return how many lanes of a loop, from the first on, pass these guards; None if only the run time knows."""
    lanes = active = D.static_dim(loop.extent)
    for expression, bound in guards:
        step = expression.coefficient(loop.name)
        if expression.variables() != {loop.name} or not isinstance(step, int) or step < 1:
            return None
        if not isinstance(expression.constant, int) or not isinstance(bound, int):
            return None
        active = min(active, -((expression.constant - bound) // step))
    return active if 0 < active <= lanes else None


def narrowed(loop: Loop, guards: Sequence[Guard]) -> Loop:
    """Return the loop with as few lanes, a power of two, as those that pass these guards need."""
    active = count_active_lanes(guards, loop)
    if active is None:
        return loop
    return replace(loop, extent=min(D.static_dim(loop.extent), 1 << (active - 1).bit_length()))


class LaneGuards(NamedTuple):
    """Which lanes are active: how many, from the first on; and their mask, where only the run time knows."""

    active: int
    mask: ir.Value | None = None
    loops: frozenset[str] = frozenset()
    """The loops that the mask depends on."""


def mask_of_guards(guards: Sequence[Guard], loop: Loop, values: LoopValues) -> LaneGuards:
    """Emit the mask of the lanes of a loop that pass these guards."""
    mask: ir.Value | None = None
    loops: set[str] = set()
    lanes = D.static_dim(loop.extent)
    active_lanes = count_active_lanes(guards, loop)
    if active_lanes is not None:
        return LaneGuards(active_lanes)
    kind = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
    for guard, bound in guards:
        loops |= guard.variables()
        if guard.coefficient(loop.name) == 1:
            left = values.emit(bound) - values.emit(guard.replace({loop.name: number(0)}))
            # LLVM compares lanes as 32 bits.
            active = left.minimum(values.emit(lanes)).maximum(values.emit(0))
            on = create("vector.create_mask", kind, active)
        else:
            on = compare("lt", _vector_index(guard, loop, values), splat(values.emit(bound), lanes))
        mask = on if mask is None else create("arith.andi", kind, mask, on)
    return LaneGuards(lanes, mask, frozenset(loops))


def _vector_index(expression: IndexExpr, loop: Loop, values: LoopValues) -> ir.Value:
    """Emit an index for each lane."""
    lanes = D.static_dim(loop.extent)

    def first(index: IndexExpr) -> ir.Value:
        return values.emit(index.replace({loop.name: number(0)}))

    return splat(lane_access.lane_index(expression, loop.name, first, lanes), lanes)


StoreLanes = Callable[..., None]
"""Emits a store of lanes: past the caches if it is given the bytes to which the memory is aligned."""


class TileMemory(Protocol):
    """The memory that lanes of a row of a tile access for all rows together."""

    def read(self, access: BufferAccess, axes: list[IndexExpr], at: list[IndexExpr]) -> ir.Value | None:
        """Return the elements that the lanes read; None if they load them by themselves."""

    def write(self, value: ir.Value, access: BufferAccess, axes: list[IndexExpr]) -> bool:
        """Take the elements that the lanes write; return whether they need not store them."""


@dataclass
class LoopLanes:
    """One iteration of the loops around a vectorized one: its lanes' reads, computations and writes."""

    leaf: BlockLeaf
    loop: Loop
    values: LoopValues
    placed: PlacedBuffers
    guards: LaneGuards
    """The active lanes."""
    passed: frozenset[EdgeTest] = frozenset()
    """The tests of edges that all iterations pass."""
    stores: list[StoreLanes] | None = None
    """Where stores go that follow the loads of other iterations."""
    lane: int | None = None
    """The lane that is emitted by itself: threads of GPUs compute scalars."""
    loaded: Mapping[int, ir.Value] = field(default_factory=dict)
    """The elements of this lane that are loaded before anything is computed, by the accesses' numbers."""
    elements: dict[int, list[ir.Value]] | None = None
    """Those of all lanes of a thread: one for each, or one that all of them read."""
    tile: TileMemory | None = None
    """The tile that this is a row of."""
    held: Mapping[int, ir.Value] = field(default_factory=dict)
    """The results that blocks computed on them read, by their buffers."""
    registers: dict[Register, ir.Value] = field(default_factory=dict)
    """The elements that blocks after this one read in registers."""
    inlined: dict[tuple[int, tuple[IndexExpr, ...]], ir.Value] = field(default_factory=dict, init=False)
    """The elements of inlined blocks that are emitted, each once."""

    @property
    def lanes(self) -> int:
        return D.static_dim(self.loop.extent)

    @property
    def active(self) -> int:
        return self.guards.active

    @property
    def mask(self) -> ir.Value | None:
        """Return the mask of active lanes, if only the run time knows them."""
        return self.guards.mask

    def _emit_mask(self) -> ir.Value | None:
        """Emit the mask of the active lanes; None for all of them."""
        return lane_mask(self.lanes, self.active) if self.active < self.lanes else self.mask

    @property
    def axis(self) -> str:
        return self.loop.name

    def _tests(self, access: BufferAccess, at: Sequence[IndexExpr]) -> list[EdgeTest]:
        if access.outside is None:
            return []
        extents = self.placed.extents
        return [test for test in edge_tests(access, at, self.values, extents) if test not in self.passed]

    # What `lane_access` asks of a point

    def index(self, expression: IndexExpr) -> ir.Value:
        if self.lane is not None or expression.coefficient(self.axis) == 0:
            return self.first(expression)
        return _vector_index(expression, self.loop, self.values)

    def first(self, expression: IndexExpr) -> ir.Value:
        return self._of_first_lane.emit(expression)

    def number(self, expression: IndexExpr) -> Dim | None:
        return self._of_first_lane.number(expression)

    @cached_property
    def _of_first_lane(self) -> LoopValues:
        return self.values.at({self.axis: self.lane or 0})

    # Memory

    def where(self, access: BufferAccess, axes: list[IndexExpr]) -> IndexExpr:
        """Return the position in memory of the element that a block with these axes accesses."""
        return self.placed.simplified(self.values.with_numbers(self.placed.flat_index(access, axes)))

    def read(self, access: BufferAccess, axes: list[IndexExpr]) -> ir.Value:
        """Emit the elements that the lanes read: a scalar if it is the same one."""
        if access.is_opaque:
            return self.placed[access.buffer].value
        if access.register is not None:
            return self._register(access.register, access)
        if id(access) in self.loaded:
            return self.loaded[id(access)]
        if id(access.buffer) in self.held:
            return self.held[id(access.buffer)]
        at = self.placed.indices(access, axes)
        if access.inlined is not None:
            element = (id(access.inlined), tuple(at))
            if element not in self.inlined:
                self.inlined[element] = self.compute(access.inlined, at)[0]
            return self.inlined[element]
        row = None if self.tile is None else self.tile.read(access, axes, at)
        if row is not None:
            return row
        buffer, where, tests = (
            self.placed[access.buffer].flat,
            self.where(access, axes),
            [(self.values.with_numbers(each), size) for each, size in self._tests(access, at)],
        )
        if any(is_beyond(each, size, self.placed.extents) for each, size in tests):
            return attribute_constant(access.outside)
        if self.mask is not None and not tests and where.coefficient(self.axis) == 0:
            if where.variables() & self.guards.loops:
                # Where no lane is active, there may be no element.
                kind = ir.VectorType.get([self.lanes], access.buffer.element)
                zero = splat(emit_constant(0, access.buffer.element), self.lanes)
                same = splat(self.first(where), self.lanes)
                return create("vector.gather", kind, buffer, index(0), same, self.mask, zero)
            return memref.LoadOp(buffer, [self.first(where)]).result
        if self.lane is not None and tests:
            self.first(where)  # before the branch: other lanes share what it is computed from
        return lane_access.read(self, buffer, where, tests, access.outside)

    def _register(self, write: BufferAccess, access: BufferAccess) -> ir.Value:
        """Return the element that a lane reads in a register, or those of all lanes."""
        if self.lane is not None or self.axis not in access.register_loops:
            return self.registers[register_of(write, access, self.values)]
        points = [self.values.at({self.axis: lane}) for lane in range(self.lanes)]
        elements = [self.registers[register_of(write, access, point)] for point in points]
        kind = ir.VectorType.get([self.lanes], elements[0].type)
        return create("vector.from_elements", kind, *elements)

    def _hold(self, value: ir.Value, access: BufferAccess) -> None:
        """Keep the results of the lanes for blocks that read them in registers."""
        if self.axis not in access.register_loops:
            self.registers[register_of(access, access, self.values)] = value
            return
        for lane, element in enumerate(elements_of(splat(value, self.lanes))):
            self.registers[register_of(access, access, self.values.at({self.axis: lane}))] = element

    def _alignment(self, where: IndexExpr, element: ir.Type) -> dict[str, ir.Attribute]:
        """Return the attribute of an access to a vector at a multiple of its length, if it is certain."""
        counts = [n for atom, n in where.terms.items() if atom != self.axis]
        if not D.is_certain(lambda: all(n % self.lanes == 0 for n in (*counts, where.constant))):
            return {}
        size = self.lanes * element_bytes(element)
        known = min(size & -size, WIDEST_ACCESS)
        return {"alignment": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), known)}

    def load_ahead(self) -> dict[int, list[ir.Value]]:
        """Load what the lanes of a thread read, before anything is computed: elements next to each other at once.

        Assemblers of GPUs do not move loads before branches, and address arithmetic may hide from LLVM that elements
        are next to each other. Reads under a condition, or at indices that a body computes, are left out.
        """
        elements: dict[int, list[ir.Value]] = {}
        for leaf, at in [(self.leaf, self.leaf.at), *self.placed.epilogue(self.leaf)]:
            for access in leaf.reads:
                if self._is_loaded_ahead(access):
                    elements[id(access)] = self._load_elements(access, at)
        return elements

    def _is_loaded_ahead(self, access: BufferAccess) -> bool:
        """Return whether each lane certainly reads an element of memory that is there before the block is computed."""
        if access.is_opaque or access.inlined is not None or access.outside is not None or access.register is not None:
            return False
        written = [*self.leaf.writes, *(each for after in self.leaf.epilogue for each in after.writes)]
        return all(each.buffer is not access.buffer for each in written)

    def _load_elements(self, access: BufferAccess, at: list[IndexExpr]) -> list[ir.Value]:
        where = self.where(access, at)
        step = where.coefficient(self.axis)
        if not self.placed.is_constant(access.buffer):
            return self._load_lanes(access, where, step)
        key = id(access.buffer), where.replace({self.axis: number(0)}), step, self.lanes
        loaded = None if step is None else self.values.loaded(key)
        if loaded is None:
            loaded = self._load_lanes(access, where, step)
            if step is not None:
                self.values.keep_loaded(key, loaded)
        return loaded

    def _load_lanes(self, access: BufferAccess, where: IndexExpr, step: Dim | None) -> list[ir.Value]:
        buffer = self.placed[access.buffer].flat
        if step == 1 and self.placed[access.buffer].threads is None:
            kind = ir.VectorType.get([self.lanes], access.buffer.element)
            attributes = {} if access.buffer.scope else self._alignment(where, access.buffer.element)
            return elements_of(create("vector.load", kind, buffer, self.first(where), **attributes))
        lanes = range(1 if step == 0 else self.lanes)
        return [memref.LoadOp(buffer, [self.values.at({self.axis: i}).emit(where)]).result for i in lanes]

    def write(self, value: ir.Value, access: BufferAccess, at: list[IndexExpr], past_caches: int = 0) -> None:
        """Store an element for each lane, of a block with these axes."""
        if self.tile is not None and self.tile.write(splat(value, self.lanes), access, at):
            return
        buffer, where = self.placed[access.buffer].flat, self.where(access, at)
        full = splat(value, self.lanes)
        if self.placed.in_threads and (access.buffer.scope or where.coefficient(self.axis) != 1):
            for lane, element in enumerate(elements_of(full)):
                place = self.values.at({self.axis: lane}).emit(where)
                memref.StoreOp(element, buffer, [place])
            return
        if self.placed.in_threads:
            alignment = self._alignment(where, access.buffer.element)
            ir.Operation.create("vector.store", operands=[full, buffer, self.first(where)], attributes=alignment)
            return
        mask = self._emit_mask()
        if where.coefficient(self.axis) == 1:
            if mask is None or self._has_room(access, at):
                hints: dict[str, ir.Attribute] = {}
                if past_caches:
                    lines = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), past_caches)
                    hints = {"nontemporal": ir.BoolAttr.get(True), "alignment": lines}
                ir.Operation.create("vector.store", operands=[full, buffer, self.first(where)], attributes=hints)
            else:
                ir.Operation.create("vector.maskedstore", operands=[buffer, self.first(where), mask, full])
            return
        mask = lane_mask(self.lanes, self.lanes) if mask is None else mask
        ir.Operation.create("vector.scatter", operands=[buffer, index(0), self.index(where), mask, full])

    def _has_room(self, access: BufferAccess, at: list[IndexExpr]) -> bool:
        """Return whether lanes that are not active have elements of a copy for themselves, which nothing reads."""
        if not self.placed.is_written_once(access.buffer):
            return False
        indices, sizes = self.placed.in_memory(access, at), self.placed[access.buffer].shape
        return all(is_within(each, size, self.placed.extents) for each, size in zip(indices, sizes, strict=True))

    # Values

    def compute(self, leaf: BlockLeaf, at: list[IndexExpr]) -> list[ir.Value]:
        """Emit the values of a block, one per lane or a scalar; `leaf` is the point's block or one inlined in it."""
        if leaf.is_start:
            assert leaf.view is not None
            return [attribute_constant(attribute) for attribute in leaf.view.init]
        if leaf.view is None:
            return [self.read(leaf.reads[0], at)]
        pairs = zip(leaf.body.accumulators, leaf.writes, strict=False)
        return self.evaluate(leaf.body, leaf, at, {argument: self.read(access, at) for argument, access in pairs})

    def evaluate(
        self, body: ScalarBody, leaf: BlockLeaf, at: list[IndexExpr], former: Mapping[ir.Value, ir.Value]
    ) -> list[ir.Value]:
        """Emit the results of a body, given its former results; threads of GPUs compute a scalar for each lane."""
        if not self.placed.in_threads or self.lane is not None:
            known = self._known(leaf, at)
            env = {**self.environment(leaf, at, known), **former}
            extract = partial(self._extract, leaf, at, known)
            return vector_body(body if known is None else known.rest(body), env, self.lanes, extract=extract)
        results, before = [], {name: elements_of(value) for name, value in former.items()}
        for lane, point in enumerate(self._points()):
            known = point._known(leaf, at)
            env = point.environment(leaf, at, known)
            env.update((name, parts[lane % len(parts)]) for name, parts in before.items())
            extract = partial(point._extract, leaf, at, known)
            results.append(vector_body(body if known is None else known.rest(body), env, 1, extract=extract))
        return [
            create("vector.from_elements", ir.VectorType.get([self.lanes], column[0].type), *column)
            for column in zip(*results, strict=True)
        ]

    def _points(self) -> list[LoopLanes]:
        """Return each lane of a thread by itself."""
        if self.elements is None:
            self.elements = self.load_ahead()
        held = {buffer: elements_of(value) for buffer, value in self.held.items()}
        return [
            replace(
                self, lane=lane, values=self.values.at({self.axis: lane}),
                loaded={access: parts[lane % len(parts)] for access, parts in self.elements.items()},
                held={buffer: parts[lane % len(parts)] for buffer, parts in held.items()},
            )
            for lane in range(self.lanes)
        ]  # fmt: skip

    def _extract(
        self,
        leaf: BlockLeaf,
        at: list[IndexExpr],
        known: KnownValues | None,
        op: ir.Operation,
        env: Mapping[ir.Value, ir.Value],
    ) -> ir.Value:
        """Emit the elements that a body reads by itself: whole vectors where an index is along the lanes."""
        tensor, *indices = op.operands
        access = leaf.reads[leaf.body.inputs.index(tensor)]
        linear = {argument: at[axis] for axis, argument in leaf.body.indices}
        linear |= {} if known is None else known.indices
        where, computed = IndexExpr(), list[tuple[ir.Value, Dim]]()
        for value, stride in zip(indices, contiguous_strides(access.buffer.shape), strict=True):
            if value in linear:
                where = where + linear[value] * stride
            else:
                computed.append((env[value], stride))
        where = self.placed.simplified(self.values.with_numbers(where))
        return lane_access.read_computed(self, self.placed[access.buffer].flat, where, computed)

    def _known(self, leaf: BlockLeaf, at: list[IndexExpr]) -> KnownValues | None:
        """Return the known values of the body of a block, for all iterations that are emitted now."""
        if leaf.view is None or not leaf.body.indices:
            return None
        return self.placed.known(leaf, list(map(self.values.with_numbers, at)))

    def environment(
        self, leaf: BlockLeaf, at: list[IndexExpr], known: KnownValues | None = None
    ) -> dict[ir.Value, ir.Value]:
        """Emit the elements that the body of a block reads, without its former results; return known values too."""
        env: dict[ir.Value, ir.Value] = {
            argument: self.index(at[axis])
            for axis, argument in leaf.body.indices
            if known is None or argument in known.needed
        }
        for argument, access in zip(leaf.body.inputs, leaf.reads, strict=True):
            if known is None or argument in known.needed:
                env[argument] = self.read(access, at)
        return env if known is None else {**env, **known.emit(self.index)}

    def contributions(self, reducer: Reducer) -> list[ir.Value]:
        """Emit the contribution of each lane to the results of a reduction; inactive lanes add nothing."""
        result = self.evaluate(Contributions.of(self.leaf.body, reducer), self.leaf, self.leaf.at, {})
        result, mask = [splat(value, self.lanes) for value in result], self._emit_mask()
        if mask is None:
            return result
        none = [splat(scalar, self.lanes) for scalar in reducer.identity()]
        return [create("arith.select", a.type, mask, a, b) for a, b in zip(result, none, strict=True)]

    def replaced(self, former: Sequence[ir.Value]) -> list[ir.Value]:
        """Emit the results of a reduction in each lane, given its former ones; inactive lanes keep these."""
        known = dict(zip(self.leaf.body.accumulators, former, strict=True))
        result = [splat(value, self.lanes) for value in self.evaluate(self.leaf.body, self.leaf, self.leaf.at, known)]
        # Inactive lanes of vectors with a known number of active ones hold values that nothing reads.
        if self.mask is None:
            return result
        return [create("arith.select", a.type, self.mask, a, b) for a, b in zip(result, former, strict=True)]

    def finish(self, results: Sequence[ir.Value]) -> None:
        """Store the results of the block, and compute its epilogue where that is not computed elsewhere."""
        held = dict[int, ir.Value]()

        def store(values: Sequence[ir.Value], leaf: BlockLeaf, at: list[IndexExpr]) -> None:
            for value, access in zip(values, leaf.writes, strict=True):
                held[id(access.buffer)] = value
                self._hold(value, access)
                if not access.is_held:
                    if leaf.is_streamed:
                        self.first(self.where(access, at))  # for both branches of the test of alignment
                    write = partial(self.write, value, access, at)
                    write() if self.stores is None else self.stores.append(write)

        store(results, self.leaf, self.leaf.at)
        for after, at in self.placed.epilogue(self.leaf):
            store(replace(self, held=dict(held)).compute(after, at), after, at)

    def emit(self) -> None:
        """Emit the block's elements, one per lane."""
        leaf = self.leaf
        if self.axis not in leaf.reduce_loops() or leaf.is_start:
            self.finish(self.compute(leaf, leaf.at))
            return
        assert leaf.view is not None
        reducer = reducer_of(leaf.view)
        assert reducer is not None
        totals = sum_of_lanes(reducer, self.contributions(reducer), self.placed)
        for combiner, total, access in zip(reducer.combiners, totals, leaf.writes, strict=True):
            buffer, where = self.placed[access.buffer].flat, self.where(access, leaf.at)
            place = self.first(where)
            before = memref.LoadOp(buffer, [place]).result
            memref.StoreOp(combiner.add(before, total), buffer, [place])


@dataclass(frozen=True)
class Contributions:
    """The part of a reduction's body that computes what is combined."""

    body_ops: Sequence[ir.Operation]
    yielded: list[ir.Value]

    @staticmethod
    def of(body: BlockBody, reducer: Reducer) -> Contributions:
        former = set(body.accumulators)
        kept = []
        for op in body.body_ops:
            if any(operand in former for operand in op.operands):
                former.update(op.results)
            else:
                kept.append(op)
        return Contributions(kept, reducer.contributions)


def sum_of_lanes(reducer: Reducer, vectors: list[ir.Value], placed: PlacedBuffers) -> list[ir.Value]:
    """Reduce all lanes to scalars."""
    if not placed.in_threads:
        return reducer.horizontal(vectors)
    # Threads of GPUs have short vectors, and no reductions of them.
    return in_pairs(reducer.combine, [list(lane) for lane in zip(*map(elements_of, vectors), strict=True)])


def stream(leaf: BlockLeaf) -> None:
    """Store the vectors of a block's result past the caches (non-temporal stores)."""
    loop = leaf.parent
    if not isinstance(loop, Loop) or loop.kind != VECTORIZED or loop.body != [leaf]:
        raise ScheduleError(f"stream: '{leaf.name}' is not alone in a vectorized loop")
    stored = [(access, access.at) for access in leaf.writes if not access.is_held]
    if leaf.is_reduction or len(stored) != 1 or leaf.epilogue:
        raise ScheduleError(f"stream: expected '{leaf.name}' to store one result, which is no reduction")
    ((access, _),) = stored
    position, lanes = position_of(access, leaf.place(access)), loop.extent
    assert isinstance(lanes, int), "vectors have a known length"
    size = lanes * element_bytes(access.buffer.element)
    if size & (size - 1):
        raise ScheduleError(f"stream: expected vectors of a power of two of bytes, found {size} in '{leaf.name}'")
    others = [count for atom, count in position.terms.items() if atom != loop.name]
    is_whole = D.is_certain(lambda: all(count % lanes == 0 for count in (*others, position.constant)))
    if position.coefficient(loop.name) != 1 or not is_whole:
        raise ScheduleError(f"stream: vectors of '{leaf.name}' do not begin at multiples of their {lanes} elements")
    leaf.is_streamed = True


def emit_streamed(stores: Sequence[StoreLanes], leaf: BlockLeaf, placed: PlacedBuffers) -> None:
    """Emit the stores of a block, past the caches if memory is aligned: arrays of callers may begin anywhere."""
    loop = leaf.parent
    assert isinstance(loop, Loop) and isinstance(loop.extent, int), "vectors have a known length"
    (access,) = (access for access in leaf.writes if not access.is_held)
    size = loop.extent * element_bytes(access.buffer.element)
    kind = ir.IndexType.get()
    address = create("memref.extract_aligned_pointer_as_index", kind, placed[access.buffer].flat)
    is_aligned = compare("eq", create("arith.andi", kind, address, index(size - 1)), index(0))

    def each(past_caches: int) -> None:
        for store in stores:
            store(past_caches)

    either(is_aligned, lambda: each(size), lambda: each(0))
