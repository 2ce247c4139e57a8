"""Decision trees on CPUs: several rows of a tree, or trees of a row, at a time, so that their loads overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.compute import INDEX, Expr, LoopBuilder, Variable, constant, select
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.rules.tree import NodeTable, descent_loop, first_score, leaf_index, with_tree
from mirlo.passes.rules import legalize
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

LANES = 8
"""Trees, or rows, that are descended at the same time: their node indices fit the 16 registers of x86-64."""


@legalize("relax.tree_ensemble", target="llvm", name="interleaved")
def tree_ensemble(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Descend each tree for several rows, all by one level in each iteration, until the last one is at a leaf.

    The rows that remain descend several trees at a time.
    """

    def body(loops: LoopBuilder, *buffers: Buffer) -> None:
        x, thresholds, nodes, roots, weights, output = buffers
        descent = TreeDescent(loops, x, thresholds, nodes, roots, weights, output, op.mode, op.aggregate, op.depth)
        (rows, _), (trees,) = descent.output.shape, descent.roots.shape
        if isinstance(trees, int):
            descent.add_groups_of_rows(rows, trees)
        else:
            for (row,) in loops.nest((rows,), parallel=True):
                descent.add_row(row, trees)

    return b.call_loops(body, op.x, op.thresholds, op.nodes, op.roots, op.weights)


@dataclass(frozen=True)
class TreeDescent:
    """Loops that go from node to node, for the buffers of `relax.tree_ensemble`."""

    loops: LoopBuilder
    x: Buffer
    thresholds: Buffer
    nodes: Buffer
    roots: Buffer
    weights: Buffer
    output: Buffer
    mode: int
    aggregate: str
    depth: int
    """Nodes of the longest path, 0 if it is unknown."""

    def add_groups_of_rows(self, rows: Dim, trees: int) -> None:
        """Compute all rows, each tree for several rows at a time."""
        loops, groups = self.loops, rows // LANES
        for (group,) in loops.nest((groups,), parallel=True):
            several = [loops.let(group * LANES + lane) for lane in range(LANES)]
            for row in several:
                self.start(row)
            for tree in loops.range(trees):
                self.add_trees([(row, tree) for row in several])
        for row in loops.range(groups * LANES, rows):
            self.add_row(row, trees)

    def add_row(self, row: Expr, trees: Dim) -> None:
        """Compute a row, several trees at a time."""
        loops = self.loops
        self.start(row)
        if not isinstance(trees, int):
            for tree in loops.range(trees):
                self.add_trees([(row, tree)])
            return
        whole = trees // LANES * LANES
        for first in loops.range(0, whole, LANES) if whole else ():
            self.add_trees([(row, loops.let(first + lane)) for lane in range(LANES)])
        if whole < trees:
            self.add_trees([(row, constant(tree, INDEX)) for tree in range(whole, trees)])

    def start(self, row: Expr) -> None:
        """Set the scores of a row to those before its first tree."""
        for (target,) in self.loops.nest(self.output.shape[1:]):
            self.output[row, target] = first_score(self.aggregate, self.output.dtype)

    def add_trees(self, places: Sequence[tuple[Expr, Expr]]) -> None:
        """Add trees to rows, in this order."""
        loops, output = self.loops, self.output
        leaves = self.leaves([row for row, _ in places], [self.roots[tree] for _, tree in places])
        for (target,) in loops.nest(output.shape[1:]):
            for (row, _), leaf in zip(places, leaves, strict=True):
                output[row, target] = with_tree(self.aggregate, output[row, target], self.weights[leaf, target])

    def leaves(self, rows: Sequence[Expr], starts: Sequence[Expr]) -> list[Expr]:
        """Return the leaves that rows reach from their nodes."""
        table = NodeTable(self.loops, self.x, self.thresholds, self.nodes, self.mode)
        lanes = [self.loops.variable(start, start.dtype) for start in starts]
        for _ in descent_loop(self.loops, lambda: _conjunction(lanes), self.depth or self.nodes.shape[0]):
            for row, lane in zip(rows, lanes, strict=True):
                at = self.loops.let(lane.get())
                following = table.next_node(row, at)
                lane.set(select(at >= 0, following, at) if len(lanes) > 1 else following)
        return [self.loops.let(leaf_index(lane.get(), self.weights.shape[0])) for lane in lanes]


def _conjunction(lanes: Sequence[Variable]) -> Expr:
    """Return a number that is negative if all nodes are leaves, which alone are negative."""
    nodes = lanes[0].get()
    for lane in lanes[1:]:
        nodes = nodes & lane.get()
    return nodes
