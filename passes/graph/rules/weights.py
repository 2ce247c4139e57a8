"""Simplifications that fold scales and shifts after a convolution or a matrix product into its weights."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, only_use
from mirlo.passes.rules import Decline, decline, simplify

_WEIGHTED = ("relax.conv", "relax.matmul")
"""The operators whose constant weights are changed."""


@simplify("relax.multiply", "relax.divide", producers=[*_WEIGHTED, "relax.add"])
def scale_into_weights(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Fold a scale per channel into constant weights of a convolution or product, also across an added constant."""
    is_product = op.operation.name == "relax.multiply"
    for x, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs))[: 2 if is_product else 1]:
        shifted = defining(x, "relax.add")
        if shifted is not None and not (only_use(x) and is_constant(shifted.rhs) and shifted.lhs.type == x.type):
            shifted = None
        shift = None if shifted is None else shifted.rhs
        producer = _weighted(x if shifted is None else shifted.lhs, b)
        numbers = _per_channel(factor, x, producer, op, b)
        added = None if shift is None else _per_channel(shift, x, producer, op, b)
        if producer is None or numbers is None or (shift is not None and added is None):
            continue
        if not is_product:
            with np.errstate(divide="ignore"):
                numbers = 1.0 / numbers
        if not np.isfinite(numbers).all():
            continue
        result = _scaled(producer, numbers, None, b)
        if result is not None:
            return (
                result
                if added is None or shift is None
                else b.emit(OPS["add"], result, _like(added * numbers, shift, producer, b))
            )
    return decline("it is not a constant factor per channel of constant weights")


@simplify("relax.add", "relax.subtract", producers=["relax.conv"])
def shift_into_bias(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Fold a constant per channel after a convolution into its bias."""
    is_sum = op.operation.name == "relax.add"
    for x, shift in ((op.lhs, op.rhs), (op.rhs, op.lhs))[: 2 if is_sum else 1]:
        producer = _weighted(x, b)
        if producer is None or producer.operation.name != "relax.conv":
            continue
        numbers = _per_channel(shift, x, producer, op, b)
        if numbers is None:
            continue
        result = _scaled(producer, None, numbers if is_sum else -numbers, b)
        if result is not None:
            return result
    return decline("it is not a constant per channel after a convolution")


@simplify("relax.batch_norm")
def batch_norm_as_affine(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Fold constant statistics into the weights of the convolution before it, else emit a multiply and an add."""
    arrays = [b.array(v) for v in (op.scale, op.bias, op.mean, op.variance)]
    if any(a is None for a in arrays):
        return decline("the statistics are not constants")
    scale, bias, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    factor = scale / np.sqrt(variance + op.epsilon)
    shift = bias - mean * factor
    kind = kind_of(op.x)
    conv = _weighted(op.x, b)
    if conv is not None and op.axis % kind.rank == _channel_axis(conv, kind.rank):
        result = _scaled(conv, factor, shift, b)
        if result is not None:
            return result
    shape = [1] * kind.rank
    shape[op.axis] = -1
    kinds = kind.with_shape([kind.shape[i] if d == -1 else 1 for i, d in enumerate(shape)])
    dtype = kind.dtype.to_numpy()
    scaled = b.emit(OPS["multiply"], op.x, b.constant(factor.astype(dtype), kinds, b.name_of(op.scale)))
    return b.emit(OPS["add"], scaled, b.constant(shift.astype(dtype), kinds, b.name_of(op.bias)))


def _weighted(value: ir.Value, b: Rewriter) -> ir.OpView | None:
    """Return the producer in the same block: a float convolution or product with constant weights and a single use."""
    for name in _WEIGHTED:
        producer = defining(value, name)
        if producer is None or not (only_use(value) and beside(value, b)):
            continue
        if producer.out_dtype is None and kind_of(value).dtype.is_float:
            weight = producer.operation.operands[1]
            return producer if is_constant(weight) and only_use(weight) else None
    return None


def _channel_axis(producer: ir.OpView, rank: int) -> int:
    return 1 if producer.operation.name == "relax.conv" and producer.data_layout == "NC*" else rank - 1


def _per_channel(
    value: ir.Value, x: ir.Value, producer: ir.OpView | None, op: ir.OpView, b: Rewriter
) -> np.ndarray | None:
    """Return the elements of a constant per channel of x, or one for all channels."""
    kind = kind_of(x)
    if producer is None or not is_constant(value) or x.type != op.output.type:
        return None
    axis = _channel_axis(producer, kind.rank)
    shape = kind_of(value).static_shape
    shape = (1,) * (kind.rank - len(shape)) + shape
    channels = kind.shape[axis]
    if not isinstance(channels, int) or any(dim != 1 for i, dim in enumerate(shape) if i != axis):
        return None
    array = b.array(value)
    return None if array is None else np.broadcast_to(np.asarray(array, np.float64).reshape(-1), (channels,))


def _scaled(producer: ir.OpView, factor: np.ndarray | None, shift: np.ndarray | None, b: Rewriter) -> ir.Value | None:
    """Return the producer with its result times `factor` plus `shift` per channel; None if its weights prevent it."""
    weight = producer.operation.operands[1]
    kind = kind_of(weight)
    if b.array(weight) is None:  # IR without its parameter files
        return None
    if producer.operation.name == "relax.matmul":
        return _scaled_product(producer, factor, shift, b)
    bias = None if producer.bias is None else b.array(producer.bias)
    if producer.bias is not None and bias is None:
        return None
    numbers = np.zeros(1) if bias is None else np.asarray(bias, np.float64)
    if factor is not None:
        shape = (-1,) + (1,) * (kind.rank - 1) if producer.kernel_layout != "*IO" else (-1,)
        weight, numbers = _times(weight, factor.reshape(shape), b), numbers * factor
    if shift is not None:
        numbers = numbers + shift
    made_bias = None
    if bias is not None or shift is not None:
        name = f"{b.name_of(producer.weight)}.bias"
        made_bias = b.constant(numbers.astype(kind.dtype.to_numpy()), kind.with_shape((len(numbers),)), name)
    return b.emit(OPS["conv"], producer.x, weight, made_bias, **producer.attribute_values())


def _scaled_product(
    matmul: ir.OpView, factor: np.ndarray | None, shift: np.ndarray | None, b: Rewriter
) -> ir.Value | None:
    kind = kind_of(matmul.rhs)
    if kind.rank != 2 or matmul.transpose_rhs or factor is None:
        return None
    result = b.emit(OPS["matmul"], matmul.lhs, _times(matmul.rhs, factor, b), **matmul.attribute_values())
    if shift is None:
        return result
    name = f"{b.name_of(matmul.rhs)}.bias"
    return b.emit(
        OPS["add"], result, b.constant(shift.astype(kind.dtype.to_numpy()), kind.with_shape(shift.shape), name)
    )


def _times(weight: ir.Value, factor: np.ndarray, b: Rewriter) -> ir.Value:
    kind = kind_of(weight)
    scaled = np.asarray(b.array(weight), np.float64) * factor
    return b.constant(scaled.astype(kind.dtype.to_numpy()), kind, f"{b.name_of(weight)}.scaled")


def _like(array: np.ndarray, value: ir.Value, producer: ir.OpView, b: Rewriter) -> ir.Value:
    """Return a constant with one element per channel of a producer, of the rank of another value or more."""
    kind, rank = kind_of(value), kind_of(producer.output).rank
    behind = rank - 1 - _channel_axis(producer, rank)
    shape: list[Dim] = [1] * max(kind.rank, behind + 1)
    shape[len(shape) - 1 - behind] = len(array)
    tensor_type = kind.with_shape(shape)
    return b.constant(
        array.astype(kind.dtype.to_numpy()).reshape(tensor_type.static_shape), tensor_type, f"{b.name_of(value)}.scaled"
    )
