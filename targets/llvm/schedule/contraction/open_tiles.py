"""Tiles of a dynamic number of rows: whole ones, and smaller ones for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.dialects.tir.scalars import compare
from mirlo.passes.schedule.loops import PARALLEL

SMALLER = (9, 7, 5, 4, 3, 2, 1)
"""Sizes of tiles for the rest that whole tiles leave: each is a copy of the code."""
SMALLER_OF_MANY = (7, 5, 3, 2, 1)
"""Sizes where further loops go over the rows, as in convolutions: LLVM takes half a second for a kernel with all of
`SMALLER`, and the rest is small beside whole tiles."""
"""Predicates of `arith.cmpi`: signed greater than, signed at least."""


@dataclass(frozen=True)
class OpenTiles:
    """Tiles of one size: `first`, `first + size`, ... below `stop`, all indices.

    The last one begins at `last` at the latest, and recomputes rows of the tile before it.
    """

    size: int
    first: ir.Value
    stop: ir.Value
    last: ir.Value | None
    """None if all tiles are whole."""

    def loop(self, body: Callable[[Any], None], parallel: bool) -> None:
        """Emit a loop: `body(first row)` for each tile."""
        loop = scf.ForOp(self.first, self.stop, _constant(self.size))
        if parallel:
            loop.operation.attributes[PARALLEL] = ir.UnitAttr.get()
        with ir.InsertionPoint(loop.body):
            i = loop.induction_variable
            body(i if self.last is None else create("arith.minsi", i.type, i, self.last))
            scf.YieldOp([])


def open_tiles(count: ir.Value, size: int, smaller: Sequence[int] = SMALLER) -> list[OpenTiles]:
    """Emit the bounds of the tiles of this many rows at the insertion point.

    One tile of the smallest sufficient size covers the rest that whole tiles leave: of 14 rows if it is more than 9,
    of 9 if it is more than 7, and so on for all smaller sizes; it begins early enough to be whole. If there are fewer
    rows than that in total, several tiles of the next sizes cover them.
    """
    sizes = [size, *(each for each in smaller if each < size)]
    found = []
    at = _constant(0)
    for own, following in zip(sizes, [*sizes[1:], 0], strict=True):
        step = _constant(own)
        rest = _op("subi", count, at)
        whole = _op("divui", rest, step)
        left = _op("subi", rest, _op("muli", whole, step))
        tiles = _op("addi", whole, _flag("gt", left, following))
        length = _op("muli", _op("muli", tiles, step), _flag("ge", count, own))
        stop = _op("addi", at, length)
        found.append(OpenTiles(own, at, stop, _op("subi", count, step) if own > 1 else None))
        at = _op("minsi", stop, count)
    return found


def _constant(value: int) -> ir.Value:
    return emit_constant(value, ir.IndexType.get())


def _op(name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return create(f"arith.{name}", a.type, a, b)


def _flag(predicate: str, a: ir.Value, limit: int) -> ir.Value:
    """Emit 1 if a comparison holds, else 0."""
    test = compare(predicate, a, limit)
    return create("arith.select", a.type, test, _constant(1), _constant(0))
