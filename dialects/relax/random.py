"""Random numbers, of a generator that is part of what the operators mean: the Mersenne Twister MT19937.

A number from 0 to 1 takes 53 bits of two outputs; normal ones are made of pairs of them by the polar method. Both are
those of `numpy.random.RandomState(seed)`, number by number.
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
    """Numbers from `low` up to, but not including, `high`; one seed (its lower 32 bits) always gives the same."""

    seed = operand()
    shape = Dims()
    low = Float(0.0)
    high = Float(1.0)
    dtype = ElementType("f32")

    @staticmethod
    def infer(seed: TensorType, *, shape: tuple[Dim, ...], low: float, high: float, dtype: DType) -> TensorType:
        return _infer(seed, shape, dtype)


class RandomNormal(RelaxOp, name="random_normal"):
    """Numbers of the normal distribution; one seed (its lower 32 bits) always gives the same."""

    seed = operand()
    shape = Dims()
    mean = Float(0.0)
    scale = Float(1.0)
    dtype = ElementType("f32")

    @staticmethod
    def infer(seed: TensorType, *, shape: tuple[Dim, ...], mean: float, scale: float, dtype: DType) -> TensorType:
        return _infer(seed, shape, dtype)
