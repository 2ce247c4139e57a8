"""Default rules of table lookup and decision trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.relax.tree import NAN_BY_NODE
from mirlo.dialects.tir.compute import (
    INDEX,
    Expr,
    LoopBuilder,
    TensorExpr,
    constant,
    minimum,
    select,
    within,
)
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import fixed, shape_of
from mirlo.passes.rules import legalize
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder


@legalize("relax.find_sorted")
def find_sorted(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Search without branches: each step advances by a power of two if the key there is not larger."""
    count = fixed(shape_of(op.keys)[0])

    def body(p: PrimBuilder, x: TensorExpr, keys: TensorExpr) -> TensorExpr:
        def element(*axes: Expr) -> Expr:
            value = x.at(*axes)
            position: Expr = constant(-1, INDEX)
            step = 1 << max(count.bit_length() - 1, 0)
            while step and count:
                reached = position + step
                key = keys.at(within(reached, count))
                position = select((reached < count) & _not_larger(key, value), reached, position)
                step //= 2
            if not count:
                return constant(-1, "i64")
            stored_key = keys.at(within(position, count))
            is_there = (position >= 0) & _not_larger(stored_key, value) & _not_larger(value, stored_key)
            return select(is_there, position.cast("i64"), constant(-1, "i64"))

        return p.compute(x.shape, element, name="find_sorted")

    return b.call_prim(body, op.x, op.keys)


def _not_larger(a: Expr, b: Expr) -> Expr:
    """Return a <= b, where NaN is larger than every other value and equal to itself."""
    return (a <= b) | b.differs(b) if a.dtype.is_float else a <= b


@legalize("relax.tree_ensemble")
def tree_ensemble(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    rows, targets = shape_of(op.output)

    def body(
        loops: LoopBuilder, x: Buffer, thresholds: Buffer, nodes: Buffer, roots: Buffer, weights: Buffer, output: Buffer
    ) -> None:
        table = NodeTable(loops, x, thresholds, nodes, op.mode)
        for (row,) in loops.nest((rows,), parallel=True):
            for (target,) in loops.nest((targets,)):
                output[row, target] = first_score(op.aggregate, output.dtype)
            for tree in loops.range(shape_of(op.roots)[0]):
                at = loops.variable(roots[tree], roots.dtype)
                for _ in descent_loop(loops, at.get, op.depth or nodes.shape[0]):
                    at.set(table.next_node(row, loops.let(at.get())))
                leaf = loops.let(leaf_index(at.get(), weights.shape[0]))
                for (target,) in loops.nest((targets,)):
                    output[row, target] = with_tree(op.aggregate, output[row, target], weights[leaf, target])

    return b.call_loops(body, op.x, op.thresholds, op.nodes, op.roots, op.weights)


def descent_loop(loops: LoopBuilder, node: Callable[[], Expr], limit: D.Dim) -> Iterator[None]:
    """Emit a loop that ends at a negative node, a leaf, and after `limit` steps at most, whatever nodes hold."""
    kind = node().dtype
    most = limit if isinstance(limit, int) and limit < 1 << 31 else minimum(constant(limit, INDEX), (1 << 31) - 1)
    left = loops.variable(most - 1 if isinstance(most, int) else (most - 1).cast(kind.name), kind)
    # One test: the conjunction of the signs is that of the disjunction.
    for _ in loops.while_(lambda: (node() | left.get()) >= 0):
        left.set(left.get() - 1)
        yield


def first_score(aggregate: str, kind: DType) -> Expr:
    """Return the score of a row before its first tree."""
    return constant({"sum": 0.0, "min": float("inf"), "max": float("-inf")}[aggregate], kind)


def with_tree(aggregate: str, score: Expr, weight: Expr) -> Expr:
    """Return a score with the value of a tree's leaf: of equal ones, the earlier one."""
    if aggregate == "sum":
        return score + weight
    return select(weight < score if aggregate == "min" else weight > score, weight, score)


def leaf_index(at: Expr, leaves: D.Dim) -> Expr:
    """Return the leaf of a negative node; the index is always within the weights."""
    return bounded(constant(-1, at.dtype) - at, leaves)


def bounded(index: Expr, size: D.Dim) -> Expr:
    """Return an index that is always within a table, whatever nodes hold."""
    if isinstance(size, int) and 0 < size < 1 << 31:
        unsigned = index.bitcast(f"u{index.dtype.bits}")
        return minimum(unsigned, constant(size - 1, unsigned.dtype)).bitcast(index.dtype).cast(INDEX)
    return within(index, size)


@dataclass(frozen=True)
class NodeTable:
    """The buffers of the nodes of trees, and how to go from one node to the next."""

    loops: LoopBuilder
    x: Buffer
    thresholds: Buffer
    nodes: Buffer
    mode: int

    def next_node(self, row: Expr, at: Expr) -> Expr:
        """Return the node after an inner one; any node after a leaf."""
        loops, nodes = self.loops, self.nodes
        node = loops.let(bounded(at, nodes.shape[0]))
        value = loops.let(self.x[row, bounded(nodes[node, 0], self.x.shape[1])])
        is_shared = self.mode >= 0 and not self.mode & NAN_BY_NODE
        how = constant(self.mode, nodes.dtype) if is_shared else loops.let(nodes[node, 1])
        holds = compared(value, loops.let(self.thresholds[node]), how, self.mode)
        # One load from a computed place: LLVM makes branches of a choice between two, which rows mispredict.
        return nodes[node, (constant(3, "i32") - holds.cast("i32")).cast(INDEX)]


def compared(value: Expr, bound: Expr, how: Expr, mode: int) -> Expr:
    """Return whether a node's comparison holds: `mode` as `relax.tree_ensemble` defines it, `how` is the node's."""
    tests = [value <= bound, value < bound, value >= bound, value > bound, value.equals(bound), value.differs(bound)]
    if mode >= 0:
        holds = tests[mode & 7]
        if mode & NAN_BY_NODE:
            return holds | (value.differs(value) & (how & 8).equals(8))
        return holds | value.differs(value) if mode & 8 else holds
    kind = how & 7
    holds = tests[0]
    for number, test in enumerate(tests[1:], 1):
        holds = select(kind.equals(number), test, holds)
    return holds | (value.differs(value) & (how & 8).equals(8))
