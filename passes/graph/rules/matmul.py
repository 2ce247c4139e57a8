"""Simplifications of matrix products: operands in the layout of their memory."""

from __future__ import annotations

import math

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, only_use
from mirlo.passes.rules import Decline, decline, simplify


@simplify("relax.matmul")
def transposed_weight(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Store a constant that is read transposed in transposed form."""
    if not op.transpose_rhs or not is_constant(op.rhs):
        return decline("the right operand is not a transposed constant")
    rank = kind_of(op.rhs).rank
    axes = [*range(rank - 2), rank - 1, rank - 2]
    weight = b.emit(OPS["permute"], op.rhs, axes=axes)
    return b.emit(OPS["matmul"], op.lhs, weight, **{**op.attribute_values(), "transpose_rhs": False})


@simplify("relax.matmul", producers=["relax.permute"])
def permuted_operand(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Merge a permute that swaps the last two dims into a transposed read."""
    attributes = op.attribute_values()
    operands = [op.lhs, op.rhs]
    for i, flag in enumerate(("transpose_lhs", "transpose_rhs")):
        inner = defining(operands[i], "relax.permute")
        if inner is None or len(inner.axes) < 2 or is_constant(inner.x):
            continue
        rank = len(inner.axes)
        if tuple(inner.axes) == (*range(rank - 2), rank - 1, rank - 2):
            operands[i] = inner.x
            attributes[flag] = not attributes[flag]
            return b.emit(OPS["matmul"], *operands, **attributes)
    return decline("no operand is a permute of its last two dims")


@simplify("relax.matmul")
def batch_as_rows(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Multiply [B, M, K] by one matrix [K, N] as B * M rows."""
    left, right = kind_of(op.lhs), kind_of(op.rhs)
    if right.rank != 2 or left.rank < 3 or op.transpose_lhs:
        return decline("it is not a batch of matrices times one matrix")
    if not left.is_static or math.prod(left.static_shape[:-2]) <= 1:
        return decline("the batch is not known to be larger than one")
    *batch, depth = left.static_shape
    rows = b.emit(OPS["reshape"], op.lhs, shape=(math.prod(batch), depth))
    result = b.emit(OPS["matmul"], rows, op.rhs, **op.attribute_values())
    return b.emit(OPS["reshape"], result, shape=kind_of(op.output).shape)


@simplify("relax.permute", producers=["relax.matmul"])
def permuted_product(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Swap the operands of a product whose rows become the last dim: its columns then stay where they are."""
    product = defining(op.x, "relax.matmul")
    rank = len(op.axes)
    if product is None or kind_of(product.lhs).rank != rank or kind_of(product.rhs).rank != rank or rank < 3:
        return decline("the operand is not a product of batches of matrices")
    if op.axes[-1] != rank - 2 or not only_use(op.x):
        return decline("the rows of the product do not become the last dim, or it has other uses")
    if is_constant(product.lhs) or is_constant(product.rhs) or product.activations != "exact":
        return decline("an operand is a weight")
    attributes = product.attribute_values()
    flags = {"transpose_lhs": not product.transpose_rhs, "transpose_rhs": not product.transpose_lhs}
    swapped = b.emit(OPS["matmul"], product.rhs, product.lhs, **{**attributes, **flags})
    exchanged = {rank - 1: rank - 2, rank - 2: rank - 1}
    return b.emit(OPS["permute"], swapped, axes=[exchanged.get(axis, axis) for axis in op.axes])


@simplify("relax.add", producers=["relax.matmul"])
def sum_of_products(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Compute the sum of two products by one of twice the depth, as of the gradients of a weight that steps share.

    Operands are copied one after another: that must be less than the products, which need not be stored then.
    """
    products = [defining(value, "relax.matmul") for value in (op.lhs, op.rhs)]
    first, second = products
    if first is None or second is None or first.output.type != second.output.type:
        return decline("it is not a sum of two products of one type")
    if not all(only_use(each.output) and beside(each.output, b) for each in (first, second)):
        return decline("a product has other uses, or is computed in another block")
    attributes = first.attribute_values()
    if attributes != second.attribute_values() or first.activations != "exact":
        return decline("the products read their operands in other ways")
    kinds = [[kind_of(value) for value in (each.lhs, each.rhs)] for each in (first, second)]
    if any(kind.rank != 2 or not kind.is_static for pair in kinds for kind in pair) or kinds[0][0].dtype.is_integer:
        return decline("the products are not of matrices of floats, whose sizes are known")
    if any(one.dtype is not other.dtype for one, other in zip(*kinds, strict=True)):
        return decline("the products have operands of other types")
    if any(is_constant(value) for each in (first, second) for value in (each.lhs, each.rhs)):
        return decline("an operand is a weight")
    copied = sum(math.prod(kind.static_shape) for pair in kinds for kind in pair)
    result = math.prod(kind_of(op.output).static_shape)
    if copied > result:
        return decline("the operands are larger than the products", copied=copied, result=result)
    axes = 0 if first.transpose_lhs else 1, 1 if first.transpose_rhs else 0
    operands = [
        b.emit(OPS["concat"], [*_joined(one, axis), *_joined(other, axis)], axis=axis)
        for one, other, axis in zip((first.lhs, first.rhs), (second.lhs, second.rhs), axes, strict=True)
    ]
    return b.emit(OPS["matmul"], *operands, **attributes)


def _joined(value: ir.Value, axis: int) -> list[ir.Value]:
    """Return the operands of a concatenation along an axis, or the value alone."""
    joined = defining(value, "relax.concat")
    if joined is None or not only_use(value) or joined.axis % kind_of(value).rank != axis:
        return [value]
    return list(joined.operation.operands)
