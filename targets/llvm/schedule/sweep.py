"""One walk over the elements of some blocks, in vectors: elementwise blocks, and reductions over all of its loops.

Values that one block makes and a later one reads at the same place stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.passes.schedule.vectors import lane_mask, splat
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.combine import Combiner
from mirlo.targets.llvm.schedule.evaluate import Frame, Point
from mirlo.targets.llvm.schedule.space import Place, Space

TRAPPING = (
    "arith.divsi",
    "arith.divui",
    "arith.remsi",
    "arith.remui",
    "arith.floordivsi",
    "arith.ceildivsi",
    "arith.ceildivui",
)
"""Operations that stop the program when the divisor is zero, as it may be in a lane that is off."""
_HEAVY = 12
"""What an intrinsic counts for, in plain operations."""


@dataclass(frozen=True)
class Chunks:
    """How a loop is cut into vectors: `main` elements, `unroll` vectors at a time; then (start, lanes, active) each."""

    lanes: int
    unroll: int
    main: int
    rest: tuple[tuple[int, int, int], ...]


def chunks(extent: int, lanes: int, unroll: int, masked: bool) -> Chunks:
    """Whole vectors, and at the end one under a mask, or a few of smaller powers of two."""
    while lanes > 1 and lanes // 2 >= extent:
        lanes //= 2
    if not masked and lanes > extent:
        lanes //= 2
    unroll = max(1, min(unroll, extent // lanes))
    step = lanes * unroll
    main = extent // step * step
    rest = []
    at = main
    while at < extent:
        left = extent - at
        width = lanes
        if left < lanes:
            # A power of two needs no mask.
            width = 1 << (left.bit_length() - 1)
            if masked and width != left:
                width *= 2
        rest.append((at, width, min(width, left)))
        at += min(width, left)
    return Chunks(lanes, unroll, main, tuple(rest))


def widest_bytes(places: Sequence[Place]) -> int:
    """Size of the largest element that is computed with; indices and i64 conversions of them left out."""
    sizes = [1]
    for place in places:
        for value in place.needed:
            kind = value.type
            if hasattr(kind, "shape") or str(kind) in ("index", "i1") or place.linear(value) is not None:
                continue
            sizes.append(element_bytes(kind))
        sizes += [element_bytes(output.element_type) for output in place.block.outputs]
    return max(sizes)


def traps(places: Sequence[Place]) -> bool:
    """Whether lanes that are off must not be computed."""
    for place in places:
        for op in place.block.body_ops:
            if op.name in TRAPPING:
                divisor = op.operands[1].owner
                if not hasattr(divisor, "operation") or divisor.operation.name != "arith.constant":
                    return True
    return False


def work(places: Sequence[Place]) -> int:
    """Operations per element, roughly."""
    total = 0
    for place in places:
        for value in place.needed:
            owner = value.owner
            name = owner.operation.name if hasattr(owner, "operation") else ""
            total += _HEAVY if name.startswith("tir.") else 1
    return total


@dataclass
class Reduction:
    """A block of the sweep that combines its contributions."""

    place: Place
    combiners: list[Combiner]


class Sweep:
    """Emits the loops from `start` on, the last one in vectors; the loops before it are the caller's."""

    def __init__(
        self,
        space: Space,
        start: int,
        frame: Frame,
        reductions: dict[int, list[Combiner]],
        stored: set[Any],
        machine: Machine,
        lanes: int | None = None,
    ):
        """`reductions`: combiners by position of the block; `stored`: the tensor values that go to memory."""
        self.space = space
        self.start = start
        self.frame = frame
        self.machine = machine
        self.reductions = [Reduction(space.places[i], c) for i, c in reductions.items()]
        self._elementwise = [place for i, place in enumerate(space.places) if i not in reductions]
        self.stored = stored
        self.vector_axis = len(space.extents) - 1 if len(space.extents) > start else None
        frame.axis = self.vector_axis
        places = space.places
        self.masked = machine.masked and not traps(places)
        lanes = machine.lanes(widest_bytes(places)) if lanes is None else lanes
        heavy = work(places)
        unroll = 4 if self.reductions or heavy <= 12 else 2 if heavy <= 40 else 1
        extent = space.extents[-1] if self.vector_axis is not None else 1
        self.chunks = chunks(extent, lanes, unroll, self.masked)

    def emit(self, indices: Sequence[Any], parallel: bool = False) -> dict[Any, Any]:
        """Emit at the iteration `indices` of the outer loops. The scalars that came out, by tensor value."""
        if self.vector_axis is None:
            return self._single(indices)
        lanes, unroll = self.chunks.lanes, self.chunks.unroll
        begin = [splat(c.identity(), lanes) for r in self.reductions for c in r.combiners for _ in range(unroll)]
        begin += [c.identity() for r in self.reductions for c in r.combiners if self._has_narrow_rest]
        totals = self._finish(self._level(list(indices), begin, parallel))
        return self._reduced(indices, totals)

    def _reduced(self, indices: Sequence[Any], totals: list[list[Any]]) -> dict[Any, Any]:
        point = Point(self.frame, indices)
        results = {}
        for reduction, scalars in zip(self.reductions, totals, strict=True):
            place = reduction.place
            for output, scalar in zip(place.block.outputs, scalars, strict=True):
                results[output.value] = scalar
                if output.value in self.stored:
                    point.store(place, output, scalar)
        return results

    @property
    def _has_narrow_rest(self) -> bool:
        """Whether some lanes of the rest cannot be added to the vectors of the main loop."""
        return any(lanes != self.chunks.lanes for _, lanes, _ in self.chunks.rest)

    def _single(self, indices: Sequence[Any]) -> dict[Any, Any]:
        """No loops: one scalar of each block."""
        point = Point(self.frame, indices)
        self._run(point)
        found = {
            o.value: point.find(v) for p in self._elementwise for o, v in zip(p.block.outputs, p.roots, strict=True)
        }
        totals = [[c.finish(point.find(c.contribution)) for c in r.combiners] for r in self.reductions]
        return {**found, **self._reduced(indices, totals)}

    def _level(self, indices: list[Any], carried: list[Any], parallel: bool) -> list[Any]:
        axis = len(indices)
        if axis == self.vector_axis:
            return self._vectors(indices, carried, parallel)
        extent = self.space.extents[axis]
        parallel = parallel and not self.reductions
        return for_loop(
            0, extent, 1, lambda i, *acc: self._level([*indices, i], list(acc), False), carried, parallel=parallel
        )

    def _vectors(self, indices: list[Any], carried: list[Any], parallel: bool) -> list[Any]:
        outer = Point(self.frame, [*indices, None])
        for place in self.space.places:
            outer.run(place, skip=self.frame.varying(place))
        lanes, unroll, main = self.chunks.lanes, self.chunks.unroll, self.chunks.main

        def step(first: Any, acc: list[Any]) -> list[Any]:
            for u in range(unroll):
                at = first if u == 0 else self._offset(first, u * lanes)
                acc = self._vector([*indices, at], lanes, lanes, outer, acc, u)
            return acc

        if main == lanes * unroll:
            carried = step(index(0), carried)
        elif main:
            parallel = parallel and not self.reductions
            carried = for_loop(0, main, lanes * unroll, lambda i, *acc: step(i, list(acc)), carried, parallel=parallel)
        for u, (at, width, active) in enumerate(self.chunks.rest):
            carried = self._vector([*indices, index(at)], width, active, outer, carried, u % unroll)
        return carried

    def _offset(self, first: Any, by: int) -> Any:
        return create("arith.addi", first.type, first, index(by))

    def _run(self, point: Point) -> None:
        for place in self.space.places:
            point.run(place)
        for place in self._elementwise:
            for output, value in zip(place.block.outputs, place.roots, strict=True):
                if output.value in self.stored:
                    point.store(place, output, point.find(value))

    def _vector(
        self, indices: list[Any], lanes: int, active: int, outer: Point, carried: list[Any], slot: int
    ) -> list[Any]:
        """One vector; returns the accumulators after it. `slot` says which of the unrolled ones it adds to."""
        point = Point(self.frame, indices, lanes, active, outer)
        self._run(point)
        following = list(carried)
        for number, combiner in enumerate(c for r in self.reductions for c in r.combiners):
            value = point.find(combiner.contribution)
            if lanes == self.chunks.lanes:
                place = number * self.chunks.unroll + slot
                following[place] = self._accumulate(combiner, following[place], value, lanes, active)
            else:
                place = self._vector_count + number
                following[place] = self._accumulate_rest(combiner, following[place], value, lanes, active)
        return following

    @property
    def _vector_count(self) -> int:
        return sum(len(r.combiners) for r in self.reductions) * self.chunks.unroll

    def _accumulate(self, combiner: Combiner, held: Any, value: Any, lanes: int, active: int) -> Any:
        return combiner.combine(held, self._only_active(combiner, splat(value, lanes), lanes, active))

    def _accumulate_rest(self, combiner: Combiner, held: Any, value: Any, lanes: int, active: int) -> Any:
        if lanes == 1:
            return combiner.combine(held, value)
        full = self._only_active(combiner, splat(value, lanes), lanes, active)
        return combiner.combine(held, combiner.horizontal(full))

    def _only_active(self, combiner: Combiner, value: Any, lanes: int, active: int) -> Any:
        if active == lanes:
            return value
        return create("arith.select", value.type, lane_mask(lanes, active), value, splat(combiner.identity(), lanes))

    def _finish(self, carried: list[Any]) -> list[list[Any]]:
        unroll = self.chunks.unroll
        results, position = [], 0
        rests: Iterator[Any] = iter(carried[self._vector_count :])
        for reduction in self.reductions:
            scalars = []
            for combiner in reduction.combiners:
                partial = carried[position : position + unroll]
                position += unroll
                while len(partial) > 1:
                    pairs = [combiner.combine(a, b) for a, b in zip(partial[::2], partial[1::2], strict=False)]
                    partial = pairs + ([partial[-1]] if len(partial) % 2 else [])
                total = combiner.horizontal(partial[0]) if self.chunks.lanes > 1 else partial[0]
                if self._has_narrow_rest:
                    total = combiner.combine(total, next(rests))
                scalars.append(combiner.finish(total))
            results.append(scalars)
        return results
