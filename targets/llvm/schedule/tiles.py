"""The order in which square tiles of two loops are visited, where one operand lies along the first and another along
the second.

Caches bring lines in pairs: the one that is asked for, and soon after it the other one of the pair. A walk along either
operand asks for the second line of a pair of the other operand right away, before it is there, or long after it is
gone. So two lines by two are a block, of which one diagonal is visited before the other:

    1 3
    4 2

The first two tiles ask for one line of each pair in both operands; when the other two come, all is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.tir.buffers import ALIGNMENT
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.schedule.loops import for_loop, index
from mirlo.targets.llvm.schedule.chunks import plus

LINE_BYTES = ALIGNMENT
"""A line of the cache."""
_PAIR = 2
"""Lines that come together."""
_CROWDED = 2
"""Rows crowd where no more sets than this hold the lines of one column."""
_LOW_TILES = 8
"""Tiles of few rows that follow each other."""

Tile = Callable[[tuple[Any, int], tuple[Any, int]], None]
"""Emits the tile with these (start, count) along the first loop and along the second."""


@dataclass(frozen=True)
class Cut:
    """A loop in tiles: whole ones, and what is left. All is counted in elements."""

    extent: int
    size: int
    beyond: Any = None
    """How far before the start of the loop a tile would begin in order to begin with a line of memory: the first tile
    and the last one then meet others. None where tiles begin at the start of the loop."""

    @property
    def main(self) -> int:
        """What whole tiles cover; where they are shifted, a tile more."""
        if self.beyond is None:
            return self.extent // self.size * self.size
        return -(-self.extent // self.size) * self.size + self.size

    @property
    def rest(self) -> tuple[int, int] | None:
        """Start and count of what is left."""
        left = self.extent % self.size
        return None if self.beyond is not None or not left else (self.main, left)

    def whole_tile(self, start: Any, upper: int, emit: Callable[[Any], None]) -> None:
        """Emit with where the tile at `start` really starts, if it exists. All starts are below `upper`."""
        if self.beyond is not None:
            shifted = create("arith.subi", index(0).type, _value(start), self.beyond)
            inside = create("arith.minsi", shifted.type, shifted, index(self.extent - self.size))
            inside = create("arith.maxsi", shifted.type, inside, index(0))
            _when_less(shifted, self.extent, partial(emit, inside))
        elif upper > self.main:
            _when_less(_value(start), self.main, partial(emit, start))
        else:
            emit(start)


@dataclass(frozen=True)
class Blocks:
    """The elements along both loops that are visited together, and those of one step of the diagonal; 0 for none."""

    first: int
    second: int
    step: int


def choose_blocks(first: Cut, second: Cut, element_bytes: int, row_bytes: int | None, way_bytes: int) -> Blocks:
    """Blocks of two lines by two, where there are as many.

    They are of four lines along the output where its rows, which lie `row_bytes` apart, share few sets of the first
    cache: lines `way_bytes` apart have the same set.
    """
    line = max(first.size, second.size, LINE_BYTES // element_bytes)
    pair = _PAIR * line
    crowded = row_bytes is not None and row_bytes * _CROWDED % way_bytes == 0
    if first.main < pair or second.main < pair:
        # Tiles that read parts of the same lines follow each other.
        return Blocks(first.size if crowded else min(max(first.main, first.size), line), second.size, 0)
    return Blocks(pair, 2 * pair if crowded and second.main >= 2 * pair else pair, line)


def no_blocks(first: Cut, second: Cut) -> Blocks:
    """A walk along the output: what comes from beyond the caches is fetched far ahead only where lines follow lines."""
    return Blocks(first.size, second.size, 0)


def line_pairs(first: Cut, second: Cut) -> Blocks:
    """A walk along the output, two rows of tiles at a time: caches bring the operand's lines in pairs."""
    return Blocks(_PAIR * first.size, second.size, 0)


def low_blocks(first: Cut, second: Cut, element_bytes: int) -> Blocks:
    """Tiles of few rows that follow each other along the output; what is left of the lines that they read is next."""
    line = max(first.size, LINE_BYTES // element_bytes)
    return Blocks(line, _LOW_TILES * second.size, 0)


def visit(first: Cut, second: Cut, blocks: Blocks, tile: Tile, parallel: bool) -> None:
    """Loops over all tiles: blocks along the second loop, then along the first."""
    rows, columns = _round_up(first.main, blocks.first), _round_up(second.main, blocks.second)

    def whole(row: Any, column: Any) -> None:
        first.whole_tile(
            row, rows, lambda r: second.whole_tile(column, columns, lambda c: tile((r, first.size), (c, second.size)))
        )  # fmt: skip

    def some_rows(row: Any) -> None:
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


def _block(first: Cut, second: Cut, blocks: Blocks, row: Any, column: Any, whole: Callable[[Any, Any], None]) -> None:
    """One block, along its diagonals."""

    def part(at: Any, rows: int, to: Any, columns: int) -> None:
        _loop(rows, first.size, lambda r: _loop(columns, second.size, lambda c: whole(plus(at, r), plus(to, c))))

    def step(diagonal: Any, along: Any) -> None:
        across = plus(diagonal, along)
        if not isinstance(across, int):
            across = create("arith.remui", across.type, across, index(blocks.first))
        part(plus(row, across), blocks.step, plus(column, along), blocks.step)

    if blocks.step:
        _loop(blocks.first, blocks.step, lambda d: _loop(blocks.second, blocks.step, lambda a: step(d, a)))
    else:
        part(row, blocks.first, column, blocks.second)


def _loop(extent: int, step: int, body: Callable[[Any], None], parallel: bool = False) -> None:
    """A loop from 0 to a multiple of a step; of one step, that."""
    if extent == step:
        body(0)
    elif extent:
        for_loop(0, extent, step, body, parallel=parallel)


def _when_less(value: Any, bound: int, emit: Callable[[], None]) -> None:
    less = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 2)
    flag = ir.IntegerType.get_signless(1)
    branch = scf.IfOp(create("arith.cmpi", flag, value, index(bound), predicate=less))
    with ir.InsertionPoint(branch.then_block):
        emit()
        scf.YieldOp([])


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


def _value(number: Any) -> Any:
    return index(number) if isinstance(number, int) else number
