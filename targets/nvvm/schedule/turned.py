"""Elementwise blocks that read a tensor across how they write: tiles of it are turned in shared memory.

Threads side by side read neighbours of the one, and write neighbours of the other; without this each of their reads
would be a piece of memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from mirlo.dialects.bindings import memref
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.view import OperandView
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.blocks.contraction.body import count_operations
from mirlo.passes.schedule.blocks.evaluate import Frame, Memory, Point
from mirlo.passes.schedule.blocks.group import Group
from mirlo.passes.schedule.blocks.space import Place
from mirlo.passes.schedule.loops import index
from mirlo.targets.gpu.schedule.launch import Ids, add, barrier, launch, less, multiply, shared, split, when
from mirlo.targets.gpu.schedule.neighbours import load_together
from mirlo.targets.gpu.schedule.points import PointsPlan, plan_points

THREADS = 256
"""Of a block."""
EDGES = (64, 32)
"""Of a tile: the first where blocks are enough."""
SHORTEST = 16
"""A loop that is shorter is not worth a tile."""
BANK = 4
"""Bytes of a bank; lines of a tile are as many longer, so that a column of it lies in different banks."""
MOST_CODE = 600
"""Operations of a thread."""
MOST_SHARED = 48 * 1024
"""Bytes of tiles."""
BUSY = 256
"""Blocks that keep a device busy."""


@dataclass
class TurnedPlan:
    """Elementwise blocks over one domain, some of whose operands lie along another loop than what is written."""

    name = "turned"

    points: PointsPlan
    along: int
    """The loop along which these operands lie; what is written lies along the last one."""
    edge: int
    across: list[tuple[Place, Any, OperandView]] = field(default_factory=list)
    """These operands, with their blocks and what they are called in their bodies."""

    def emit(self, memory: Memory) -> None:
        """Emit the launch at the insertion point."""
        self.points.touch(memory)
        extents = self.points.space.extents
        last = len(extents) - 1
        self.memory = memory
        self.others = [axis for axis in range(last) if axis != self.along]
        self.grid = [
            *(extents[axis] for axis in self.others),
            *(-(-extents[a] // self.edge) for a in (self.along, last)),
        ]
        launch(prod(self.grid), THREADS, self._block)

    def _block(self, ids: Ids) -> None:
        *outer, down, across = split(ids.block, self.grid)
        line, lane = split(ids.thread, [THREADS // self.edge, self.edge])
        self.corner = (multiply(down, self.edge), multiply(across, self.edge))
        self.outer = outer
        tiles = [self._tile(operand) for _, _, operand in self.across]
        # Lines of the tile run along the last loop: neighbours of the operand lie in one.
        read = []
        for number in self._lines(line):
            point = self._point(lane, number)
            read.append([point.read(place, operand) for place, _, operand in self.across])
        for number, values in zip(self._lines(line), read, strict=True):
            for value, (tile, pitch) in zip(values, tiles, strict=True):
                memref.StoreOp(value, tile, [add(multiply(number, pitch), lane)])
        barrier()
        points = [self._turned(number, lane, tiles) for number in self._lines(line)]
        self._compute(points, list(self._lines(line)), lane)

    def _lines(self, line: Any) -> Iterator[Any]:
        for first in range(0, self.edge, THREADS // self.edge):
            yield add(line, first) if first else line

    def _tile(self, operand: OperandView) -> tuple[Any, int]:
        pitch = self.edge + max(1, BANK // element_bytes(operand.element_type))
        return shared(self.edge * pitch, operand.element_type), pitch

    def _point(self, down: Any, across: Any, given: dict[Any, Any] | None = None) -> Point:
        """The point of a place in the tile; beyond an edge, one that is there."""
        extents = self.points.space.extents
        indices: list[Any] = [None] * len(extents)
        for axis, value in zip(self.others, self.outer, strict=True):
            indices[axis] = value
        for axis, corner, own in zip((self.along, len(extents) - 1), self.corner, (down, across), strict=True):
            at = add(corner, own)
            if extents[axis] % self.edge:
                at = create("arith.minui", at.type, at, index(extents[axis] - 1))
            indices[axis] = at
        return Point(Frame(self.memory, None, self.points.made), indices, given=given)

    def _turned(self, down: Any, across: Any, tiles: list[tuple[Any, int]]) -> Point:
        """The point of a place in the tile, which is given what was read across."""
        given = {}
        for (_, argument, _), (tile, pitch) in zip(self.across, tiles, strict=True):
            given[argument] = memref.LoadOp(tile, [add(multiply(across, pitch), down)]).result
        point = self._point(down, across, given)
        load_together([point], self.points.space.places, len(self.points.space.extents) - 1)
        return point

    def _compute(self, points: list[Point], lines: list[Any], lane: Any) -> None:
        for point in points:
            for place in self.points.space.places:
                point.run(place)
        for point, line in zip(points, lines, strict=True):
            when(self._exists(line, lane), partial(self.points.store, [point]))

    def _exists(self, down: Any, across: Any) -> Any:
        """Whether a place in the tile is one of the tensor's; None where all are."""
        extents = self.points.space.extents
        condition = None
        for axis, corner, own in zip((self.along, len(extents) - 1), self.corner, (down, across), strict=True):
            if extents[axis] % self.edge:
                test = less(add(corner, own), extents[axis])
                condition = test if condition is None else create("arith.andi", test.type, condition, test)
        return condition


def plan_turned(group: Group) -> TurnedPlan | Decline:
    """How to compute elementwise blocks that read across."""
    points = plan_points(group)
    if isinstance(points, Decline):
        return points
    extents, places = points.space.extents, points.space.places
    last = len(extents) - 1
    if last < 1 or extents[last] < SHORTEST:
        return decline("what is written has no long lines")
    outputs = [(place, output) for place in places for output in place.block.outputs]
    if any(place.flat(output).coefficient(last) != 1 for place, output in outputs):
        return decline("outputs do not all lie along the same loop")
    found = [(axis, _across(points, axis)) for axis in range(last) if extents[axis] >= SHORTEST]
    along, across = max(found, key=lambda pair: len(pair[1]), default=(0, []))
    if not across:
        return decline("no operand lies along another loop")
    for edge in EDGES:
        blocks = (
            prod(extents) // extents[last] // extents[along] * -(-extents[last] // edge) * -(-extents[along] // edge)
        )
        tiles = sum(edge * (edge + BANK) * element_bytes(operand.element_type) for _, _, operand in across)
        work = edge * edge // THREADS * (1 + count_operations([place.block for place in places]))
        if tiles <= MOST_SHARED and work <= MOST_CODE and blocks >= BUSY:
            return TurnedPlan(points, along, edge, across)
    return decline("there are few tiles, or much is done with their elements")


def _across(points: PointsPlan, axis: int) -> list[tuple[Place, Any, OperandView]]:
    """Operands from memory whose neighbours are those of this loop."""
    made = set(points.made)
    return [
        (place, argument, operand)
        for place in points.space.places for argument, operand in place.argument_operands.items()
        if operand.map is not None and operand.value not in made and argument in place.needed
        and not place.outside_tests(operand) and not place.always_outside(operand)
        and place.flat(operand).coefficient(axis) == 1
        and place.flat(operand).coefficient(len(points.space.extents) - 1) not in (0, 1, None)
    ]  # fmt: skip
