"""Sorting on a GPU by rank: each element counts those that precede it, and is written to that position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute import Expr, LoopBuilder, at_most_last, constant, select
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import shape_of, short_name
from mirlo.passes.legalize.rules.sort import order
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

LONGEST = 1 << 16
"""Longest row: the number of comparisons is quadratic."""


@legalize("relax.sort", "relax.argsort", target="gpu")
def sort(op: ir.OpView, b: LegalizeBuilder) -> Decline | ir.Value:
    """Sort with a thread per element; stable."""
    shape = shape_of(op.x)
    axis = op.axis % len(shape)
    if shape[axis] > LONGEST:
        return decline("rows are too long to compare each with each", elements=shape[axis])
    wants_places = short_name(op) == "argsort"

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        def put(at: list[Expr], rank: Expr) -> None:
            place = at_most_last(rank, shape[axis])
            output[[*at[:axis], place, *at[axis + 1 :]]] = at[axis].cast("i64") if wants_places else x[at]

        _by_rank(loops, x, shape, axis, order(op.descending), put)

    return b.call_loops(body, op.x)


@legalize("relax.topk", target="gpu")
def topk(op: ir.OpView, b: LegalizeBuilder) -> Decline | ir.Value:
    """Select the first elements with a thread per element; threads with a rank below k write."""
    shape = shape_of(op.x)
    axis = op.axis % len(shape)
    if shape[axis] > LONGEST:
        return decline("rows are too long to compare each with each", elements=shape[axis])

    def body(loops: LoopBuilder, x: Buffer, values: Buffer, places: Buffer) -> None:
        def put(at: list[Expr], rank: Expr) -> None:
            with loops.if_(rank < op.k):
                target = [*at[:axis], rank, *at[axis + 1 :]]
                values[target], places[target] = x[at], at[axis].cast("i64")

        _by_rank(loops, x, shape, axis, order(op.largest), put)

    return b.call_loops(body, op.x)


def _by_rank(
    loops: LoopBuilder,
    x: Buffer,
    shape: Sequence[Dim],
    axis: int,
    before: Callable[[Expr, Expr], Expr],
    put: Callable[[list[Expr], Expr], None],
) -> None:
    """Call `put` for each element with its rank in the row."""
    one, zero = constant(1, "index"), constant(0, "index")
    for at in loops.nest(shape, parallel=True):
        mine = loops.let(x[at])
        rank = loops.variable(0, "index")
        for j in loops.range(shape[axis]):
            other = loops.let(x[[*at[:axis], j, *at[axis + 1 :]]])
            tie = ~before(mine, other) & ~before(other, mine) & (j < at[axis])
            rank.set(rank.get() + select(before(other, mine) | tie, one, zero))
        put(at, loops.let(rank.get()))
