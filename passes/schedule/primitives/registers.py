"""`Schedule.accumulate`: the results of a reduction in registers while a loop runs.

The loop and those inside carry one accumulator for each iteration of the unrolled loops inside, a vector where one of
them is vectorized. Several accumulators of one result, those of unrolled or vectorized loops of the reduction, are
combined after the loop.

Sums of floats are computed in blocks: an accumulator adds up some tens of elements from zero, and is then added to the
one of the next larger block. The rounding error of a sum grows with the root of the additions that one accumulator
takes: 32,768 elements are 32 of 32 of 32, and their error is an eighteenth of that of a single accumulator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.dialects.core.value import create
from mirlo.dialects.tir.block import ReduceThreads, Yield
from mirlo.passes.schedule.blocks.combine import Reducer, in_pairs, reducer_of
from mirlo.passes.schedule.loops import ScalarBody, attribute_constant
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.lane_access import EdgeTest
from mirlo.passes.schedule.primitives.lanes import (
    Contributions,
    LaneGuards,
    LoopLanes,
    can_vectorize,
    has_all_lanes,
    mask_of_guards,
    sum_of_lanes,
    undecided_guards,
)
from mirlo.passes.schedule.primitives.memory import PlacedBuffers
from mirlo.passes.schedule.primitives.tree import (
    BOUND,
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Accumulation,
    BlockLeaf,
    BufferAccess,
    Guard,
    Loop,
    Root,
    ScheduleError,
    around,
    leaves_of,
    loops_of,
    parts_of_reduction,
    region_of,
    views_of,
)
from mirlo.passes.schedule.vectors import elements_of, may_trap, splat
from mirlo.runtime.records import dataclass

Carried = list[ir.Value]
"""Values that loops carry from one iteration to the next."""


class BlockEvaluator(Protocol):
    """The interface of emitters of blocks."""

    def evaluate(
        self,
        body: ScalarBody,
        leaf: BlockLeaf,
        at: list[IndexExpr],
        values: LoopValues,
        former: Mapping[ir.Value, ir.Value],
    ) -> list[ir.Value]:
        """Emit the results of a body, given its former results."""

    def guards_of(
        self, leaf: BlockLeaf, values: LoopValues, ignored: frozenset[str] = frozenset()
    ) -> list[Guard] | None:
        """Return the guards of a block that some iterations may not pass; None if no iteration passes all of them."""

    def guarded(self, guards: Sequence[Guard], values: LoopValues, body: Callable[[], None]) -> None:
        """Emit a body for iterations that pass the guards."""

    def condition(self, guards: Sequence[Guard], values: LoopValues) -> ir.Value | None:
        """Emit whether an iteration passes the guards; None if there are none."""

    def hold(self, results: Sequence[ir.Value], writes: Sequence[BufferAccess], values: LoopValues) -> None:
        """Keep the results of a block for blocks that read them in registers."""

    def finish(self, results: Sequence[ir.Value], leaf: BlockLeaf, values: LoopValues) -> None:
        """Store the results of a block, and compute its epilogue where that is not computed elsewhere."""

    def lanes_of(self, leaf: BlockLeaf, loop: Loop, values: LoopValues, guards: LaneGuards) -> LoopLanes:
        """Return the lanes of a block in a vectorized loop."""


class LoopEmitter(BlockEvaluator, Protocol):
    """The interface of emitters of the loops and blocks of a schedule."""

    passed: frozenset[EdgeTest]
    """The tests of edges that all iterations pass which are emitted now."""

    def loop(self, loop: Loop, values: LoopValues, carried: Carried) -> Carried:
        """Emit a loop; return the accumulators after it."""


MAX_ACCUMULATORS = 64
"""Most accumulators: no machine has more registers."""
SUM_BLOCK = 32
"""Elements that an accumulator of floats adds up from zero, where one loop has more."""
MIN_SUM_BLOCK = 8
"""Least elements of an inner loop that begins from zero in each iteration of the loop around it."""
MAX_BLOCK_LEVELS = 3
"""Blocks of blocks into which one loop is cut: a million elements are 32 of 32 of 32 of 32."""
LAST_BLOCKS = 8
"""Blocks that the last accumulator adds up: where elements have a mean, its error is that of the largest sums."""


def accumulate(root: Root, leaf: BlockLeaf, loop: Loop, in_order: bool = False) -> None:
    """Keep the results of a reduction in registers while a loop runs."""
    if not leaf.is_reduction or not leaf.is_whole or leaf.view is None:
        raise ScheduleError(f"accumulate: '{leaf.name}' is not a reduction, or is decomposed already")
    if loop not in around(leaf):
        raise ScheduleError(f"accumulate: '{leaf.name}' is not in '{loop.name}'")
    chain = around(leaf)
    reduced = leaf.reduce_loops()
    outside = [other.name for other in chain[: chain.index(loop)] if other.name in reduced]
    if outside or loop.name not in reduced:
        name = next(other.name for other in chain if other.name in reduced) if reduced else None
        raise ScheduleError(
            f"accumulate: expected the outermost loop of the reduction '{leaf.name}', "
            f"{f'{name!r}' if name else 'which has none'}, found '{loop.name}'"
        )
    if leaf.begin not in (None, leaf):
        assert leaf.begin is not None
        raise ScheduleError(f"accumulate: '{leaf.name}' continues '{leaf.begin.name}': name that one")
    parts = parts_of_reduction(root, leaf)
    region = _region(loop, parts)
    if any(other.accumulated for part in parts for other in around(part) if other not in region):
        raise ScheduleError(f"accumulate: '{loop.name}' is in a loop over which other results are in registers")
    if any(region_of(other) != region for other in region if other.accumulated):
        raise ScheduleError(f"accumulate: other results are in registers over some of the parts of '{loop.name}' only")
    accumulation = Accumulation(in_order)
    for each in region:
        each.accumulated = (*each.accumulated, accumulation)
    for part in parts:
        part.form = accumulation


def _region(loop: Loop, parts: Sequence[BlockLeaf]) -> list[Loop]:
    """Return the loops that compute a reduction, one after the other."""
    region = [loop]
    assert loop.parent is not None
    siblings = loop.parent.body
    for part in parts:
        outer = next((each for each in around(part) if each.parent is loop.parent), None)
        if outer in region:
            continue
        if outer is None or siblings.index(outer) != siblings.index(region[-1]) + 1:
            raise ScheduleError(
                f"accumulate: '{part.name}' continues the reduction '{parts[0].name}', and is not in a loop that "
                f"follows '{region[-1].name}'"
            )
        region.append(outer)
    return region


class Accumulators:
    """The results of reductions that are in registers while loops run, one after the other."""

    def __init__(self, loops: list[Loop], placed: PlacedBuffers) -> None:
        self.loops = loops
        self._results: dict[Accumulation, RegisterResults] = {}
        first = 0
        for accumulation in loops[0].accumulated:
            leaves = [leaf for loop in loops for leaf in leaves_of(loop) if leaf.form is accumulation]
            results = RegisterResults(loops, leaves, accumulation.is_in_order, placed, first)
            self._results[accumulation] = results
            first += results.count
        count = sum(each.count for each in self._results.values())
        if count > MAX_ACCUMULATORS:
            names = ", ".join(f"'{each.leaf.name}'" for each in self._results.values())
            raise ScheduleError(
                f"accumulate: {names} {'has' if len(self._results) == 1 else 'have'} {count} accumulators in "
                f"'{loops[0].name}': at most {MAX_ACCUMULATORS}; unroll smaller loops"
            )

    @cached_property
    def blocked(self) -> frozenset[str]:
        """Return the loops that begin from zero in each iteration of those around them."""
        return (
            frozenset(name for loop in self.loops for name in _blocked_loops(loop))
            if self._sums_floats
            else frozenset()
        )

    @cached_property
    def _sums_floats(self) -> bool:
        """Return whether floats are added up, over loops alone, and partial results can be combined."""
        results = list(self._results.values())
        return all(each.may_have_blocks for each in results) and any(each.sums_floats for each in results)

    def sum_blocks(self, loop: Loop, bounds: tuple[object, object]) -> list[int | None]:
        """Return the iterations of a loop that are added up from zero, largest blocks first; none of a short loop.

        None stands for those of which there are `LAST_BLOCKS`, where only the run time knows how many these are.
        """
        if not self._sums_floats or loop.kind != SERIAL:
            return []
        low, high = bounds
        # The lanes of a row are partial results, which are added up in pairs.
        is_last = loop in self.loops and not all(each.is_summed for each in self._results.values())
        sizes = [SUM_BLOCK**level for level in range(MAX_BLOCK_LEVELS, 0, -1)]
        if not isinstance(low, int) or not isinstance(high, int):
            return [*sizes[-1:]] if not is_last else [None] if self.blocked else [None, *sizes[-2:]]
        sizes = [size for size in sizes if high - low > (LAST_BLOCKS * size if size > SUM_BLOCK else 2 * size)]
        least = sizes[0] if sizes else 1
        last = -(-(high - low) // (LAST_BLOCKS * least)) * least
        has_last = is_last and last > least and (bool(sizes) or bool(self.blocked))
        return [last, *sizes] if has_last else [*sizes]

    def zeros(self) -> Carried:
        """Emit the identities of all accumulators."""
        return [zero for each in self._results.values() for zero in each.zeros()]

    def combine(self, before: Carried, block: Carried) -> Carried:
        """Add what a block has added up to the accumulators before it."""
        results = self._results.values()
        return [value for each in results for value in each.combine_all(before, block)]

    def of(self, leaf: BlockLeaf) -> RegisterResults | None:
        """Return the results that a block computes; None of a block whose results are not in registers."""
        return self._results.get(leaf.form) if isinstance(leaf.form, Accumulation) else None

    def emit(self, emitter: LoopEmitter, values: LoopValues) -> None:
        """Emit the loops, and store the results after them."""
        carried = [start for each in self._results.values() for start in each.starts()]
        for loop in self.loops:
            carried = emitter.loop(loop, values, carried)
        for each in self._results.values():
            each.store(emitter, values, carried[each.first : each.first + each.count])


@dataclass
class PartLoops:
    """The loops of one of the blocks that compute a reduction, inside of those over which it is in registers."""

    leaf: BlockLeaf
    vector: Loop | None
    unrolled: list[Loop]
    is_in_order: bool = False
    """Whether the lanes of a thread add to one result."""

    @cached_property
    def keys(self) -> list[tuple[int, ...]]:
        """Return the iterations of the unrolled loops."""
        return list(itertools.product(*(range(D.static_dim(loop.extent)) for loop in self.unrolled)))

    @property
    def lanes(self) -> int:
        """Return the lanes of an accumulator."""
        return 1 if self.vector is None or self.is_in_order else D.static_dim(self.vector.extent)


class RegisterResults:
    """The results of one reduction that are in registers.

    The first block decides their form: one vector, or several. Blocks that continue it with fewer lanes add up a
    separate scalar.
    """

    def __init__(
        self, loops: list[Loop], leaves: list[BlockLeaf], is_in_order: bool, placed: PlacedBuffers, first: int
    ) -> None:
        self.loop, self.leaf, self.placed, self.first = loops[0], leaves[0], placed, first
        self.is_in_order = is_in_order
        chain = around(self.leaf)
        inside = chain[chain.index(self.loop) :]
        reduced = self.leaf.reduce_loops()
        self.threads = [loop for loop in chain if loop.kind == BOUND and loop.name in reduced]
        """The loops of the reduction whose iterations are threads."""
        vectors = [loop for loop in inside if loop.kind == VECTORIZED and loop.extent != 1]
        scalars = [loop for loop in vectors if not can_accumulate(self.leaf, loop, self.placed)]
        self.vector = vectors[0] if vectors and not scalars else None
        self.unrolled_loops = [loop for loop in inside if loop.kind == UNROLLED or loop in scalars]
        if is_in_order:
            self.unrolled_loops = [loop for loop in self.unrolled_loops if loop.name not in reduced]
        self.spatial = [loop for loop in self.unrolled_loops if loop.name not in reduced]
        self.parts = [loop for loop in self.unrolled_loops if loop.name in reduced]
        self.is_summed = self.vector is not None and self.vector.name in reduced
        """Whether the lanes of a vector are parts of one result."""
        others = [loop for loop in inside if loop.name not in reduced and loop.kind == SERIAL and loop.extent != 1]
        if others or any(loop.kind == PARALLEL for loop in inside):
            wrong_loop = others[0] if others else next(loop for loop in inside if loop.kind == PARALLEL)
            raise ScheduleError(
                f"accumulate: '{wrong_loop.name}' is inside of '{self.loop.name}' and {wrong_loop.kind}: unroll or "
                "vectorize it, so that each iteration has registers of its own"
            )
        if vectors and not _is_innermost(vectors, inside):
            raise ScheduleError(
                f"accumulate: '{vectors[0].name}' is vectorized: expected the innermost loop, around '{self.leaf.name}'"
            )
        assert self.leaf.view is not None
        self.view = self.leaf.view
        self.reducer = reducer_of(self.view)
        self.adds_lanes = is_in_order and self.is_summed and placed.in_threads
        """Whether lanes add to one result, one after the other: a thread has no vectors."""
        self.identity: list[ir.Value] = []
        """What the registers start from, if nothing is added to it."""
        main = PartLoops(self.leaf, self.vector, self.unrolled_loops, self.adds_lanes)
        self.keys, self.lanes = main.keys, main.lanes
        self._parts = {id(leaf): self._part(leaf) for leaf in leaves[1:]} | {id(self.leaf): main}
        self.has_scalars = any(part.lanes != self.lanes for part in self._parts.values())
        """Whether blocks that continue the reduction have fewer lanes."""
        self._require_accumulators()

    @property
    def count(self) -> int:
        """Return how many registers there are."""
        return len(self.leaf.writes) * (len(self.keys) + int(self.has_scalars))

    def _part(self, leaf: BlockLeaf) -> PartLoops:
        """Return the loops of a block that continues the reduction."""
        inside = [loop for loop in around(leaf) if loop not in around(self.loop)]
        reduced = leaf.reduce_loops()
        spatial = [loop for loop in inside if loop.name not in reduced and loop.extent != 1]
        if spatial or self.spatial or self.vector is not None and not self.is_summed or self.threads:
            name = (spatial or self.spatial or self.threads or [self.loop])[0].name
            raise ScheduleError(
                f"accumulate: '{leaf.name}' continues the reduction '{self.leaf.name}', of one result, and '{name}' is "
                "no loop of the reduction: partition such a loop instead"
            )
        vectors = [loop for loop in inside if loop.kind == VECTORIZED and loop.extent != 1]
        if vectors and (not _is_innermost(vectors, inside) or self.is_in_order):
            raise ScheduleError(
                f"accumulate: '{vectors[0].name}' is vectorized: expected the innermost loop, around '{leaf.name}', "
                "and partial results"
            )
        unrolled = [] if self.is_in_order else [loop for loop in inside if loop.kind == UNROLLED]
        is_vector = bool(vectors) and can_accumulate(leaf, vectors[0], self.placed)
        part = PartLoops(leaf, vectors[0] if is_vector else None, unrolled if is_vector else [*unrolled, *vectors])
        if part.lanes > self.lanes or part.lanes == self.lanes and len(part.keys) > len(self.keys):
            raise ScheduleError(
                f"accumulate: '{leaf.name}' continues the reduction '{self.leaf.name}' with more registers: expected "
                f"at most {len(self.keys)} of {self.lanes} elements, found {len(part.keys)} of {part.lanes}"
            )
        return part

    def _require_accumulators(self) -> None:
        """Check that the block can be computed in parts, whose results fit the registers."""
        if self.reducer is None and self.has_parts:
            name = (self.parts or [self.vector or self.loop])[0].name
            raise ScheduleError(
                f"accumulate: '{self.leaf.name}' does not end with one operation on its former result, such as a sum: "
                f"'{name}', a loop of the reduction, can be neither unrolled nor vectorized"
            )
        if self.is_in_order and self.is_summed and not self.adds_lanes:
            assert self.vector is not None
            raise ScheduleError(
                f"accumulate: '{self.vector.name}' is a loop of the reduction '{self.leaf.name}' and vectorized, which "
                "makes partial results: leave in_order out, or the loop serial"
            )
        for part in self._parts.values():
            vector, leaf = part.vector, part.leaf
            is_guarded = vector is not None and any(vector.name in guard.variables() for guard, _ in leaf.guards)
            if is_guarded and may_trap([op for view in views_of(leaf) for op in view.body_ops]):
                assert vector is not None
                raise ScheduleError(f"accumulate: '{leaf.name}' divides integers: '{vector.name}' cannot be vectors")

    @property
    def has_parts(self) -> bool:
        """Return whether several accumulators, lanes or threads are parts of one result."""
        return bool(self.parts) or self.is_summed or bool(self.threads)

    @property
    def may_have_blocks(self) -> bool:
        """Return whether partial results of a thread can be combined."""
        return self.reducer is not None and not any(each.is_bool for each in self.reducer.combiners)

    @property
    def sums_floats(self) -> bool:
        """Return whether floats are added up."""
        combiners = self.reducer.combiners if self.reducer is not None else []
        return any(each.kind.op == "arith.addf" for each in combiners)

    def zeros(self) -> Carried:
        """Emit the identity for each register."""
        assert self.reducer is not None
        scalars = self.reducer.identity()
        starts = [splat(start, self.lanes) if self.lanes > 1 else start for start in scalars]
        return starts * len(self.keys) + (scalars if self.has_scalars else [])

    def combine_all(self, before: Carried, block: Carried) -> Carried:
        """Combine each register with that of a block."""
        assert self.reducer is not None
        width, end = len(self.leaf.writes), self.first + self.count
        places = range(self.first, end, width)
        return [v for at in places for v in self.reducer.combine(before[at : at + width], block[at : at + width])]

    def starts(self) -> list[ir.Value]:
        """Emit the values that the registers start from."""
        scalars = self.reducer.identity() if self.has_parts and self.reducer is not None else self._init()
        starts = [splat(start, self.lanes) if self.lanes > 1 else start for start in scalars]
        if self.has_parts and self.placed.in_threads:
            self.identity = starts
        return starts * len(self.keys) + (scalars if self.has_scalars else [])

    def _init(self) -> list[ir.Value]:
        return [attribute_constant(attribute) for attribute in self.view.init]

    def is_vector(self, leaf: BlockLeaf, loop: Loop) -> bool:
        """Return whether a loop around a block is lanes of its registers."""
        return self._parts[id(leaf)].vector is loop

    def slot(self, leaf: BlockLeaf, values: LoopValues) -> range:
        """Return the position of the accumulators of this iteration of the unrolled loops."""
        part, width = self._parts[id(leaf)], len(self.leaf.writes)
        here = [values[loop.name] for loop in part.unrolled]
        key = tuple(i for i in here if isinstance(i, int))
        at = part.keys.index(key) if part.lanes == self.lanes else len(self.keys)
        return range(self.first + at * width, self.first + (at + 1) * width)

    def add_point(
        self,
        leaf: BlockLeaf,
        emitter: BlockEvaluator,
        values: LoopValues,
        carried: Carried,
        inside: ir.Value | None = None,
    ) -> Carried:
        """Emit one iteration of the reduction, and add to its accumulators, `inside` of the loops only."""
        slot = self.slot(leaf, values)
        held = [carried[at] for at in slot]
        if self.has_parts and self.reducer is not None:
            body = Contributions.of(leaf.body, self.reducer)
            result = self._combine(held, emitter.evaluate(body, leaf, leaf.at, values, {}), inside)
        else:
            former = dict(zip(leaf.body.accumulators, held, strict=True))
            result = _selected(inside, emitter.evaluate(leaf.body, leaf, leaf.at, values, former), held)
        return _replaced(carried, slot, result)

    def add_lanes(self, point: LoopLanes, carried: Carried, inside: ir.Value | None = None) -> Carried:
        """Emit one iteration in each lane, and add to the accumulators, `inside` of the loops only."""
        slot = self.slot(point.leaf, point.values)
        held = [carried[at] for at in slot]
        if self.reducer is None or not self.has_parts:
            return _replaced(carried, slot, _selected(inside, point.replaced(held), held))
        values = point.contributions(self.reducer)
        if self.adds_lanes:
            for lane in zip(*map(elements_of, values), strict=True):
                held = self._combine(held, list(lane), inside)
            return _replaced(carried, slot, held)
        if point.lanes != self.lanes:
            values = sum_of_lanes(self.reducer, values, self.placed)
        return _replaced(carried, slot, self._combine(held, values, inside))

    def _combine(self, held: Carried, values: Carried, inside: ir.Value | None) -> Carried:
        """Add to accumulators; elements that are not inside of the loops add nothing."""
        assert self.reducer is not None
        if inside is not None:
            none = self.reducer.identity()
            none = none if self.lanes == 1 else [splat(value, self.lanes) for value in none]
            values = _selected(inside, values, none)
        return values if self.identity and held == self.identity else self.reducer.combine(held, values)

    def store(self, emitter: LoopEmitter, values: LoopValues, totals: Carried) -> None:
        """Combine the parts of each result, and store it."""
        reduced = self.leaf.reduce_loops()
        left = [loop for loop in around(self.leaf) if loop.name not in values]
        zero = {loop.name: 0 for loop in left if loop.name in reduced or loop.extent == 1}
        keys = itertools.product(*(range(D.static_dim(loop.extent)) for loop in self.spatial))
        places = [dict(zip((loop.name for loop in self.spatial), key, strict=True)) for key in keys]
        results = [self._partial(at, totals) for at in places]
        if self.threads:
            results = self._across_threads(results)
        for at, result in zip(places, map(self._finished, results), strict=True):
            inside = values.at({**zero, **at})
            guards = emitter.guards_of(self.leaf, inside, frozenset(reduced))
            if guards is None:
                continue
            # Each thread has the results, and the first one stores them where all would.
            guards = [*self.leaf.stored_by, *guards]
            if self.vector is None or self.is_summed:
                emitter.hold(result, self.leaf.writes, inside)
                if self.leaf.epilogue or not all(access.is_held for access in self.leaf.writes):
                    emitter.guarded(guards, inside, partial(emitter.finish, result, self.leaf, inside))
                continue
            masked = [guard for guard in guards if self.vector.name in guard[0].variables()]

            def store(registers: Carried = result, inside: LoopValues = inside, masked: list[Guard] = masked) -> None:
                assert self.vector is not None
                active = mask_of_guards(masked, self.vector, inside)
                emitter.lanes_of(self.leaf, self.vector, inside, active).finish(registers)

            emitter.guarded([guard for guard in guards if guard not in masked], inside, store)

    def _across_threads(self, results: list[Carried]) -> list[Carried]:
        """Reduce partial results over the threads of the reduction; each thread gets all of them."""
        assert self.reducer is not None
        lanes = [[elements_of(value) for value in result] for result in results]
        points = [list(point) for result in lanes for point in zip(*result, strict=True)]
        reduced = reduce_threads(self.reducer, points, [str(loop.thread) for loop in self.threads])
        if not isinstance(results[0][0].type, ir.VectorType):
            return reduced
        kinds = [value.type for value in results[0]]
        vectors: list[Carried] = []
        for at in range(0, len(reduced), self.lanes):
            columns = zip(kinds, zip(*reduced[at : at + self.lanes], strict=True), strict=True)
            vectors.append([create("vector.from_elements", kind, *column) for kind, column in columns])
        return vectors

    def _partial(self, at: dict[str, int], totals: Carried) -> Carried:
        """Return the sum of the accumulators of one result."""
        width = len(self.leaf.writes)
        if not self.parts and not self.has_scalars:
            first = width * self.keys.index(tuple(at[loop.name] for loop in self.unrolled_loops))
            total = totals[first : first + width]
            return sum_of_lanes(self.reducer, total, self.placed) if self.is_summed and self.reducer else total
        parts = []
        for position, key in enumerate(self.keys):
            here = dict(zip((loop.name for loop in self.unrolled_loops), key, strict=True))
            if all(here[name] == i for name, i in at.items()):
                parts.append(totals[position * width : (position + 1) * width])
        if not self.has_parts or self.reducer is None:
            return parts[0]
        total = in_pairs(self.reducer.combine, parts)
        total = sum_of_lanes(self.reducer, total, self.placed) if self.is_summed else total
        return self.reducer.combine(total, totals[len(self.keys) * width :]) if self.has_scalars else total

    def _finished(self, total: Carried) -> Carried:
        """Return the outputs of one result: the initial values are counted once."""
        if not self.has_parts or self.reducer is None:
            return total
        starts = self._init()
        if self.lanes > 1 and not self.is_summed:
            starts = [splat(start, self.lanes) for start in starts]
        return [c.add(start, value) for c, start, value in zip(self.reducer.combiners, starts, total, strict=True)]


def _blocked_loops(outer: Loop) -> Iterator[str]:
    """Yield the serial loops in a loop that begin from zero, so that no accumulator adds up many elements."""
    loops, added = [loop for loop in [outer, *loops_of(outer)] if loop.kind == SERIAL], 1
    for inner, loop in zip([None, *loops[::-1]], loops[::-1], strict=False):
        extent = D.estimate_dim(loop.extent)
        if inner is not None and extent > 1 and added >= MIN_SUM_BLOCK and added * extent > 2 * SUM_BLOCK:
            yield inner.name
            added = 1
        added *= extent


def reduce_threads(reducer: Reducer, points: list[Carried], axes: Sequence[str]) -> list[Carried]:
    """Emit the reduction of some partial results over all threads of these hardware axes."""
    values = [value for point in points for value in point]
    types = [value.type for value in values]
    result = ReduceThreads.build(values, result_types=types, threads=axes)
    block = result.operation.regions[0].blocks.append(*types, *types)
    arguments, width = list(block.arguments), len(points[0])
    with ir.InsertionPoint(block):
        threads: Carried = []
        for at in range(0, len(values), width):
            threads += reducer.combine(arguments[at : at + width], arguments[len(values) + at :][:width])
        Yield.build(threads, result_types=[])
    results: Carried = list(result.operation.results)
    return [results[at : at + width] for at in range(0, len(values), width)]


def _is_innermost(vectors: Sequence[Loop], inside: Sequence[Loop]) -> bool:
    """Return whether one loop is vectorized, which has nothing but blocks in it."""
    return len(vectors) == 1 and inside[-1] is vectors[0] and all(isinstance(n, BlockLeaf) for n in vectors[0].body)


def can_accumulate(leaf: BlockLeaf, loop: Loop, placed: PlacedBuffers) -> bool:
    """Return whether the lanes of a loop have vectors as accumulators: of threads of GPUs, where all lanes exist.

    What other blocks in the loop compute must be vectors too.
    """
    if not placed.in_threads:
        others = [other for other in leaves_of(loop) if not isinstance(other.form, Accumulation)]
        return all(can_vectorize(other, loop, other.guards, placed) for other in others)
    guards = undecided_guards(leaf, LoopValues())
    return guards is not None and has_all_lanes(loop, [guard for guard, _ in guards])


def _selected(inside: ir.Value | None, values: Carried, others: Carried) -> Carried:
    """Emit values where a condition holds, and others where it does not."""
    if inside is None:
        return values
    return [create("arith.select", a.type, inside, a, b) for a, b in zip(values, others, strict=True)]


def _replaced(carried: Carried, slot: range, result: Carried) -> Carried:
    following = list(carried)
    following[slot.start : slot.stop] = result
    return following
