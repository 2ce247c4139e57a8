"""The order of square tiles over two loops along which two operands have unit stride, one along each.

Caches fetch lines in pairs: the requested line, and soon after it the other line of the pair. A traversal along
either operand requests the second line of a pair of the other operand right away, before it has arrived, or long
after it was evicted. So two lines by two form a block, of which one diagonal is visited before the other:

1 3
4 2

The first two tiles request one line of each pair in both operands; when the other two are visited, all lines have
arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import index
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.scalars import compare
from mirlo.passes.schedule.loops import for_loop, when
from mirlo.targets.llvm.schedule.chunks import plus
from mirlo.targets.llvm.schedule.cost import LINE_BYTES, LINES_PER_FETCH, LOW_TILES, MAX_CROWDED_SETS

Tile = Callable[[tuple[int | ir.Value, int], tuple[int | ir.Value, int]], None]
"""Emits the tile with these (start, count) along the first loop and along the second."""


@dataclass(frozen=True)
class Cut:
    """A loop in tiles: whole ones, and a rest. All is counted in elements."""

    extent: int
    size: int
    beyond: ir.Value | None = None
    """How far before the start of the loop a tile must begin to be aligned to a cache line; the first and the last
    tile then overlap others. None if tiles begin at the start of the loop."""

    @property
    def main(self) -> int:
        """Return the elements that whole tiles cover; one tile more if they are shifted."""
        if self.beyond is None:
            return self.extent // self.size * self.size
        return -(-self.extent // self.size) * self.size + self.size

    @property
    def rest(self) -> tuple[int, int] | None:
        """Return start and count of the rest."""
        left = self.extent % self.size
        return None if self.beyond is not None or not left else (self.main, left)

    def whole_tile(self, start: int | ir.Value, upper: int, emit: Callable[[int | ir.Value], None]) -> None:
        """Emit the tile at `start`, shifted for alignment, if it exists. All starts are below `upper`."""
        if self.beyond is not None:
            shifted = create("arith.subi", index(0).type, _value(start), self.beyond)
            inside = create("arith.minsi", shifted.type, shifted, index(self.extent - self.size))
            inside = create("arith.maxsi", shifted.type, inside, index(0))
            when(compare("lt", shifted, self.extent), partial(emit, inside))
        elif upper > self.main:
            when(compare("lt", _value(start), self.main), partial(emit, start))
        else:
            emit(start)


@dataclass(frozen=True)
class TileOrder:
    """The elements along both loops that are visited together, and those of one step of the diagonal; 0 for none."""

    first: int
    second: int
    step: int


def choose_blocks(first: Cut, second: Cut, element_bytes: int, row_bytes: int | None, way_bytes: int) -> TileOrder:
    """Choose blocks of two lines by two, if there are as many.

    They have four lines along the output if its rows, at a stride of `row_bytes`, map to few sets of the L1 cache:
    lines `way_bytes` apart map to the same set.
    """
    line = max(first.size, second.size, LINE_BYTES // element_bytes)
    pair = LINES_PER_FETCH * line
    crowded = row_bytes is not None and row_bytes * MAX_CROWDED_SETS % way_bytes == 0
    if first.main < pair or second.main < pair:
        # Tiles that read parts of the same lines follow each other.
        return TileOrder(first.size if crowded else min(max(first.main, first.size), line), second.size, 0)
    return TileOrder(pair, 2 * pair if crowded and second.main >= 2 * pair else pair, line)


def no_blocks(first: Cut, second: Cut) -> TileOrder:
    """Visit along the output: data beyond the caches is prefetched far ahead only for consecutive lines."""
    return TileOrder(first.size, second.size, 0)


def visit_line_pairs(first: Cut, second: Cut) -> TileOrder:
    """Visit along the output, two rows of tiles at a time: caches fetch the operand's lines in pairs."""
    return TileOrder(LINES_PER_FETCH * first.size, second.size, 0)


def low_blocks(first: Cut, second: Cut, element_bytes: int) -> TileOrder:
    """Visit tiles of few rows along the output; tiles with the rest of the lines that they read are next."""
    line = max(first.size, LINE_BYTES // element_bytes)
    return TileOrder(line, LOW_TILES * second.size, 0)


def visit(first: Cut, second: Cut, blocks: TileOrder, tile: Tile, parallel: bool) -> None:
    """Emit loops over all tiles: blocks along the second loop, then along the first."""
    rows, columns = _round_up(first.main, blocks.first), _round_up(second.main, blocks.second)

    def whole(row: int | ir.Value, column: int | ir.Value) -> None:
        first.whole_tile(
            row, rows, lambda r: second.whole_tile(column, columns, lambda c: tile((r, first.size), (c, second.size)))
        )  # fmt: skip

    def some_rows(row: int | ir.Value) -> None:
        _loop(columns, blocks.second, lambda column: _block(first, second, blocks, row, column, whole), parallel)
        left = second.rest
        if left is not None:
            _loop(
                blocks.first, first.size,
                lambda r: first.whole_tile(plus(row, r), rows, lambda at: tile((at, first.size), left)),
            )  # fmt: skip

    _loop(rows, blocks.first, some_rows, parallel)
    rest = first.rest
    if rest is None:
        return
    _loop(
        second.main, second.size,
        lambda c: second.whole_tile(c, second.main, lambda at: tile(rest, (at, second.size))), parallel,
    )  # fmt: skip
    if second.rest is not None:
        tile(rest, second.rest)


def _block(
    first: Cut,
    second: Cut,
    blocks: TileOrder,
    row: int | ir.Value,
    column: int | ir.Value,
    whole: Callable[[int | ir.Value, int | ir.Value], None],
) -> None:
    """Emit one block, along its diagonals."""

    def part(at: int | ir.Value, rows: int, to: int | ir.Value, columns: int) -> None:
        _loop(rows, first.size, lambda r: _loop(columns, second.size, lambda c: whole(plus(at, r), plus(to, c))))

    def step(diagonal: int | ir.Value, along: int | ir.Value) -> None:
        across = plus(diagonal, along)
        if not isinstance(across, int):
            across = create("arith.remui", across.type, across, index(blocks.first))
        part(plus(row, across), blocks.step, plus(column, along), blocks.step)

    if blocks.step:
        _loop(blocks.first, blocks.step, lambda d: _loop(blocks.second, blocks.step, lambda a: step(d, a)))
    else:
        part(row, blocks.first, column, blocks.second)


def _loop(extent: int, step: int, body: Callable[[int | ir.Value], None], parallel: bool = False) -> None:
    """Emit a loop from 0 to a multiple of a step; the body alone for a single step."""
    if extent == step:
        body(0)
    elif extent:
        for_loop(0, extent, step, body, parallel=parallel)


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


def _value(number: int | ir.Value) -> ir.Value:
    return index(number) if isinstance(number, int) else number
