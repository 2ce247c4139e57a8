"""Random values from a generator that is part of the operators' definition: the Mersenne Twister MT19937.

A uniform value in [0, 1) takes 53 bits of two outputs; normal values are made in pairs by the polar method. Both
equal those of `numpy.random.RandomState(seed)`, value by value.
"""

from __future__ import annotations

from mirlo.dialects.core.attributes import Dims, ElementType, Float
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import INTEGER, require_kind, require_rank


def _infer(seed: TensorType, shape: tuple[Dim, ...], dtype: DType) -> TensorType:
    require_kind(seed, INTEGER, "seed")
    require_rank(seed, 0, "seed")
    if not dtype.is_float:
        raise OpError(f"dtype must be floating point, got {dtype}")
    return TensorType(shape, dtype)


class RandomUniform(RelaxOp, name="random_uniform"):
    """Uniform values in [low, high). The same seed (its lower 32 bits) always produces the same values."""

    FLOPS_PER_ELEMENT = 16
    seed = operand()
    shape = Dims()
    low = Float(0.0)
    high = Float(1.0)
    dtype = ElementType("f32")

    @staticmethod
    def infer(seed: TensorType, *, shape: tuple[Dim, ...], low: float, high: float, dtype: DType) -> TensorType:
        return _infer(seed, shape, dtype)


class RandomNormal(RelaxOp, name="random_normal"):
    """Values of the normal distribution. The same seed (its lower 32 bits) always produces the same values."""

    FLOPS_PER_ELEMENT = 32
    seed = operand()
    shape = Dims()
    mean = Float(0.0)
    scale = Float(1.0)
    dtype = ElementType("f32")

    @staticmethod
    def infer(seed: TensorType, *, shape: tuple[Dim, ...], mean: float, scale: float, dtype: DType) -> TensorType:
        return _infer(seed, shape, dtype)
