"""Code of blocks in an iteration of the loops around them: points and vectors, with the guards that they pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.passes.schedule.loops import either, when
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.lanes import (
    LaneGuards,
    LoopLanes,
    StoreLanes,
    can_vectorize,
    count_active_lanes,
    emit_streamed,
    mask_of_guards,
    narrowed,
    undecided_guards,
)
from mirlo.passes.schedule.primitives.memory import PlacedBuffers
from mirlo.passes.schedule.primitives.points import PointEmitter
from mirlo.passes.schedule.primitives.registers import Accumulators, Carried, RegisterResults
from mirlo.passes.schedule.primitives.tiles import clamped_values, keeps_tile
from mirlo.passes.schedule.primitives.tree import (
    BlockLeaf,
    Guard,
    Loop,
)


class BlockEmitter(PointEmitter):
    """Emits blocks at values of the loops around them."""

    def __init__(self, placed: PlacedBuffers, extents: dict[str, Dim]) -> None:
        super().__init__(placed, extents)
        self.assumed: frozenset[Guard] = frozenset()
        """The guards that all iterations pass which are emitted now."""
        self.incomplete: frozenset[Guard] = frozenset()
        """The guards that some points of each iteration do not pass which is emitted now."""
        self.stores: list[StoreLanes] | None = None
        """The stores of the unrolled iterations that are emitted now, which follow the loads of all of them."""
        self.ahead: list[dict[int, list[ir.Value]]] = []
        """What each vector of these iterations reads, which is loaded before them."""
        self.is_loading = False
        """Whether the loads of these iterations are emitted now."""
        self.accumulators: Accumulators | None = None
        """The results that are in registers in the loops which are emitted now."""

    def leaves(self, leaves: list[BlockLeaf], values: LoopValues, carried: Carried) -> Carried:
        """Emit a point of blocks with the same guards, one after the other; return the accumulators after them."""
        guards = self.guards_of(leaves[0], values)
        if guards is None:
            return carried
        if leaves[0].is_clamped:
            return self.clamped(leaves, guards, values, carried)
        results = self.results_of(leaves)

        def points(held: Carried) -> Carried:
            with self.assuming(frozenset(leaves[0].guards)):
                for leaf, result in zip(leaves, results, strict=True):
                    if result is None:
                        self.point(leaf, values)
                    else:
                        held = result.add_point(leaf, self, values, held)
            return held

        return self.carrying(guards, values, points, carried, self.slots(leaves, results, values))

    def clamped(
        self, leaves: Sequence[BlockLeaf], guards: Sequence[Guard], values: LoopValues, carried: Carried
    ) -> Carried:
        """Emit a point of blocks that read the last element where the iteration is past the end."""
        inside = clamped_values(guards, values)
        for leaf, result in zip(leaves, self.results_of(leaves), strict=True):
            if result is None:
                self.clamped_point(leaf, guards, values, inside)
            else:
                carried = result.add_point(leaf, self, inside, carried, self.elements_inside(leaf, guards, values))
        return carried

    def elements_inside(self, leaf: BlockLeaf, guards: Sequence[Guard], values: LoopValues) -> ir.Value | None:
        """Emit whether an iteration of a reduction passes the guards that its loops decide; None if there are none."""
        reduced = leaf.reduce_loops()
        return self.condition([guard for guard in guards if guard[0].variables() & reduced], values)

    def clamped_point(self, leaf: BlockLeaf, guards: Sequence[Guard], values: LoopValues, inside: LoopValues) -> None:
        """Emit a point of a block, and store its results if the iteration is not past the end."""
        if self.is_loading:
            self.ahead.append(self.loads(leaf, inside))
            return
        if self.stores is not None:
            self.loaded = {access: value for access, (value,) in self.ahead.pop(0).items()}
        computed = self.computed_with(leaf, inside)
        self.loaded = {}
        tests = [] if keeps_tile(leaf) else guards
        if all(access.is_held for _, each, _ in computed for access in each.writes):
            return

        def finish() -> None:
            self.guarded([*leaf.stored_by, *tests], values, partial(self.store_all, computed, values))

        finish() if self.stores is None else self.stores.append(finish)

    def results_of(self, leaves: Sequence[BlockLeaf]) -> list[RegisterResults | None]:
        """Return the results in registers that blocks compute."""
        return [None if self.accumulators is None else self.accumulators.of(leaf) for leaf in leaves]

    @staticmethod
    def slots(leaves: Sequence[BlockLeaf], results: Sequence[RegisterResults | None], values: LoopValues) -> list[int]:
        """Return the positions of the accumulators that blocks add to in an iteration."""
        pairs = zip(leaves, results, strict=True)
        return [at for leaf, result in pairs if result is not None for at in result.slot(leaf, values)]

    def guards_of(
        self, leaf: BlockLeaf, values: LoopValues, ignored: frozenset[str] = frozenset()
    ) -> list[Guard] | None:
        """Return the guards of a block that some iterations may not pass; None if no iteration passes all of them.

        Guards that depend on loops that are `ignored` do not count.
        """
        guards = undecided_guards(leaf, values, self.assumed, ignored)
        return None if guards is None else [guard for _, guard in guards]

    @contextmanager
    def assuming(self, guards: frozenset[Guard], incomplete: frozenset[Guard] = frozenset()) -> Iterator[None]:
        """Emit iterations that pass these guards, and in which some points do not pass those that are incomplete."""
        before = self.assumed, self.incomplete
        self.assumed, self.incomplete = self.assumed | guards, self.incomplete | incomplete
        try:
            yield
        finally:
            self.assumed, self.incomplete = before

    def carrying(
        self,
        guards: Sequence[Guard],
        values: LoopValues,
        body: Callable[[Carried], Carried],
        carried: Carried,
        changed: Sequence[int],
    ) -> Carried:
        """Emit a body, which changes some of the accumulators, for iterations that pass the guards."""
        condition = self.condition(guards, values)
        if condition is None:
            return body(carried)
        if not changed:
            when(condition, lambda: body(carried))
            return carried
        held = [carried[at] for at in changed]

        def then() -> Carried:
            values = body(carried)
            return [values[at] for at in changed]

        following = list(carried)
        results = either(condition, then, lambda: held, [value.type for value in held])
        for at, value in zip(changed, results, strict=True):
            following[at] = value
        return following

    def lanes(self, leaves: list[BlockLeaf], loop: Loop, values: LoopValues, carried: Carried) -> Carried | None:
        """Emit a vectorized loop around blocks as vector operations; None if that is not possible.

        One block after the other is computed for all lanes.
        """
        guards_by_leaf = [self.guards_of(leaf, values) for leaf in leaves]
        known = [guards for guards in guards_by_leaf if guards is not None]
        results = self.results_of(leaves)
        held = [(leaf, result) for leaf, result in zip(leaves, results, strict=True) if result is not None]
        if not all(result.is_vector(leaf, loop) for leaf, result in held):
            return None
        for leaf, guards in zip(leaves, guards_by_leaf, strict=True):
            if not held and guards is not None and not self.can_be_lanes(leaf, loop, guards):
                return None
        if not known:
            return carried
        is_mixed = any(leaf.is_clamped != leaves[0].is_clamped for leaf in leaves)
        if len(known) < len(leaves) or is_mixed or any(guards != known[0] for guards in known[1:]):
            for leaf, guards in zip(leaves, guards_by_leaf, strict=True):
                if guards is not None:
                    carried = self.guarded_lanes([leaf], loop, values, guards, carried)
            return carried
        return self.guarded_lanes(leaves, loop, values, known[0], carried)

    def narrowed(self, loop: Loop, guards: Sequence[Guard]) -> tuple[Loop, list[Guard]]:
        """Return a vectorized loop with only the lanes that iterations need, and the remaining guards."""
        inside = [guard for guard in guards if loop.name in guard[0].variables()]
        if self.placed.in_threads:
            return loop, list(guards)
        # A tail of 3 elements takes a vector of 4, one of 8 takes no mask.
        loop = narrowed(loop, inside)
        is_whole = count_active_lanes(inside, loop) == loop.extent
        return loop, [guard for guard in guards if guard not in inside] if is_whole else list(guards)

    def can_be_lanes(self, leaf: BlockLeaf, loop: Loop, guards: Sequence[Guard]) -> bool:
        """Return whether a block in a vectorized loop can be vector operations."""
        loop, guards = self.narrowed(loop, guards)
        return can_vectorize(leaf, loop, guards, self.placed)

    def guarded_lanes(
        self, leaves: list[BlockLeaf], loop: Loop, values: LoopValues, guards: list[Guard], carried: Carried
    ) -> Carried:
        """Emit blocks with the same guards as vector operations; return the accumulators after them."""
        results = self.results_of(leaves)
        if all(result is None for result in results):
            loop, guards = self.narrowed(loop, guards)
        inside = [guard for guard in guards if loop.name in guard[0].variables()]

        if leaves[0].is_clamped and guards and not inside:
            return self.clamped_lanes(leaves, loop, values, guards, carried)

        def vectors(held: Carried) -> Carried:
            if loop.extent == 1:
                for leaf in leaves:
                    self.point(leaf, values.at({loop.name: 0}))
                return held
            active = mask_of_guards(inside, loop, values)
            for leaf, result in zip(leaves, results, strict=True):
                if result is not None:
                    held = result.add_lanes(self.lanes_of(leaf, loop, values, active), held)
                else:
                    self.vector(leaf, loop, values, active)
            return held

        others = [guard for guard in guards if guard not in inside]
        return self.carrying(others, values, vectors, carried, self.slots(leaves, results, values))

    def clamped_lanes(
        self, leaves: list[BlockLeaf], loop: Loop, values: LoopValues, guards: list[Guard], carried: Carried
    ) -> Carried:
        """Emit vectors of blocks that read the last ones where the iteration is past the end."""
        inside = clamped_values(guards, values)
        whole = LaneGuards(D.static_dim(loop.extent))
        for leaf, result in zip(leaves, self.results_of(leaves), strict=True):
            lanes = self.lanes_of(leaf, loop, inside, whole)
            if result is not None:
                carried = result.add_lanes(lanes, carried, self.elements_inside(leaf, guards, values))
                continue
            if self.is_loading:
                self.ahead.append(lanes.load_ahead())
                continue
            if self.ahead:
                lanes.elements = self.ahead.pop(0)
            stores: list[StoreLanes] = []
            lanes.stores = stores
            lanes.emit()
            finish = partial(self.guarded, guards, values, partial(store_each, stores))
            if stores:
                finish() if self.stores is None else self.stores.append(finish)
        return carried

    def lanes_of(self, leaf: BlockLeaf, loop: Loop, values: LoopValues, guards: LaneGuards) -> LoopLanes:
        """Return the lanes of a block in a vectorized loop."""
        return LoopLanes(leaf, loop, values, self.placed, guards, self.passed, self.stores, registers=self.registers)

    def vector(self, leaf: BlockLeaf, loop: Loop, values: LoopValues, guards: LaneGuards) -> None:
        """Emit a block as vector operations."""
        lanes = self.lanes_of(leaf, loop, values, guards)
        if self.is_loading:
            self.ahead.append(lanes.load_ahead())
            return
        if self.ahead:
            lanes.elements = self.ahead.pop(0)
        if not leaf.is_streamed or self.stores is not None:
            lanes.emit()
            return
        stores: list[StoreLanes] = []
        lanes.stores = stores
        lanes.emit()
        emit_streamed(stores, leaf, self.placed)

    def point(self, leaf: BlockLeaf, values: LoopValues) -> None:
        if self.is_loading:
            self.ahead.append(self.loads(leaf, values))
            return
        if self.ahead:
            self.loaded = {access: value for access, (value,) in self.ahead.pop(0).items()}
        results = self.computed(leaf, leaf.at, values)
        self.loaded = {}
        finish = partial(self.finish_point, results, leaf, values)
        finish() if self.stores is None else self.stores.append(finish)


def store_each(stores: Sequence[StoreLanes]) -> None:
    for store in stores:
        store()
