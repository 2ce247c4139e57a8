"""Tiles of a dynamic number of rows: whole ones, and smaller ones for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import compare
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.passes.schedule.loops import either, for_loop, if_any
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
