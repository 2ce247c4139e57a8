"""One walk over the elements of some blocks, in vectors: elementwise blocks, and reductions over all of its loops.

Values that one block makes and a later one reads at the same place stay in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import for_loop
from mirlo.passes.schedule.vectors import lane_mask, splat
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.chunks import Chunks, can_mask, chunks, widest_bytes, work
from mirlo.targets.llvm.schedule.combine import Combiner
from mirlo.targets.llvm.schedule.evaluate import Frame, Memory, Point
from mirlo.targets.llvm.schedule.pieces import along
from mirlo.targets.llvm.schedule.space import Place, Space


class Sweep:
    """Emits the loops from `start` on, the last one in vectors; the loops before it are the caller's.

    `reductions` has the combiners by position of the block, `stored` the tensor values that go to memory, `held` those
    that are in registers already. `lanes` overrides how many there are.
    """

    def __init__(
        self,
        space: Space,
        start: int,
        memory: Memory,
        stored: set[Any],
        machine: Machine,
        reductions: Mapping[int, list[Combiner]] | None = None,
        held: dict[Any, Any] | None = None,
        lanes: int | None = None,
    ):
        self.space = space
        self.start = start
        self.memory = memory
        self.stored = stored
        self.held = held or {}
        self.by_position = reductions or {}
        self.combiners = [c for found in self.by_position.values() for c in found]
        places = space.places
        self.lanes = machine.lanes(widest_bytes(places)) if lanes is None else lanes
        heavy = work(places)
        self.unroll = 4 if self.combiners or heavy <= 12 else 2 if heavy <= 40 else 1
        self.last = len(space.extents) - 1
        self.has_loops = self.last >= start
        self.masked = self.has_loops and can_mask(places, self.last, machine)

    def emit(self, indices: Sequence[Any], parallel: bool = False) -> dict[Any, Any]:
        """Emit at the iteration `indices` of the outer loops. The scalars that came out, by tensor value."""
        if not self.has_loops:
            return self._single(indices)
        parallel = parallel and not self.combiners
        parts = [self.space] if self.combiners else along(self.space, self.last, self.lanes)
        walks = [_Vectors(self, part) for part in parts]
        begin: list[Any] = []
        if self.combiners:
            begin = walks[0].begin()
        totals = self._level(list(indices), walks, begin, parallel)
        return self._reduced(indices, walks[0].finish(totals)) if self.combiners else {}

    def elementwise(self, space: Space) -> list[Place]:
        """The blocks that do not reduce."""
        return [place for i, place in enumerate(space.places) if i not in self.by_position]

    def frame(self, space: Space, axis: int | None) -> Frame:
        made = {
            output.value: (place, value)
            for place in self.elementwise(space)
            for output, value in zip(place.block.outputs, place.roots, strict=True)
        }
        return Frame(self.memory, axis, made, self.held)

    def run(self, space: Space, point: Point) -> None:
        """All blocks at one point, and their stores."""
        for place in space.places:
            point.run(place)
        for place in self.elementwise(space):
            for output, value in zip(place.block.outputs, place.roots, strict=True):
                if output.value in self.stored:
                    point.store(place, output, point.find(value))

    def _single(self, indices: Sequence[Any]) -> dict[Any, Any]:
        """No loops: one scalar of each block."""
        point = Point(self.frame(self.space, None), indices)
        self.run(self.space, point)
        found = {
            output.value: point.find(value)
            for place in self.elementwise(self.space)
            for output, value in zip(place.block.outputs, place.roots, strict=True)
        }
        return {**found, **self._reduced(indices, [c.finish(point.find(c.contribution)) for c in self.combiners])}

    def _reduced(self, indices: Sequence[Any], scalars: Sequence[Any]) -> dict[Any, Any]:
        point = Point(self.frame(self.space, None), indices)
        results = {}
        following = iter(scalars)
        for position in self.by_position:
            place = self.space.places[position]
            for output in place.block.outputs:
                results[output.value] = next(following)
                if output.value in self.stored:
                    point.store(place, output, results[output.value])
        return results

    def _level(self, indices: list[Any], walks: list[_Vectors], carried: list[Any], parallel: bool) -> list[Any]:
        if len(indices) < self.last:
            return for_loop(
                0, self.space.extents[len(indices)], 1,
                lambda i, *held: self._level([*indices, i], walks, list(held), False), carried, parallel=parallel,
            )  # fmt: skip
        for walk in walks:
            carried = walk.emit(indices, carried, parallel)
        return carried


class _Vectors:
    """The innermost loop of a sweep, or a part of it.

    Carried are `unroll` partial results for each combiner, then one scalar each where the rest has fewer lanes.
    """

    def __init__(self, sweep: Sweep, space: Space):
        self.sweep = sweep
        self.space = space
        self.frame = sweep.frame(space, sweep.last)
        self.chunks: Chunks = chunks(space.extents[sweep.last], sweep.lanes, sweep.unroll, sweep.masked)

    def begin(self) -> list[Any]:
        combiners, count = self.sweep.combiners, self.chunks
        first = [splat(c.identity(), count.lanes) for c in combiners for _ in range(count.unroll)]
        return first + ([c.identity() for c in combiners] if count.has_narrow_rest else [])

    def emit(self, indices: list[Any], carried: list[Any], parallel: bool) -> list[Any]:
        outer = Point(self.frame, [*indices, None])
        for place in self.space.places:
            outer.run(place, skip=self.frame.varying(place))

        def step(starts: Sequence[Any], lanes: int, active: int, held: list[Any]) -> list[Any]:
            for slot, start in enumerate(starts):
                point = Point(self.frame, [*indices, start], lanes, active, outer)
                self.sweep.run(self.space, point)
                held = self._accumulate(point, held, slot)
            return held

        return self.chunks.emit(step, carried, parallel)

    def _accumulate(self, point: Point, carried: list[Any], slot: int) -> list[Any]:
        """What is carried after a vector; `slot` says which of the unrolled ones it is."""
        following = list(carried)
        combiners, unroll = self.sweep.combiners, self.chunks.unroll
        for i, combiner in enumerate(combiners):
            value = point.find(combiner.contribution)
            if point.lanes > 1:
                value = _only_active(combiner, splat(value, point.lanes), point)
            at = i * unroll + slot
            if point.lanes != self.chunks.lanes:
                at = len(combiners) * unroll + i
                value = combiner.horizontal(value) if point.lanes > 1 else value
            following[at] = combiner.combine(following[at], value)
        return following

    def finish(self, carried: list[Any]) -> list[Any]:
        """The scalar of each combiner."""
        combiners, count = self.sweep.combiners, self.chunks
        rests = carried[len(combiners) * count.unroll :]
        results = []
        for i, combiner in enumerate(combiners):
            partial = carried[i * count.unroll : (i + 1) * count.unroll]
            while len(partial) > 1:
                pairs = [combiner.combine(a, b) for a, b in zip(partial[::2], partial[1::2], strict=False)]
                partial = pairs + ([partial[-1]] if len(partial) % 2 else [])
            total = combiner.horizontal(partial[0]) if count.lanes > 1 else partial[0]
            results.append(combiner.finish(combiner.combine(total, rests[i]) if rests else total))
        return results


def _only_active(combiner: Combiner, value: Any, point: Point) -> Any:
    if point.active == point.lanes:
        return value
    on = lane_mask(point.lanes, point.active)
    return create("arith.select", value.type, on, value, splat(combiner.identity(), point.lanes))
