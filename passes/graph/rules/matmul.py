"""Simplifications of matrix products: operands that are read as they lie in memory."""

from __future__ import annotations

import math
from typing import Any

from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.rules import decline, simplify


@simplify("relax.matmul")
def transposed_weight(op: Any, b: Rewriter) -> Any:
    """A constant that is read transposed is stored transposed."""
    if not op.transpose_rhs or not is_constant(op.rhs):
        return decline("the right operand is no transposed constant")
    rank = kind_of(op.rhs).rank
    axes = [*range(rank - 2), rank - 1, rank - 2]
    weight = b.emit(OPS["permute"], op.rhs, axes=axes)
    return b.emit(
        OPS["matmul"], op.lhs, weight, transpose_lhs=op.transpose_lhs, transpose_rhs=False, out_dtype=op.out_dtype
    )


@simplify("relax.matmul")
def permuted_operand(op: Any, b: Rewriter) -> Any:
    """A permute that swaps the last two dims is read transposed instead."""
    attributes = {"transpose_lhs": op.transpose_lhs, "transpose_rhs": op.transpose_rhs}
    operands = [op.lhs, op.rhs]
    for i, flag in enumerate(attributes):
        inner = defining(operands[i], "relax.permute")
        if inner is None or len(inner.axes) < 2 or is_constant(inner.x):
            continue
        rank = len(inner.axes)
        if tuple(inner.axes) == (*range(rank - 2), rank - 1, rank - 2):
            operands[i] = inner.x
            attributes[flag] = not attributes[flag]
            return b.emit(OPS["matmul"], *operands, **attributes, out_dtype=op.out_dtype)
    return decline("no operand is a permute of its last two dims")


@simplify("relax.matmul")
def batch_as_rows(op: Any, b: Rewriter) -> Any:
    """[B, M, K] times one matrix [K, N] is the product of B * M rows with it."""
    left, right = kind_of(op.lhs), kind_of(op.rhs)
    if right.rank != 2 or left.rank < 3 or op.transpose_lhs:
        return decline("it is not a batch of matrices times one matrix")
    if not left.is_static or math.prod(left.static_shape[:-2]) <= 1:
        return decline("the batch is not known to be larger than one")
    *batch, depth = left.static_shape
    rows = b.emit(OPS["reshape"], op.lhs, shape=(math.prod(batch), depth))
    made = b.emit(OPS["matmul"], rows, op.rhs, transpose_rhs=op.transpose_rhs, out_dtype=op.out_dtype)
    return b.emit(OPS["reshape"], made, shape=kind_of(op.output).shape)
