"""Table lookup and decision trees."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Int, Str
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import array_meanings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    FLOAT,
    INTEGER,
    NUMBER,
    require_equal_dims,
    require_kind,
    require_rank,
    same_dtype,
)

MODES = ("<=", "<", ">=", ">", "==", "!=")
NAN_BY_NODE = 16
"""Added to the comparison that all nodes share, if NaN counts as true for some and as false for others."""


class FindSorted(RelaxOp, name="find_sorted"):
    """The index of each element in keys [K], which are ascending and distinct, NaN last; -1 if it is not a key."""

    x = operand()
    keys = operand()

    @staticmethod
    def infer(x: TensorType, keys: TensorType) -> TensorType:
        require_kind(x, NUMBER, "operand")
        same_dtype("operand and keys", x, keys)
        require_rank(keys, 1, "keys")
        return x.with_dtype("i64")


class TreeEnsemble(RelaxOp, name="tree_ensemble"):
    """What the leaves that a row of x [N, features] reaches in all trees add up to: [N, targets].

    `weights` [leaves, targets] holds the values of the leaves. `aggregate` combines them tree by tree, in the order of
    `roots`; sums begin with 0 and are rounded after each tree. `mode` is the comparison of all nodes if they share one,
    with 16 added if they differ in what NaN counts as, else -1. Nodes and roots are i32 or i64.

    Row i of nodes [nodes, 4] holds a feature, which is compared with thresholds[i], a comparison, the next node if
    it holds, and the next node otherwise. Comparisons are 0 to 5 for <=, <, >=, >, ==, !=; add 8 if NaN counts as
    true. Leaf i is node -1 - i. `roots` are the root nodes of the trees. Nodes must not form a cycle. `depth` is the
    most nodes on a path from a root to a leaf, 0 if it is unknown: as many as there are nodes. A row that is at no leaf
    after `depth` nodes takes any leaf.
    """

    meaning = staticmethod(array_meanings.tree_ensemble)
    x = operand()
    thresholds = operand()
    nodes = operand()
    roots = operand()
    weights = operand()
    mode = Int(-1)
    aggregate = Str("sum", choices=("sum", "min", "max"))
    depth = Int(0)

    @staticmethod
    def infer(
        x: TensorType,
        thresholds: TensorType,
        nodes: TensorType,
        roots: TensorType,
        weights: TensorType,
        *,
        mode: int,
        aggregate: str,
        depth: int,
    ) -> TensorType:
        require_kind(x, FLOAT, "operand")
        require_rank(x, 2, "operand")
        same_dtype("operand and thresholds", x, thresholds)
        require_rank(thresholds, 1, "thresholds")
        require_rank(nodes, 2, "nodes")
        require_rank(roots, 1, "roots")
        require_kind(weights, FLOAT, "weights")
        require_rank(weights, 2, "weights")
        for table, what in ((nodes, "nodes"), (roots, "roots")):
            require_kind(table, INTEGER, what)
            if table.dtype.name not in ("i32", "i64"):
                raise OpError(f"{what} must be i32 or i64, got {table}")
        same_dtype("nodes and roots", nodes, roots)
        if mode != -1 and (mode & ~8 & ~NAN_BY_NODE not in range(len(MODES))):
            raise OpError(f"mode must be -1, or how a node compares, got {mode}")
        if depth < 0:
            raise OpError(f"depth must be the nodes of the longest path, or 0, got {depth}")
        require_equal_dims(nodes.shape[1], 4, f"the last dim of nodes {nodes} and what is said of a node")
        require_equal_dims(nodes.shape[0], thresholds.shape[0], f"the nodes of {nodes} and thresholds {thresholds}")
        for tensor, what in ((nodes, "nodes"), (weights, "leaves")):
            if tensor.shape[0] == 0:
                raise OpError(f"there must be {what}, got {tensor}")
        return x.with_shape((x.shape[0], weights.shape[1])).with_dtype(weights.dtype.name)
