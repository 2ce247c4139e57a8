"""`Schedule.accumulate`: the results of a reduction in registers while a loop runs.

The loop and those inside carry one accumulator for each iteration of the unrolled loops inside, a vector where one of
them is vectorized. Several accumulators of one result, those of unrolled or vectorized loops of the reduction, are
combined after the loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import IndexExpr, loop_index
from mirlo.dialects.tir.block import Yield
from mirlo.dialects.tir.loops import ReduceThreads
from mirlo.dialects.tir.scalars import create
from mirlo.passes.schedule.blocks.combine import Reducer, in_pairs, reducer_of
from mirlo.passes.schedule.loops import ScalarBody, attribute_constant, either
from mirlo.passes.schedule.vectors import elements_of, may_trap, splat
from mirlo.passes.schedule.words.index import LoopValues
from mirlo.passes.schedule.words.lanes import (
    Contributions,
    EdgeTest,
    LoopLanes,
    has_all_lanes,
    mask_of_guards,
    sum_of_lanes,
    undecided_guards,
)
from mirlo.passes.schedule.words.memory import PlacedBuffers
from mirlo.passes.schedule.words.tree import (
    BOUND,
    LOCAL,
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    BlockLeaf,
    Guard,
    Loop,
    Root,
    ScheduleError,
    around,
    views_of,
)

Carried = list[ir.Value]
"""Values that loops carry from one iteration to the next."""


class LoopEmitter(Protocol):
    """What emits the loops and blocks of a schedule."""

    passed: frozenset[EdgeTest]
    """The tests of edges that all iterations pass which are emitted now."""

    def loop(self, loop: Loop, values: LoopValues, carried: Carried) -> Carried:
        """Emit a loop; return the accumulators after it."""

    def each_thread(self, loop: Loop, values: LoopValues, body: Callable[[LoopValues], None]) -> None:
        """Emit a loop that is bound to a hardware axis around what is in other loops."""

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

    def finish(self, results: Sequence[ir.Value], leaf: BlockLeaf, values: LoopValues) -> None:
        """Store the results of a block, and compute on them what is not computed anywhere else."""


MAX_ACCUMULATORS = 64
"""Most accumulators: no machine has more registers."""


def accumulate(root: Root, leaf: BlockLeaf, loop: Loop, in_order: bool = False) -> None:
    """Keep the results of a reduction in registers while a loop runs."""
    if not leaf.is_reduction or leaf.part != "whole" or leaf.view is None:
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
    if loop.accumulated is not None:
        raise ScheduleError(f"accumulate: '{loop.accumulated.name}' is in registers over '{loop.name}' already")
    if any(other.accumulated is not None for other in chain):
        raise ScheduleError(f"accumulate: '{loop.name}' is in a loop over which other results are in registers")
    loop.accumulated, loop.is_in_order, leaf.part = leaf, in_order, "registers"


@dataclass
class Accumulators:
    """The results of a reduction that are in registers while a loop runs."""

    loop: Loop
    leaf: BlockLeaf
    placed: PlacedBuffers

    def __post_init__(self) -> None:
        chain = around(self.leaf)
        inside = chain[chain.index(self.loop) :]
        reduced = self.leaf.reduce_loops()
        self.bound = [loop for loop in inside if loop.kind == BOUND]
        self.threads = [loop for loop in self.bound if loop.name in reduced]
        """The loops of the reduction whose iterations are threads."""
        vectors = [loop for loop in inside if loop.kind == VECTORIZED and loop.extent != 1]
        scalars = [loop for loop in vectors if not can_accumulate(self.leaf, loop, self.placed)]
        self.vector = vectors[0] if vectors and not scalars else None
        self.unrolled_loops = [loop for loop in inside if loop.kind == UNROLLED or loop in scalars]
        if self.loop.is_in_order:
            self.unrolled_loops = [loop for loop in self.unrolled_loops if loop.name not in reduced]
        self.spatial = [loop for loop in self.unrolled_loops if loop.name not in reduced]
        self.parts = [loop for loop in self.unrolled_loops if loop.name in reduced]
        self.is_summed = self.vector is not None and self.vector.name in reduced
        """Whether the lanes of a vector are parts of one result."""
        others = [loop for loop in inside if loop.name not in reduced and loop.kind == SERIAL and loop.extent != 1]
        if others or any(loop.kind == PARALLEL for loop in inside):
            found = others[0] if others else next(loop for loop in inside if loop.kind == PARALLEL)
            raise ScheduleError(
                f"accumulate: '{found.name}' is inside of '{self.loop.name}' and {found.kind}: unroll or vectorize it, "
                "so that each iteration has registers of its own"
            )
        if vectors and (len(vectors) > 1 or inside[-1] is not vectors[0] or len(vectors[0].body) > 1):
            raise ScheduleError(
                f"accumulate: '{vectors[0].name}' is vectorized: expected the innermost loop, around '{self.leaf.name}'"
            )
        assert self.leaf.view is not None
        self.view = self.leaf.view
        self.reducer = reducer_of(self.view)
        self.keys = list(itertools.product(*(range(D.static_dim(loop.extent)) for loop in self.unrolled_loops)))
        self._require_accumulators()

    def _require_accumulators(self) -> None:
        """Check that the block can be computed in parts, whose results fit the registers."""
        if self.reducer is None and self.has_parts:
            name = (self.parts or [self.vector or self.loop])[0].name
            raise ScheduleError(
                f"accumulate: '{self.leaf.name}' does not end with one operation on its former result, such as a sum: "
                f"'{name}', a loop of the reduction, can be neither unrolled nor vectorized"
            )
        if self.loop.is_in_order and (self.is_summed or self.threads):
            loop = self.threads[0] if self.threads else self.vector
            assert loop is not None
            raise ScheduleError(
                f"accumulate: '{loop.name}' is a loop of the reduction '{self.leaf.name}' and {loop.kind}, which makes "
                "partial results: leave in_order out, or the loop serial"
            )
        is_guarded = self.vector is not None and any(
            self.vector.name in guard.variables() for guard, _ in self.leaf.guards
        )
        if is_guarded and may_trap([op for view in views_of(self.leaf) for op in view.body_ops]):
            assert self.vector is not None
            raise ScheduleError(
                f"accumulate: '{self.leaf.name}' divides integers: '{self.vector.name}' cannot be vectors"
            )
        count = len(self.keys) * len(self.leaf.writes)
        if count > MAX_ACCUMULATORS:
            raise ScheduleError(
                f"accumulate: '{self.leaf.name}' has {count} accumulators in '{self.loop.name}': at most "
                f"{MAX_ACCUMULATORS}; unroll smaller loops"
            )

    @property
    def has_parts(self) -> bool:
        """Return whether several accumulators, lanes or threads are parts of one result."""
        return bool(self.parts) or self.is_summed or bool(self.threads)

    @property
    def lanes(self) -> int:
        return 1 if self.vector is None else D.static_dim(self.vector.extent)

    def emit(self, emitter: LoopEmitter, values: LoopValues) -> None:
        """Emit the loop, and store the results after it."""
        self._emit_in(self.bound, emitter, values)

    def _emit_in(self, threads: Sequence[Loop], emitter: LoopEmitter, values: LoopValues) -> None:
        if threads:
            emitter.each_thread(threads[0], values, lambda inside: self._emit_in(threads[1:], emitter, inside))
            return
        starts = self.reducer.identity() if self.has_parts and self.reducer is not None else self._init()
        starts = [splat(start, self.lanes) if self.lanes > 1 else start for start in starts]
        totals = emitter.loop(self.loop, values, starts * len(self.keys))
        self._store(emitter, values, totals)

    def _init(self) -> list[ir.Value]:
        return [attribute_constant(attribute) for attribute in self.view.init]

    def _slot(self, values: LoopValues) -> slice:
        """Return where the accumulators of this iteration of the unrolled loops are."""
        here = [values[loop.name] for loop in self.unrolled_loops]
        key = tuple(i for i in here if isinstance(i, int))
        width = len(self.leaf.writes)
        at = self.keys.index(key) * width
        return slice(at, at + width)

    def add_point(self, emitter: LoopEmitter, values: LoopValues, carried: Carried) -> Carried:
        """Emit one iteration of the reduction, and add to its accumulators."""
        slot, guards = self._slot(values), emitter.guards_of(self.leaf, values)
        if guards is None:
            return carried

        def add(held: Carried) -> Carried:
            leaf = self.leaf
            if self.has_parts and self.reducer is not None:
                body = Contributions.of(leaf.body, self.reducer)
                return self.reducer.combine(held, emitter.evaluate(body, leaf, leaf.at, values, {}))
            former = dict(zip(leaf.body.accumulators, held, strict=True))
            return emitter.evaluate(leaf.body, leaf, leaf.at, values, former)

        return _replaced(carried, slot, self._guarded(emitter, guards, values, carried[slot], add))

    def add_lanes(self, emitter: LoopEmitter, loop: Loop, values: LoopValues, carried: Carried) -> Carried:
        """Emit one iteration in each lane, and add to the accumulators."""
        slot, guards = self._slot(values), emitter.guards_of(self.leaf, values)
        if guards is None:
            return carried
        inside = [guard for guard in guards if loop.name in guard[0].variables()]

        def add(held: Carried) -> Carried:
            active = mask_of_guards(inside, loop, values)
            point = LoopLanes(self.leaf, loop, values, self.placed, active, emitter.passed)
            if self.reducer is not None and self.has_parts:
                return self.reducer.combine(held, point.contributions(self.reducer))
            return point.replaced(held)

        others = [guard for guard in guards if guard not in inside]
        return _replaced(carried, slot, self._guarded(emitter, others, values, carried[slot], add))

    def _guarded(
        self,
        emitter: LoopEmitter,
        guards: list[Guard],
        values: LoopValues,
        held: Carried,
        body: Callable[[Carried], Carried],
    ) -> Carried:
        condition = emitter.condition(guards, values)
        if condition is None:
            return body(held)
        return either(condition, lambda: body(held), lambda: held, [value.type for value in held])

    def _store(self, emitter: LoopEmitter, values: LoopValues, totals: Carried) -> None:
        """Combine the parts of each result, and store it."""
        reduced = self.leaf.reduce_loops()
        left = [loop for loop in around(self.leaf) if loop.name not in values]
        zero = {loop.name: 0 for loop in left if loop.name in reduced or loop.extent == 1}
        keys = itertools.product(*(range(D.static_dim(loop.extent)) for loop in self.spatial))
        places = [dict(zip((loop.name for loop in self.spatial), key, strict=True)) for key in keys]
        results = [self._partial(at, totals) for at in places]
        if self.threads:
            results = self._across_threads(results)
        is_local = all(access.buffer.scope == LOCAL for access in self.leaf.writes)
        # Each thread has the results, and the first one stores them where all would.
        first = [] if is_local else [(loop_index(loop.name), 1) for loop in self.threads]
        for at, result in zip(places, map(self._finished, results), strict=True):
            inside = values.at({**zero, **at})
            guards = emitter.guards_of(self.leaf, inside, frozenset(reduced))
            if guards is None:
                continue
            guards = [*first, *guards]
            if self.vector is None or self.is_summed:
                emitter.guarded(guards, inside, partial(emitter.finish, result, self.leaf, inside))
                continue
            masked = [guard for guard in guards if self.vector.name in guard[0].variables()]

            def store(made: Carried = result, inside: LoopValues = inside, masked: list[Guard] = masked) -> None:
                assert self.vector is not None
                active = mask_of_guards(masked, self.vector, inside)
                LoopLanes(self.leaf, self.vector, inside, self.placed, active).finish(made)

            emitter.guarded([guard for guard in guards if guard not in masked], inside, store)

    def _across_threads(self, results: list[Carried]) -> list[Carried]:
        """Reduce partial results over the threads of the reduction; each thread gets all of them."""
        assert self.reducer is not None
        lanes = [[elements_of(value) for value in result] for result in results]
        points = [list(point) for result in lanes for point in zip(*result, strict=True)]
        made = reduce_threads(self.reducer, points, [str(loop.thread) for loop in self.threads])
        if not isinstance(results[0][0].type, ir.VectorType):
            return made
        kinds = [value.type for value in results[0]]
        vectors: list[Carried] = []
        for at in range(0, len(made), self.lanes):
            columns = zip(kinds, zip(*made[at : at + self.lanes], strict=True), strict=True)
            vectors.append([create("vector.from_elements", kind, *column) for kind, column in columns])
        return vectors

    def _partial(self, at: dict[str, int], totals: Carried) -> Carried:
        """Return what the accumulators of one result add up to."""
        width = len(self.leaf.writes)
        if not self.parts:
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
        return sum_of_lanes(self.reducer, total, self.placed) if self.is_summed else total

    def _finished(self, total: Carried) -> Carried:
        """Return the outputs of one result: the initial values are counted once."""
        if not self.has_parts or self.reducer is None:
            return total
        starts = self._init()
        if self.lanes > 1 and not self.is_summed:
            starts = [splat(start, self.lanes) for start in starts]
        return [c.add(start, found) for c, start, found in zip(self.reducer.combiners, starts, total, strict=True)]


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


def can_accumulate(leaf: BlockLeaf, loop: Loop, placed: PlacedBuffers) -> bool:
    """Return whether the lanes of a loop have vectors as accumulators: of threads of GPUs, where all lanes exist."""
    if not placed.in_threads:
        return True
    guards = undecided_guards(leaf, LoopValues())
    return guards is not None and has_all_lanes(loop, [guard for guard, _ in guards])


def _replaced(carried: Carried, slot: slice, made: Carried) -> Carried:
    following = list(carried)
    following[slot] = made
    return following
