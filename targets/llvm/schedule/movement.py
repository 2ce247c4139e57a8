"""Operands whose memory runs along another loop than the output's: square tiles of them are turned in registers.

A tile of n × n elements is read in n vectors along the operand's memory and turned by n·log2(n) shuffles; then each row
of the output's tile has its lanes, and the rest of the body is computed on them as on any other vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.blocks.access import shuffle
from mirlo.passes.schedule.blocks.evaluate import Frame, Memory, Point
from mirlo.passes.schedule.blocks.lanes import widest_bytes
from mirlo.passes.schedule.blocks.space import Place, Space
from mirlo.passes.schedule.loops import for_loop
from mirlo.passes.schedule.vectors import splat
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.chunks import plus, traps, work

_LARGEST = 16
"""Rows and columns of the largest tile."""
_MOST_WORK = 40
"""Bodies of more operations are not written out for every row of a tile."""


@dataclass(frozen=True)
class Turned:
    """A space whose last loops are `across`, along which some operands lie in memory, and the output's own."""

    space: Space
    arguments: tuple[tuple[Place, Any], ...]
    """Body arguments that are turned."""


def find_turned(space: Space, made: set[Any], machine: Machine) -> Turned | None:
    """The space with its loops arranged for turning, if an operand needs it and it is worth while."""
    last = len(space.extents) - 1
    if last < 1 or not machine.masked or traps(space.places) or work(space.places) > _MOST_WORK:
        return None
    votes: dict[int, int] = {}
    for place, _, operand in _mapped(space, made):
        across = _lies_along(place, operand, last)
        if across is not None:
            votes[across] = votes.get(across, 0) + 1
    if not votes:
        return None
    across = max(votes, key=lambda axis: votes[axis])
    if not all(isinstance(space.extents[axis], int) for axis in (across, last)):
        return None
    arranged = space.order([*(a for a in range(last) if a != across), across, last])
    arguments = tuple(
        (place, argument)
        for place, argument, operand in _mapped(arranged, made)
        if _lies_along(place, operand, last) == last - 1
    )
    return Turned(arranged, arguments)


def _mapped(space: Space, made: set[Any]) -> list[tuple[Place, Any, Any]]:
    """Operands with maps that are read from memory."""
    return [
        (place, argument, operand)
        for place in space.places
        for argument, operand in place.argument_operands.items()
        if operand.map is not None and operand.value not in made and operand in place.needed_inputs
    ]


def _lies_along(place: Place, operand: Any, last: int) -> int | None:
    """The loop along which an operand lies in memory, where it is not the last and that one strides."""
    where = place.flat(operand)
    step = where.coefficient(last)
    if step in (0, 1) or step is None or place.always_outside(operand):
        return None
    return next((axis for axis in range(last) if where.coefficient(axis) == 1), None)


class TurnedSweep:
    """Emits all loops of a space, the last two in tiles."""

    def __init__(self, turned: Turned, memory: Memory, made: dict[Any, Any], stored: set[Any], machine: Machine):
        self.space = turned.space
        self.arguments = turned.arguments
        self.stored = stored
        self.last = len(self.space.extents) - 1
        self.along = Frame(memory, self.last, made=made)
        self.across = Frame(memory, self.last - 1)
        size = min(machine.lanes(widest_bytes(self.space.places, self.last)), _LARGEST)
        while size > 2 and size // 2 >= max(self.space.extents[-2:]):
            size //= 2
        self.size = size

    def emit(self) -> None:
        self._level([])

    def _level(self, indices: list[Any]) -> None:
        if len(indices) < self.last - 1:
            extent = self.space.extents[len(indices)]
            for_loop(0, extent, 1, lambda i: self._level([*indices, i]), parallel=not indices)
            return

        def across(at: Any, count: int) -> None:
            self._tiles(self.space.extents[self.last], lambda v, n: self._tile(indices, (at, count), (v, n)), False)

        self._tiles(self.space.extents[self.last - 1], across, parallel=not indices)

    def _tiles(self, extent: int, body: Any, parallel: bool) -> None:
        """A loop in steps of whole tiles, and what is left."""
        main = extent // self.size * self.size
        if main == self.size:
            body(0, self.size)
        elif main:
            for_loop(0, main, self.size, lambda i: body(i, self.size), parallel=parallel)
        if main < extent:
            body(main, extent - main)

    def _tile(self, indices: list[Any], rows: tuple[Any, int], columns: tuple[Any, int]) -> None:
        """One tile: (start, count) along the loop across, and along the last."""
        lines: dict[Any, list[Any]] = {}
        for place, argument in self.arguments:
            operand = place.argument_operands[argument]
            read = [
                Point(self.across, [*indices, rows[0], plus(columns[0], c)], self.size, rows[1]).read(place, operand)
                for c in range(columns[1])
            ]
            lines[argument] = turn([splat(line, self.size) for line in read], self.size)
        for r in range(rows[1]):
            given = {argument: line[r] for argument, line in lines.items()}
            at = [*indices, plus(rows[0], r), columns[0]]
            point = Point(self.along, at, self.size, columns[1], given=given)
            for place in self.space.places:
                point.run(place)
                for output, value in zip(place.block.outputs, place.roots, strict=True):
                    if output.value in self.stored:
                        point.store(place, output, point.find(value))


def turn(lines: Sequence[Any], size: int) -> list[Any]:
    """The transpose of a square: vector i of the result has lane i of each line, undefined where a line is missing."""
    kind = ir.VectorType.get([size], lines[0].type.element_type)
    missing = size - len(lines)
    square = [*lines, *([create("ub.poison", kind)] * missing if missing else [])]
    bit = size // 2
    while bit:
        # Exchange this bit of the line's number with the same bit of the lane's.
        low = [lane if not lane & bit else size + (lane ^ bit) for lane in range(size)]
        high = [lane | bit if not lane & bit else size + lane for lane in range(size)]
        for i in range(size):
            if not i & bit:
                a, b = square[i], square[i | bit]
                square[i], square[i | bit] = shuffle(a, b, low), shuffle(a, b, high)
        bit //= 2
    return square
