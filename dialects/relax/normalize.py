"""Normalizations."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Float, Int
from mirlo.dialects.core.conditions import require_multiple
from mirlo.dialects.core.op import OpError, operand, optional
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    FLOAT,
    normalize_axis,
    require_broadcast_to,
    require_kind,
    require_vector,
    same_dtype,
)


def _require_channels(x: TensorType, channel: int, **vectors: TensorType | None) -> None:
    """Check that the operand is float, and that each vector holds one element of its type per channel."""
    require_kind(x, FLOAT, "operand")
    for name, vector in vectors.items():
        if vector is not None:
            same_dtype(f"operand and {name}", x, vector)
            require_vector(vector, x.shape[channel], name, "channel")


class LayerNorm(RelaxOp, name="layer_norm"):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with statistics over the axes from `axis` on."""

    TRAITS = (Trait.LAST_AXIS,)
    FLOPS_PER_ELEMENT = 8
    meaning = staticmethod(meanings.layer_norm)
    sharding = staticmethod(shardings.last_axis)
    x = operand()
    scale = optional()
    bias = optional()
    axis = Int(-1)
    epsilon = Float(1e-5)

    @staticmethod
    def infer(
        x: TensorType, scale: TensorType | None, bias: TensorType | None, *, axis: int, epsilon: float
    ) -> TensorType:
        require_kind(x, FLOAT, "operand")
        axis = normalize_axis(axis, x.rank)
        for name, factor in (("scale", scale), ("bias", bias)):
            if factor is not None:
                same_dtype(f"operand and {name}", x, factor)
                require_broadcast_to(factor.shape, x.shape[axis:], name)
        return x


class RmsNorm(RelaxOp, name="rms_norm"):
    """x / sqrt(mean(x^2) + epsilon) * scale, with the mean over the axes from `axis` on."""

    TRAITS = (Trait.LAST_AXIS,)
    FLOPS_PER_ELEMENT = 5
    meaning = staticmethod(meanings.rms_norm)
    sharding = staticmethod(shardings.last_axis)
    x = operand()
    scale = optional()
    axis = Int(-1)
    epsilon = Float(1e-5)

    @staticmethod
    def infer(x: TensorType, scale: TensorType | None, *, axis: int, epsilon: float) -> TensorType:
        return LayerNorm.infer(x, scale, None, axis=axis, epsilon=epsilon)


class BatchNorm(RelaxOp, name="batch_norm"):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias with given statistics, one per channel along `axis`."""

    FLOPS_PER_ELEMENT = 4
    meaning = staticmethod(meanings.batch_norm)
    x = operand()
    scale = operand()
    bias = operand()
    mean = operand()
    variance = operand()
    axis = Int(1)
    epsilon = Float(1e-5)

    @staticmethod
    def infer(
        x: TensorType,
        scale: TensorType,
        bias: TensorType,
        mean: TensorType,
        variance: TensorType,
        *,
        axis: int,
        epsilon: float,
    ) -> TensorType:
        channel = normalize_axis(axis, x.rank)
        _require_channels(x, channel, scale=scale, bias=bias, mean=mean, variance=variance)
        return x


class InstanceNorm(RelaxOp, name="instance_norm"):
    """Normalize every channel of every batch element over its spatial dims; x is [N, C, ...]."""

    FLOPS_PER_ELEMENT = 8
    meaning = staticmethod(
        lambda x, *vectors, epsilon: meanings.group_norm(x, *vectors, groups=x.shape[1], epsilon=epsilon)
    )
    x = operand()
    scale = operand()
    bias = operand()
    epsilon = Float(1e-5)

    @staticmethod
    def infer(x: TensorType, scale: TensorType, bias: TensorType, *, epsilon: float) -> TensorType:
        _require_images(x, least=3)
        _require_channels(x, 1, scale=scale, bias=bias)
        return x


class GroupNorm(RelaxOp, name="group_norm"):
    """Normalize groups of channels of every batch element; scale and bias are per channel. x is [N, C, ...]."""

    FLOPS_PER_ELEMENT = 8
    meaning = staticmethod(meanings.group_norm)
    x = operand()
    scale = operand()
    bias = operand()
    groups = Int()
    epsilon = Float(1e-5)

    @staticmethod
    def infer(x: TensorType, scale: TensorType, bias: TensorType, *, groups: int, epsilon: float) -> TensorType:
        _require_images(x, least=2)
        _require_channels(x, 1, scale=scale, bias=bias)
        if groups < 1:
            raise OpError(f"groups must be at least 1, got {groups}")
        channels = x.shape[1]
        require_multiple(channels, groups, f"the {channels} channels must divide into {groups} groups")
        return x


class Lrn(RelaxOp, name="lrn"):
    """x / (bias + alpha / size * sum of squares of `size` neighbouring channels)^beta; x is [N, C, ...]."""

    FLOPS_PER_ELEMENT = 10
    x = operand()
    size = Int()
    alpha = Float(1e-4)
    beta = Float(0.75)
    bias = Float(1.0)

    @staticmethod
    def infer(x: TensorType, *, size: int, alpha: float, beta: float, bias: float) -> TensorType:
        require_kind(x, FLOAT, "operand")
        _require_images(x, least=2)
        if size < 1:
            raise OpError(f"size must be at least 1, got {size}")
        return x


class LpNormalize(RelaxOp, name="lp_normalize"):
    """x divided by its p-norm along the axis."""

    FLOPS_PER_ELEMENT = 4
    meaning = staticmethod(meanings.lp_normalize)
    x = operand()
    axis = Int(-1)
    p = Int(2, choices=(1, 2))

    @staticmethod
    def infer(x: TensorType, *, axis: int, p: int) -> TensorType:
        require_kind(x, FLOAT, "operand")
        normalize_axis(axis, x.rank)
        return x


def _require_images(x: TensorType, least: int) -> None:
    if x.rank < least:
        more = ", a channel dim and at least one spatial dim" if least > 2 else " and a channel dim"
        raise OpError(f"operand must have a batch dim{more}, got {x}")
