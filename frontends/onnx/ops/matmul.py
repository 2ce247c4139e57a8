"""Matrix products and contractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.matmul import einsum_terms
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor


@converter("MatMul")
def product(node: Node) -> Converted:
    return node[0] @ node[1]


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
    """Convert Einsum; if two operands give an index different dims, either may be 1 at run time."""
    equation, xs = node.attr.str("equation"), node.all()
    terms, _ = einsum_terms(equation, [x.type.rank for x in xs])
    sizes: dict[str, Dim] = {}
    for x, labels in zip(xs, terms, strict=True):
        for label, dim in zip(labels, x.type.shape, strict=True):
            sizes[label] = node.builder.broadcast_dim(sizes.get(label, 1), dim)
    return node.emit(
        "einsum", [_spread(x, labels, sizes) for x, labels in zip(xs, terms, strict=True)], equation=equation
    )


def _spread(x: Tensor, labels: Sequence[str], sizes: Mapping[str, Dim]) -> Tensor:
    """Return an operand whose dims are those of its indices where only the call knows whether they are 1."""
    wanted = [
        dim
        if dim == 1 or (isinstance(dim, int) and isinstance(sizes[label], int)) or labels.count(label) > 1
        else sizes[label]
        for label, dim in zip(labels, x.type.shape, strict=True)
    ]
    return x.expand(tuple(wanted))
