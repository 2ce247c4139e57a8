"""Default rule of sorting the rows of a matrix: a merge sort of row indices that compares row with row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import Expr, LoopBuilder, at_most_last
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import shape_of
from mirlo.passes.legalize.rules.sort import KeyedRow, merge_sort, order
from mirlo.passes.rules import legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.argsort_rows")
def argsort_rows(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    rows, columns = shape_of(op.x)

    def body(loops: LoopBuilder, x: Buffer, output: Buffer) -> None:
        less = order(descending=False)

        def element(row: Expr, column: Expr) -> Expr:
            value = x[row, column]
            return loops.let(value.cast("i32") if value.dtype.is_bool else value)

        def before(first: Expr, second: Expr) -> Expr:
            """Return whether a row precedes another one lexicographically."""
            is_before, going = loops.variable(False, "bool"), loops.variable(True, "bool")
            at = loops.variable(0, "index")
            one, other = loops.let(at_most_last(first, rows)), loops.let(at_most_last(second, rows))
            for _ in loops.while_(lambda: going.get() & (at.get() < columns)):
                a, c = element(one, at.get()), element(other, at.get())
                with loops.if_(less(a, c)):
                    is_before.set(True)
                    going.set(False)
                with loops.if_(less(c, a)):
                    going.set(False)
                at.set(at.get() + 1)
            return is_before.get()

        kept, spare = KeyedRow(loops, rows, "i64"), KeyedRow(loops, rows, "i64")
        for i in loops.range(rows):
            kept.put(i, i.cast("i64"), i.cast("i64"))
        merge_sort(loops, kept, spare, rows, before)
        for i in loops.range(rows):
            output[i] = kept.places[i]

    return b.call_loops(body, op.x)
