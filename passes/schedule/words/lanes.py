"""Vectorized loops of a schedule: one lane per iteration, with a mask where some iterations are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, UndecidedDim
from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, loop_index, number
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.scalars import Value, compare, create, emit_constant
from mirlo.passes.schedule.blocks import access as lane_access
from mirlo.passes.schedule.blocks.combine import Reducer, reducer_of
from mirlo.passes.schedule.loops import attribute_constant
from mirlo.passes.schedule.vectors import lane_mask, may_trap, splat, vector_body
from mirlo.passes.schedule.words.index import LoopValues
from mirlo.passes.schedule.words.memory import PlacedBuffers
from mirlo.passes.schedule.words.tree import (
    BlockBody,
    BlockLeaf,
    BufferAccess,
    Guard,
    Loop,
    around,
    extents_of,
    views_of,
)


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
    found = []
    for guard in leaf.guards:
        if guard in assumed or guard[0].variables() & ignored:
            continue
        index, bound = values.with_numbers(guard[0]), guard[1]
        if D.is_certain(partial(_is_below, index, bound, extents)):
            continue
        if D.is_certain(partial(_is_beyond, index, bound, extents)):
            return None
        found.append((guard, (index, bound)))
    return found


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
    if is_reduced and (leaf.part != "update" or leaf.view is None or reducer_of(leaf.view) is None):
        return False
    if placed.in_threads:
        return has_whole_lanes(leaf, loop, [guard for guard, _ in guards], placed, is_reduced)
    point = LoopLanes(leaf, loop, LoopValues(), placed, None, frozenset())
    return is_reduced or all(point.where(access, leaf.at).coefficient(loop.name) != 0 for access in leaf.writes)


def has_whole_lanes(
    leaf: BlockLeaf, loop: Loop, guards: Sequence[IndexExpr], placed: PlacedBuffers, is_reduced: bool
) -> bool:
    """Return whether the lanes of a loop access whole vectors, with these guards: threads of GPUs have no others."""
    point = LoopLanes(leaf, loop, LoopValues(), placed, None, frozenset())
    accesses = leaf.reads if is_reduced else (*leaf.reads, *leaf.writes)
    is_masked = any(loop.name in guard.variables() for guard in guards)
    return not is_masked and all(point.is_whole(access) for access in accesses)


def elements_of(value: ir.Value) -> list[ir.Value]:
    """Return the elements of a vector; a scalar is one."""
    if not isinstance(value.type, ir.VectorType):
        return [value]
    kind = value.type.element_type
    at = [ir.DenseI64ArrayAttr.get([lane]) for lane in range(value.type.shape[0])]
    return [create("vector.extract", kind, value, static_position=position) for position in at]


EdgeTest = tuple[IndexExpr, Dim]
"""An index that must not be negative and must be below a size."""


def edge_tests(
    access: BufferAccess, at: Sequence[IndexExpr], values: LoopValues, extents: dict[str, Dim]
) -> list[EdgeTest]:
    """Return the indices of an access that may be beyond the edges of the tensor, in loops of these extents."""
    if access.outside is None:
        return []
    tests = zip(at, access.buffer.shape, strict=True)
    return [
        (each, size)
        for each, size in tests
        if not D.is_certain(partial(_is_inside, values.with_numbers(each), size, extents))
    ]


def _is_inside(found: IndexExpr, size: Dim, extents: dict[str, Dim]) -> bool:
    low, high = found.range(extents)
    return bool(low >= 0 and high < size)


class LaneGuards(NamedTuple):
    """Which lanes are active: their mask, None for all of them, and the loops that it depends on."""

    mask: ir.Value | None
    loops: frozenset[str]


def mask_of_guards(guards: Sequence[Guard], loop: Loop, values: LoopValues) -> LaneGuards:
    """Emit the mask of the lanes of a loop that pass these guards."""
    mask: ir.Value | None = None
    loops: set[str] = set()
    lanes = D.static_dim(loop.extent)
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
    return LaneGuards(mask, frozenset(loops))


def _vector_index(expression: IndexExpr, loop: Loop, values: LoopValues) -> ir.Value:
    """Emit an index for each lane."""
    lanes = D.static_dim(loop.extent)
    step = expression.coefficient(loop.name)
    if step is not None:
        first = values.emit(expression.replace({loop.name: number(0)}))
        return splat(first, lanes) if step == 0 else lane_access.steps(first, step, lanes)
    total = Value(splat(index(expression.constant), lanes))
    for term, coefficient in expression.terms.items():
        if isinstance(term, FloorDiv):
            inner = _vector_index(term.inner, loop, values)
            part: ir.Value = create("arith.floordivsi", inner.type, inner, splat(index(term.divisor), lanes))
        else:
            part = _vector_index(loop_index(term), loop, values)
        total = total + Value(part) * splat(index(coefficient), lanes)
    return total


@dataclass
class LoopLanes:
    """One iteration of the loops around a vectorized one: what its lanes read, compute and write."""

    leaf: BlockLeaf
    loop: Loop
    values: LoopValues
    placed: PlacedBuffers
    mask: ir.Value | None
    """The active lanes; None for all of them."""
    masked_by: frozenset[str]
    """The loops that the mask depends on."""
    passed: frozenset[EdgeTest] = frozenset()
    """The tests of edges that all iterations pass."""

    @property
    def lanes(self) -> int:
        return D.static_dim(self.loop.extent)

    @property
    def active(self) -> int:
        return self.lanes

    @property
    def axis(self) -> str:
        return self.loop.name

    def _tests(self, access: BufferAccess, at: Sequence[IndexExpr]) -> list[EdgeTest]:
        extents = extents_of(around(self.leaf))
        return [test for test in edge_tests(access, at, self.values, extents) if test not in self.passed]

    # What `blocks/access.py` asks of a point

    def index(self, expression: IndexExpr) -> ir.Value:
        if expression.coefficient(self.axis) == 0:
            return self.first(expression)
        return _vector_index(expression, self.loop, self.values)

    def first(self, expression: IndexExpr) -> ir.Value:
        return self.values.emit(expression.replace({self.axis: number(0)}))

    def number(self, expression: IndexExpr) -> Dim | None:
        found = self.values.with_numbers(expression.replace({self.axis: number(0)}))
        return found.constant if found.is_constant else None

    # Memory

    def where(self, access: BufferAccess, axes: list[IndexExpr]) -> IndexExpr:
        """Return the position in memory of the element that a block with these axes accesses."""
        extents = extents_of(around(self.leaf))
        found = self.values.with_numbers(self.placed.flat_index(access, axes))
        try:
            simplified: IndexExpr = found.substitute(loop_index, extents)
        except (UndecidedDim, KeyError):
            return found
        return simplified

    def is_whole(self, access: BufferAccess) -> bool:
        """Return whether the lanes access one element, or elements next to each other, which all exist."""
        if access.is_opaque or access.inlined is not None or access.outside is not None:
            return False
        step = self.where(access, self.leaf.at).coefficient(self.axis)
        return step == 1 or step == 0 and all(access is not written for written in self.leaf.writes)

    def read(self, access: BufferAccess, axes: list[IndexExpr]) -> ir.Value:
        """Emit the elements that the lanes read: a scalar if it is the same one."""
        if access.is_opaque:
            return self.placed[access.buffer].value
        at = self.placed.indices(access, axes)
        if access.inlined is not None:
            return self.compute(access.inlined, at)[0]
        buffer, where, tests = (
            self.placed[access.buffer].flat,
            self.where(access, axes),
            [(self.values.with_numbers(each), size) for each, size in self._tests(access, at)],
        )
        if self.mask is not None and not tests and where.coefficient(self.axis) == 0:
            if where.variables() & self.masked_by:
                # Where no lane is active, there may be no element.
                kind = ir.VectorType.get([self.lanes], access.buffer.element)
                zero = splat(emit_constant(0, access.buffer.element), self.lanes)
                same = splat(self.first(where), self.lanes)
                return create("vector.gather", kind, buffer, index(0), same, self.mask, zero)
            return memref.LoadOp(buffer, [self.first(where)]).result
        if self.placed[access.buffer].threads is not None and where.coefficient(self.axis) != 0:
            elements = [memref.LoadOp(buffer, [place]).result for place in self._places(where)]
            return create("vector.from_elements", ir.VectorType.get([self.lanes], elements[0].type), *elements)
        return lane_access.read(self, buffer, where, tests, access.outside)

    def _places(self, where: IndexExpr) -> list[ir.Value]:
        """Emit the position of each lane: a thread's registers have no addresses."""
        return [self.values.emit(where.replace({self.axis: number(lane)})) for lane in range(self.lanes)]

    def write(self, value: ir.Value, access: BufferAccess) -> None:
        """Store an element for each lane."""
        buffer, where = self.placed[access.buffer].flat, self.where(access, self.leaf.at)
        full = splat(value, self.lanes)
        if self.placed[access.buffer].threads is not None:
            for element, place in zip(elements_of(full), self._places(where), strict=True):
                memref.StoreOp(element, buffer, [place])
            return
        if where.coefficient(self.axis) == 1:
            if self.mask is None:
                ir.Operation.create("vector.store", operands=[full, buffer, self.first(where)])
            else:
                ir.Operation.create("vector.maskedstore", operands=[buffer, self.first(where), self.mask, full])
            return
        mask = lane_mask(self.lanes, self.lanes) if self.mask is None else self.mask
        ir.Operation.create("vector.scatter", operands=[buffer, index(0), self.index(where), mask, full])

    # Values

    def compute(self, leaf: BlockLeaf, at: list[IndexExpr]) -> list[ir.Value]:
        """Emit the values of a block, one per lane or a scalar; `leaf` is the point's block or one inlined in it."""
        if leaf.part == "start":
            assert leaf.view is not None
            return [attribute_constant(attribute) for attribute in leaf.view.init]
        if leaf.view is None:
            return [self.read(leaf.reads[0], at)]
        env = self.environment(leaf, at)
        for argument, access in zip(leaf.body.accumulators, leaf.writes, strict=False):
            env[argument] = self.read(access, at)
        return vector_body(leaf.body, env, self.lanes, self.mask)

    def environment(self, leaf: BlockLeaf, at: list[IndexExpr]) -> dict[ir.Value, ir.Value]:
        """Emit what the body of a block reads, without its former results."""
        env: dict[ir.Value, ir.Value] = {argument: self.index(at[axis]) for axis, argument in leaf.body.indices}
        for argument, access in zip(leaf.body.inputs, leaf.reads, strict=True):
            env[argument] = self.read(access, at)
        return env

    def contributions(self, reducer: Reducer) -> list[ir.Value]:
        """Emit what each lane adds to the results of a reduction; inactive lanes add nothing."""
        env = self.environment(self.leaf, self.leaf.at)
        made = vector_body(Contributions.of(self.leaf.body, reducer), env, self.lanes, self.mask)
        made = [splat(value, self.lanes) for value in made]
        if self.mask is None:
            return made
        none = [splat(scalar, self.lanes) for scalar in reducer.identity()]
        return [create("arith.select", a.type, self.mask, a, b) for a, b in zip(made, none, strict=True)]

    def emit(self) -> None:
        """Emit the block's elements, one per lane."""
        leaf = self.leaf
        if self.axis not in leaf.reduce_loops() or leaf.part == "start":
            for value, access in zip(self.compute(leaf, leaf.at), leaf.writes, strict=True):
                self.write(value, access)
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
    return combine_pairwise(reducer, [list(lane) for lane in zip(*map(elements_of, vectors), strict=True)])


def combine_pairwise(reducer: Reducer, parts: list[list[ir.Value]]) -> list[ir.Value]:
    """Combine partial results in pairs, which do not wait for one another."""
    while len(parts) > 1:
        pairs = [reducer.combine(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]
