"""Matrix products and contractions."""

from __future__ import annotations

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node, simple
from mirlo.frontends.onnx.registry import CONVERTERS, converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor

CONVERTERS.add("", "MatMul", 1, simple("matmul", 2))


@converter("Gemm")
def gemm(node: Node) -> Tensor:
    """Convert to alpha * A' * B' + beta * C."""
    a, b = node.type(0), node.type(1)
    if a.rank != 2 or b.rank != 2:
        raise NodeError(f"inputs 'A' and 'B' must be matrices, got {a} and {b}")
    alpha, beta = node.attr.float("alpha", 1.0), node.attr.float("beta", 1.0)
    result = node[0].matmul(
        node[1], transpose_lhs=node.attr.bool("transA", 0), transpose_rhs=node.attr.bool("transB", 0)
    )
    if alpha != 1:
        result = result * alpha
    if not node.has(2):
        return result
    addend = node[2]
    if beta != 1:
        addend = addend * beta
    return result + addend


@converter("Einsum")
def einsum(node: Node) -> Converted:
    return node.emit("einsum", node.all(), equation=node.attr.str("equation"))
