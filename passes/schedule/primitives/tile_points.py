"""The points of a register tile: where its accesses begin, and how many rows and columns it has.

An access is a position at the first point of the tile, and a constant offset for each row, vector and unrolled step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import IndexExpr, number
from mirlo.dialects.core.value import compare
from mirlo.passes.schedule.loops import either, when
from mirlo.passes.schedule.primitives.contiguity import in_iterations
from mirlo.passes.schedule.primitives.index import LoopValue, LoopValues
from mirlo.passes.schedule.primitives.memory import PlacedBuffers
from mirlo.passes.schedule.primitives.tree import (
    BufferAccess,
    Guard,
    Loop,
    TileLeaf,
)
from mirlo.passes.schedule.primitives.vector_memory import (
    FunctionConstants,
    Piece,
    Position,
    VectorMemory,
    pieces_of,
)
from mirlo.runtime.records import dataclass


class TileFunction(Protocol):
    """The function that tiles are emitted in."""

    @property
    def placed(self) -> PlacedBuffers: ...

    @property
    def constants(self) -> FunctionConstants: ...

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return the iterations of loops over elements of a tile, where it is a smaller one."""
        ...

    @property
    def ends(self) -> Mapping[str, ir.Value]:
        """Return where loops end early."""
        ...

    @property
    def assumed(self) -> Collection[Guard]:
        """Return the guards that all iterations pass which are emitted now."""
        ...

    @property
    def incomplete(self) -> Collection[Guard]:
        """Return the guards that some points of each iteration do not pass which is emitted now."""
        ...


@dataclass(frozen=True)
class TileSizes:
    """The points of a tile along a dim: of whole tiles, of the last one, and tests which of them this is."""

    whole: Dim
    rest: Dim = 0
    is_whole: ir.Value | None = None
    is_inside: ir.Value | None = None


class TilePoints(VectorMemory):
    """A register tile in one function."""

    def __init__(self, tile: TileLeaf, function: TileFunction) -> None:
        super().__init__(function.constants)
        self.tile, self.function, self.placed = tile, function, function.placed
        self._inner = {loop.name for loop in tile.inner}

    def form(self, access: BufferAccess, at: list[IndexExpr]) -> IndexExpr:
        """Return the position of an access, with as few divisions as the points of the tile leave."""
        form = self.placed.flat_index(access, at)
        return in_iterations(form, self.tile.leaf) if form.divisions else form

    def start(self, form: IndexExpr, values: LoopValues) -> Position:
        """Emit a position at the first point of the tile."""
        return self.place(form, values, self._inner)

    def advance(self, place: Position, loop: Loop | None, by: LoopValue) -> Position:
        """Emit a position at an iteration of a loop."""
        return place if loop is None else self.moved(place, loop.name, by)

    def column_stride(self, place: Position) -> Dim:
        """Return the step of an access from one column to the next."""
        return place.stride(self.tile.lanes)

    def sizes(self, loop: Loop | None, inner: Loop | None, size: int, values: LoopValues) -> TileSizes:
        """Return the points of a whole tile along a dim, those of the last one, and tests which of them this is."""
        names = {each.name for each in (loop, inner) if each is not None}
        if loop is not None and loop.name in self.function.sizes:
            return TileSizes(self.function.sizes[loop.name])
        for guard, bound in self.tile.leaf.guards:
            if not guard.variables() & names:
                continue
            if (guard, bound) in self.function.assumed:
                continue
            origin = values.with_numbers(guard.replace({name: number(0) for name in names}))
            if not isinstance(bound, int):
                whole = bound // size * size
                if (guard, bound) in self.function.incomplete and len(guard.variables() - names) == 1:
                    return TileSizes(bound - whole)
                return TileSizes(size, bound - whole, compare("lt", values.emit(origin), self.index(whole)))
            if origin.is_constant:
                return TileSizes(min(size, bound - D.static_dim(origin.constant)))
            highest, rest = origin.range(self.placed.extents)[1], bound % size
            if highest + size <= bound:
                continue
            is_inside = compare("lt", values.emit(origin), self.index(bound)) if highest >= bound else None
            if rest == 0 or bound < size:
                return TileSizes(rest or size, 0, None, is_inside)
            return TileSizes(size, rest, compare("lt", values.emit(origin), self.index(bound - rest)), is_inside)
        return TileSizes(size)

    def pieces(self, columns: Dim) -> list[Piece]:
        """Return the vectors that cover this many columns; fewer than a tile has if only the run time knows them."""
        tile = self.tile
        if isinstance(columns, int):
            return pieces_of(columns, tile.lane_count, tile.is_masked)
        return [Piece(at, tile.lane_count, columns - at) for at in range(0, tile.width, tile.lane_count)]


def tile_points(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return ((r, c) for r in range(rows) for c in range(columns))


def each_size(sizes: TileSizes, body: Callable[[Dim], None]) -> None:
    """Emit a body for whole tiles, and for the last one if it is smaller."""

    def inside() -> None:
        if sizes.is_whole is None:
            body(sizes.whole)
        else:
            either(sizes.is_whole, lambda: body(sizes.whole), lambda: body(sizes.rest))

    when(sizes.is_inside, inside)
