"""Code of tiles of any number of rows: whole ones, and smaller ones for the rest; of all rows, or of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, compare, create, emit_constant, index
from mirlo.passes.schedule.loops import either, for_loop, if_any, loop_over_tiles
from mirlo.passes.schedule.primitives.index import LoopPosition, LoopValue, LoopValues
from mirlo.passes.schedule.primitives.memory import STORED_ROW
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


class TileBody(Protocol):
    """The type of functions that emit a tile of this many rows from a row on."""

    def __call__(self, first: ir.Value, size: int) -> None: ...


@dataclass(frozen=True)
class DynamicTiles:
    """Tiles of one size: `first`, `first + size`, ... below `stop`, all indices.

    The last one begins at `last` at the latest, and recomputes rows of the tile before it.
    """

    size: int
    first: ir.Value
    stop: ir.Value
    last: ir.Value | None
    """None if all tiles are whole."""
    is_single: bool = False
    """Whether there is at most one tile of this size."""

    def loop(self, body: Callable[[ir.Value], None], parallel: bool) -> None:
        """Emit a loop: `body(first row)` for each tile."""
        if self.is_single:
            if_any(self.first, self.stop, lambda i: body(self.within(i)))
            return
        for_loop(self.first, self.stop, self.size, lambda i: body(self.within(i)), parallel=parallel)

    def within(self, first: ir.Value) -> ir.Value:
        """Return the start of a tile at a row, moved so that the tile is within the rows."""
        return first if self.last is None else create("arith.minsi", first.type, first, self.last)


@dataclass(frozen=True)
class TiledRows:
    """The tiles of a dynamic number of rows."""

    count: ir.Value
    whole: DynamicTiles
    smaller: tuple[DynamicTiles, ...]
    rest: ir.Value
    """The first row that smaller tiles compute: all rows from there on are theirs, fewer than those of a whole tile."""

    def loop_over_smaller(self, body: TileBody) -> None:
        """Emit loops over the smaller tiles, `body(first row, size)`."""
        for tiles in self.smaller:
            tiles.loop(partial(body, size=tiles.size), parallel=False)


def loop_over_all(rows: TiledRows, body: Callable[[ir.Value], None], rest: Callable[[], None], parallel: bool) -> None:
    """Emit one loop over whole tiles, `body(first row)`; the last iteration has the smaller tiles that `rest` emits."""
    whole = rows.whole
    has_rest = compare("lt", whole.stop, rows.count)
    behind = _op("addi", whole.stop, _constant(whole.size))
    stop = create("arith.select", behind.type, has_rest, behind, whole.stop)

    def tile(i: ir.Value) -> None:
        either(compare("lt", i, whole.stop), lambda: body(whole.within(i)), rest)

    for_loop(whole.first, stop, whole.size, tile, parallel=parallel)


def dynamic_tiles(count: ir.Value, size: int, smaller: Sequence[int]) -> TiledRows:
    """Emit the bounds of the tiles of this many rows at the insertion point.

    One tile of the smallest sufficient size covers the rest that whole tiles leave: of 14 rows if it is more than 9,
    of 9 if it is more than 7, and so on for all smaller sizes; it begins early enough to be whole. If there are fewer
    rows than that in total, several tiles of the next sizes cover them.
    """
    sizes = [size, *(each for each in smaller if each < size)]
    result: list[DynamicTiles] = []
    at = _constant(0)
    uncovered = count
    most = max_tile_counts(size, sizes[1:])
    for own, following in zip(sizes, [*sizes[1:], 0], strict=True):
        step = _constant(own)
        rest = _op("subi", count, at)
        whole = _op("divui", rest, step)
        left = _op("subi", rest, _op("muli", whole, step))
        tiles = _op("addi", whole, _flag("gt", left, following))
        length = _op("muli", _op("muli", tiles, step), _flag("ge", count, own))
        stop = _op("addi", at, length)
        last = _op("subi", count, step) if own > 1 else None
        result.append(DynamicTiles(own, at, stop, last, is_single=own != size and most[own] <= 1))
        at = _op("minsi", stop, count)
        if own != size:
            uncovered = _op("subi", uncovered, length)
    has_whole = compare("ge", count, size)
    first = create("arith.select", uncovered.type, has_whole, uncovered, _constant(0))
    return TiledRows(count, result[0], tuple(result[1:]), first)


def static_tiles(count: int, size: int, smaller: Sequence[int]) -> list[int]:
    """Return the sizes of the tiles of this many rows, whole ones first, as `dynamic_tiles` chooses them."""
    sizes = [size, *(each for each in smaller if each < size)]
    result: list[int] = []
    at = 0
    for own, following in zip(sizes, [*sizes[1:], 0], strict=True):
        whole, left = divmod(count - at, own)
        tiles = whole + (left > following) if count >= own else 0
        result += [own] * tiles
        at = min(at + tiles * own, count)
    return result


def max_tile_counts(size: int, smaller: Sequence[int]) -> dict[int, int]:
    """Return the most tiles of each smaller size that any number of rows has."""
    most = dict.fromkeys(smaller, 0)
    # Whole tiles leave the same rest of more rows.
    for count in range(2 * size):
        at = 0
        for own, following in zip([size, *smaller], [*smaller, 0], strict=True):
            whole, left = divmod(count - at, own)
            tiles = whole + (left > following) if count >= own else 0
            most[own] = max(most.get(own, 0), tiles)
            at = min(at + tiles * own, count)
    return most


def _constant(value: int) -> ir.Value:
    return emit_constant(value, ir.IndexType.get())


def _op(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return create(f"arith.{name}", a.type, a, b)


def _flag(predicate: str, a: ir.Value, limit: int) -> ir.Value:
    """Emit 1 if a comparison holds, else 0."""
    test = compare(predicate, a, limit)
    return create("arith.select", a.type, test, _constant(1), _constant(0))


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
