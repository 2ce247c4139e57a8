"""Search in tables and decision trees."""

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
    """The place of each element among keys [K], which ascend and differ, NaN last; -1 where it is not among them."""

    x = operand()
    keys = operand()

    @staticmethod
    def infer(x: TensorType, keys: TensorType) -> TensorType:
        require_kind(x, NUMBER, "operand")
        same_dtype("operand and keys", x, keys)
        require_rank(keys, 1, "keys")
        return x.with_dtype("i64")


class TreeLeaves(RelaxOp, name="tree_leaves"):
    """The leaf of each tree in which each row of x [N, features] ends: i64 [N, trees].

    `mode` is how all nodes compare, where they do it in the same way, or -1. Nodes and roots are i32 or i64.

    Row i of nodes [nodes, 4] is the feature that is compared with thresholds[i], how, and the nodes that come next
    where that holds, and where not. How: 0 to 5 for <=, <, >=, >, ==, !=, and 8 more where a NaN counts as holding.
    Leaf i is node -1 - i. `roots` are the first nodes of the trees. From no node may a way lead back to it.
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
