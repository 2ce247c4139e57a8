"""Batch normalization, its statistics and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Tensor
from mirlo.extend.library import batch_norm, batch_norm_of_batch, channel_axes, of_channels
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.registry import converter


def _epsilon(op: StablehloOperation) -> float:
    return float(op.op.attributes["epsilon"].value)


def _of_features(op: StablehloOperation, x: Tensor) -> Tensor:
    """Return a vector with one element per feature, reshaped to broadcast to the operand."""
    return of_channels(x, op.operands[0], op.integer("feature_index")).expand(op.type(0).shape)


@converter("batch_norm_inference")
def batch_norm_inference(op: StablehloOperation) -> Tensor:
    x, scale, bias, mean, variance = op.operands
    return batch_norm(x, scale, bias, mean, variance, _epsilon(op), op.integer("feature_index"))


@converter("batch_norm_training")
def batch_norm_training(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `batch_norm_training`: the result, the means and the variances of the features."""
    x, scale, bias = op.operands
    return batch_norm_of_batch(x, scale, bias, _epsilon(op), op.integer("feature_index"))


@converter("batch_norm_grad")
def batch_norm_grad(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `batch_norm_grad`: the gradients of the operand, the scale and the offset."""
    x, gradient = op.operands[0], op.operands[4]
    others = channel_axes(x, op.integer("feature_index"))
    scale, mean, variance = (_of_features(op, each) for each in op.operands[1:4])
    centered = x - mean
    spread = variance + _epsilon(op)
    product = gradient * centered
    shared = _of_features(op, gradient.mean(others))
    along = centered * (_of_features(op, product.mean(others)) / spread)
    deviation = spread.sqrt()
    operand = (gradient - shared - along) * (scale / deviation)
    sums = [part.sum(others) for part in (product / deviation, gradient)]
    return [operand, *sums]
