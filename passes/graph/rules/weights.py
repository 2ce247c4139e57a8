"""Simplifications that prepare weights: transposed ones stored as kernels read them, batch norms folded into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of, only_use
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


@simplify("relax.batch_norm")
def batch_norm_as_affine(op: Any, b: Rewriter) -> Any:
    """With constant statistics: into the weights of the convolution before it, else a multiply and an add."""
    arrays = [b.array(v) for v in (op.scale, op.bias, op.mean, op.variance)]
    if any(a is None for a in arrays):
        return decline("the statistics are not constants")
    scale, bias, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    factor = scale / np.sqrt(variance + op.epsilon)
    shift = bias - mean * factor
    kind = kind_of(op.x)
    conv = defining(op.x, "relax.conv")
    if conv is not None and only_use(op.x) and op.axis % kind.rank == _channel(conv, kind.rank):
        made = _into_conv(conv, factor, shift, b)
        if made is not None:
            return made
    shape = [1] * kind.rank
    shape[op.axis] = -1
    kinds = kind.with_shape([kind.shape[i] if d == -1 else 1 for i, d in enumerate(shape)])
    dtype = kind.dtype.to_numpy()
    scaled = b.emit(OPS["multiply"], op.x, b.constant(factor.astype(dtype), kinds, b.name_of(op.scale)))
    return b.emit(OPS["add"], scaled, b.constant(shift.astype(dtype), kinds, b.name_of(op.bias)))


def _channel(conv: Any, rank: int) -> int:
    return 1 if conv.data_layout == "NC*" else rank - 1


def _into_conv(conv: Any, factor: np.ndarray, shift: np.ndarray, b: Rewriter) -> Any:
    weight = b.array(conv.weight)
    bias = b.array(conv.bias) if conv.bias is not None else np.zeros_like(factor)
    if weight is None or bias is None:
        return None
    kind = kind_of(conv.weight)
    dtype = kind.dtype.to_numpy()
    shape = (-1,) + (1,) * (kind.rank - 1) if conv.kernel_layout == "OI*" else (-1,)
    scaled = (np.asarray(weight, np.float64) * factor.reshape(shape)).astype(dtype)
    new_bias = (np.asarray(bias, np.float64) * factor + shift).astype(dtype)
    attributes = conv.attribute_values()
    name = b.name_of(conv.weight)
    return b.emit(
        OPS["conv"], conv.x, b.constant(scaled, kind, f"{name}.scaled"),
        b.constant(new_bias, kind.with_shape((len(new_bias),)), f"{name}.bias"), **attributes,
    )  # fmt: skip
