"""Code of tiles of any number of rows: whole ones, and smaller ones for the rest; of all rows, or of a block."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, create, index
from mirlo.passes.schedule.dynamic_tiles import TiledRows, dynamic_tiles, loop_over_all, static_tiles
from mirlo.passes.schedule.loops import for_loop, loop_over_tiles
from mirlo.passes.schedule.primitives.index import LoopPosition, LoopValue, LoopValues
from mirlo.passes.schedule.primitives.registers import Carried
from mirlo.passes.schedule.primitives.tile_code import TileEmitter
from mirlo.passes.schedule.primitives.tree import (
    PARALLEL,
    Guard,
    Loop,
    Node,
    PartRange,
    ShiftedTiles,
    TileLeaf,
    leaves_of,
)
from mirlo.runtime.records import dataclass

STORED_ROW = "#stored_row"
"""The loop that stands for a row in the memory of values of which only a block of rows is stored."""


@dataclass(frozen=True)
class RowSpan:
    """The rows that a loop over tiles computes, in place of all."""

    start: ir.Value | int
    """The first row."""
    count: ir.Value | int
    stored: ir.Value | int
    """The row of the memory of the block where the first row is."""


class TilesFunction(Protocol):
    """The emitter of the nodes in a loop over tiles."""

    sizes: dict[str, int]
    """The iterations of loops over elements of a tile, where it is a smaller one."""

    def nodes(self, nodes: Sequence[Node], values: LoopValues, carried: Carried) -> Carried:
        """Emit nodes that follow one another."""
        ...

    def assuming(self, guards: frozenset[Guard]) -> AbstractContextManager[None]:
        """Emit iterations that pass these guards."""
        ...

    def emitter_of(self, tile: TileLeaf) -> TileEmitter:
        """Return the emitter of a register tile."""
        ...


class ShiftedTilesEmitter:
    """Emits the tiles of a loop; `span` are the rows that it computes, if these are not all."""

    def __init__(
        self, function: TilesFunction, loop: Loop, shift: ShiftedTiles, values: LoopValues, span: RowSpan | None
    ) -> None:
        self.function, self.loop, self.shift, self.values, self.span = function, loop, shift, values, span

    def emit(self) -> None:
        """Emit whole tiles, and smaller ones for the rest."""
        if self.span is not None:
            if isinstance(self.span.count, int):
                self._known_rows(self.span.count)
            else:
                self._any_rows(self.span.count)
        elif isinstance(self.shift.extent, int):
            self._all_rows(self.shift.extent)
        else:
            self._any_rows(self.values.emit(self.shift.extent))

    def _all_rows(self, extent: int) -> None:
        """Emit tiles of all rows, whose number is known: those of the rests begin early enough to be whole."""
        shift = self.shift
        tiles = static_tiles(extent, shift.size, shift.rests)
        count = tiles.count(shift.size)
        end = min(count * shift.size, extent)
        last = index(extent - shift.size)

        def at(i: ir.Value) -> None:
            self.tile(i if end % shift.size == 0 else Value(i).minimum(last), shift.size)

        for_loop(0, end, shift.size, at, parallel=self.loop.kind == PARALLEL)
        for size in tiles[count:]:
            self.tile(index(max(0, min(end, extent - size))), size)
            end += size

    def _known_rows(self, count: int) -> None:
        """Emit tiles of a known number of rows from one on: the last one has as many as are left."""
        size = self.shift.size
        whole = count // size * size
        for first, stop, rows in ((0, whole, size), (whole, count, count - whole)):
            if first < stop:
                loop_over_tiles(first, stop, rows, partial(self.tile, size=rows))

    def _any_rows(self, count: ir.Value) -> None:
        """Emit tiles of a number of rows that only the run time knows."""
        shift = self.shift
        rows = dynamic_tiles(count, shift.size, shift.rests)
        whole, smaller = partial(self.tile, size=shift.size), partial(self._smaller_tiles, rows)
        if self.loop.kind == PARALLEL:
            loop_over_all(rows, whole, smaller, parallel=True)
        else:
            rows.whole.loop(whole, False)
            smaller()

    def _smaller_tiles(self, rows: TiledRows) -> None:
        """Emit the smaller tiles of a dynamic number of rows; where its code is long, with one epilogue for all."""
        inner = self.loop.body[0]
        tile = inner.form if isinstance(inner, Loop) else None
        if not isinstance(tile, TileLeaf) or not self.function.emitter_of(tile).shares_rest(
            self.loop, self.shift.rests
        ):
            rows.loop_over_smaller(self.tile)
            return
        emitter = self.function.emitter_of(tile)

        def hold(first: ir.Value, size: int) -> None:
            emitter.held_row = create("arith.subi", first.type, first, rows.rest)
            self.tile(first, size)
            emitter.held_row = None

        rows.loop_over_smaller(hold)
        emitter.finish_rest(self.at(rows.rest), create("arith.subi", rows.count.type, rows.count, rows.rest))

    def tile(self, first: ir.Value | int, size: int) -> None:
        """Emit a tile of this many rows, from one on: all of them exist."""
        function, shift, name = self.function, self.shift, self.loop.name
        leaves = [leaf for leaf in leaves_of(self.loop) if isinstance(leaf.form, TileLeaf)]
        # Another dim may have the same size: a guard of it says nothing of this loop.
        along = (guard for leaf in leaves for guard in leaf.guards if name in guard[0].variables())
        guards = frozenset(guard for guard in along if guard[1] == shift.extent)
        before, function.sizes = function.sizes, {**function.sizes, shift.row: size}
        with function.assuming(guards):
            function.nodes(self.loop.body, self.at(first), [])
        function.sizes = before

    def at(self, first: ir.Value | int) -> LoopValues:
        """Return the values of loops in a tile that begins at a row."""
        part, name = PartRange(0, self.shift.size), self.loop.name
        start, stored = (0, None) if self.span is None else (self.span.start, self.span.stored)
        place = plus(start, first)
        is_whole = isinstance(place, int) and place % part.step == 0
        at: dict[str, LoopValue] = {
            name: place // part.step if isinstance(place, int) and is_whole else LoopPosition(name, _value(place), part)
        }
        return self.values.at(at if stored is None else {**at, STORED_ROW: plus(stored, first)})


def plus(a: ir.Value | int, b: ir.Value | int) -> ir.Value | int:
    """Emit the sum of two indices; of integers, return it."""
    if isinstance(a, int):
        return a + b if isinstance(b, int) else Value(b) + a
    return Value(a) + b


def _value(a: ir.Value | int) -> ir.Value:
    return index(a) if isinstance(a, int) else a
