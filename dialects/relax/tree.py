"""Table lookup and decision trees."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Int
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.types import TensorType
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


class TreeLeaves(RelaxOp, name="tree_leaves"):
    """The leaf of each tree that each row of x [N, features] reaches: i64 [N, trees].

    `mode` is the comparison of all nodes if they share one, else -1. Nodes and roots are i32 or i64.

    Row i of nodes [nodes, 4] holds a feature, which is compared with thresholds[i], a comparison, the next node if
    it holds, and the next node otherwise. Comparisons are 0 to 5 for <=, <, >=, >, ==, !=; add 8 if NaN counts as
    true. Leaf i is node -1 - i. `roots` are the root nodes of the trees. Nodes must not form a cycle.
    """

    x = operand()
    thresholds = operand()
    nodes = operand()
    roots = operand()
    mode = Int(-1)

    @staticmethod
    def infer(x: TensorType, thresholds: TensorType, nodes: TensorType, roots: TensorType, *, mode: int) -> TensorType:
        require_kind(x, FLOAT, "operand")
        require_rank(x, 2, "operand")
        same_dtype("operand and thresholds", x, thresholds)
        require_rank(thresholds, 1, "thresholds")
        require_rank(nodes, 2, "nodes")
        require_rank(roots, 1, "roots")
        for found, what in ((nodes, "nodes"), (roots, "roots")):
            require_kind(found, INTEGER, what)
            if found.dtype.name not in ("i32", "i64"):
                raise OpError(f"{what} must be i32 or i64, got {found}")
        same_dtype("nodes and roots", nodes, roots)
        if mode != -1 and (mode & ~8 not in range(len(MODES))):
            raise OpError(f"mode must be -1, or how a node compares, got {mode}")
        require_equal_dims(nodes.shape[1], 4, f"the last dim of nodes {nodes} and what is said of a node")
        require_equal_dims(nodes.shape[0], thresholds.shape[0], f"the nodes of {nodes} and thresholds {thresholds}")
        return x.with_shape((x.shape[0], roots.shape[0])).with_dtype("i64")
