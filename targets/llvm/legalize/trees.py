"""Decision trees on CPUs: several trees of a row at a time, so that their loads overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.tir.compute import INDEX, Expr, LoopBuilder, Variable, clamp, constant, select
from mirlo.passes.legalize.helpers import shape_of
from mirlo.passes.legalize.rules.tree import compared
from mirlo.passes.rules import legalize

INTERLEAVED_TREES = 8
"""Trees that a row descends at the same time: their node indices fit the 16 registers of x86-64."""


@legalize("relax.tree_leaves", target="llvm", name="interleaved")
def tree_leaves(op: ir.OpView, b: Any) -> ir.Value:
    """Descend several trees of a row, all by one level in each iteration, until the last one is at a leaf."""
    rows, trees = shape_of(op.output)
    features, mode = shape_of(op.x)[1], op.mode
    whole = trees // INTERLEAVED_TREES * INTERLEAVED_TREES if isinstance(trees, int) else 0

    def body(loops: LoopBuilder, x: Any, thresholds: Any, nodes: Any, roots: Any, output: Any) -> None:
        index = nodes.dtype.name

        def step(row: Expr, at: Expr) -> Expr:
            node = loops.let(clamp(at, 0, D.maximum(shape_of(op.nodes)[0] - 1, 0)).cast(INDEX))
            value = loops.let(x[row, clamp(nodes[node, 0].cast(INDEX), 0, D.maximum(features - 1, 0))])
            how = constant(mode, index) if mode >= 0 else loops.let(nodes[node, 1])
            holds = compared(value, loops.let(thresholds[node]), how, mode)
            # One load from a computed place: LLVM makes branches of a choice between two, which rows mispredict.
            return nodes[node, constant(3, INDEX) - holds.cast(INDEX)]

        def descend(row: Expr, first: Sequence[Expr]) -> None:
            if not first:
                return
            lanes = [loops.variable(roots[tree], index) for tree in first]
            for _ in loops.while_(lambda: _any_inner(lanes)):
                for lane in lanes:
                    at = loops.let(lane.get())
                    lane.set(select(at >= 0, step(row, at), at) if len(lanes) > 1 else step(row, at))
            for tree, lane in zip(first, lanes, strict=True):
                output[row, tree] = (constant(-1, index) - lane.get()).cast("i64")

        for (row,) in loops.nest((rows,), parallel=True):
            for start in loops.range(0, whole, INTERLEAVED_TREES) if whole else ():
                descend(row, [loops.let(start + lane) for lane in range(INTERLEAVED_TREES)])
            if isinstance(trees, int):
                descend(row, [constant(tree, INDEX) for tree in range(whole, trees)])
            else:
                for tree in loops.range(trees):
                    descend(row, [tree])

    return b.call_loops(body, op.x, op.thresholds, op.nodes, op.roots)


def _any_inner(lanes: Sequence[Variable]) -> Expr:
    """Test for inner nodes: only leaves are negative, so the conjunction of all is negative if all are leaves."""
    found = lanes[0].get()
    for lane in lanes[1:]:
        found = found & lane.get()
    return found >= 0
