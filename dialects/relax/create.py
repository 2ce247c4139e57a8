"""Creation of tensors: constants, ranges, random values.

Small constants are in the IR. Weights are in the parameter store, and the IR holds their names.
"""

from __future__ import annotations

import math

import numpy as np

from mirlo.dialects.core.attributes import Bool, Dims, ElementType, Float, Int, Raw, Str
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError, operand, result
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import INTEGER, require_kind, require_rank, shape_text


class Full(RelaxOp, name="full"):
    """A tensor filled with one value."""

    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda *, shape, value, dtype: np.full(shape, value, dtype.to_numpy()))
    sharding = staticmethod(shardings.full)
    shape = Dims()
    value = Float()
    dtype = ElementType()

    @staticmethod
    def infer(*, shape: tuple[Dim, ...], value: float, dtype: DType) -> TensorType:
        return TensorType(shape, dtype)


class Arange(RelaxOp, name="arange"):
    """start, start + step, ... up to, but not including, `stop`."""

    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(meanings.arange)
    start = Float()
    stop = Float()
    step = Float()
    dtype = ElementType()

    @staticmethod
    def infer(*, start: float, stop: float, step: float, dtype: DType) -> TensorType:
        if not all(map(math.isfinite, (start, stop, step))) or step == 0:
            raise OpError(f"start, stop and step must be finite and step not 0, got {start}, {stop}, {step}")
        if dtype.is_bool:
            raise OpError("dtype must be a number type, got bool")
        return TensorType((max(0, math.ceil((stop - start) / step)),), dtype)


class Eye(RelaxOp, name="eye"):
    """A matrix with ones on diagonal `k` (positive: above the main diagonal), else zeros."""

    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda *, shape, k, dtype: np.eye(shape[0], shape[1], k, dtype=dtype.to_numpy()))
    shape = Dims()
    k = Int(0)
    dtype = ElementType()

    @staticmethod
    def infer(*, shape: tuple[Dim, ...], k: int, dtype: DType) -> TensorType:
        if len(shape) != 2:
            raise OpError(f"shape must have two dims, got {shape_text(shape)}")
        return TensorType(shape, dtype)


class Tri(RelaxOp, name="tri"):
    """The matrices in the last two dims of x with zeros above diagonal `k`; with `upper`, below it."""

    FLOPS_PER_ELEMENT = 0
    meaning = staticmethod(lambda x, *, k, upper: (np.triu if upper else np.tril)(x, k))
    x = operand()
    k = Int(0)
    upper = Bool(False)

    @staticmethod
    def infer(x: TensorType, *, k: int, upper: bool) -> TensorType:
        if x.rank < 2:
            raise OpError(f"operand must have rank 2 or more, got {x}")
        return x


def _infer(seed: TensorType, shape: tuple[Dim, ...], dtype: DType) -> TensorType:
    require_kind(seed, INTEGER, "seed")
    require_rank(seed, 0, "seed")
    if not dtype.is_float:
        raise OpError(f"dtype must be floating point, got {dtype}")
    return TensorType(shape, dtype)


class RandomUniform(RelaxOp, name="random_uniform"):
    """Uniform values in [low, high). The same seed (its lower 32 bits) always produces the same values.

    The generator is the Mersenne Twister MT19937, 53 bits of two outputs a value, as `numpy.random.RandomState(seed)`.
    """

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
    """Values of the normal distribution. The same seed (its lower 32 bits) always produces the same values.

    They are made in pairs by the polar method, and equal those of `numpy.random.RandomState(seed)`.
    """

    FLOPS_PER_ELEMENT = 32
    seed = operand()
    shape = Dims()
    mean = Float(0.0)
    scale = Float(1.0)
    dtype = ElementType("f32")

    @staticmethod
    def infer(seed: TensorType, *, shape: tuple[Dim, ...], mean: float, scale: float, dtype: DType) -> TensorType:
        return _infer(seed, shape, dtype)


class Constant(RelaxOp, name="constant"):
    """A tensor known at compile time: `value` in the IR, or `param`, the name of an array in the parameter store."""

    TRAITS = (Trait.INTERFACE,)
    output = result()
    value = Raw("DenseElementsAttr", None)
    param = Str(None)

    def check(self) -> None:
        declared = TensorType.from_mlir(self.output.type)
        if declared is None or not declared.is_static:
            raise OpError(f"result must be a tensor whose dims are numbers, got {self.output.type}")
        if (self.value is None) == (self.param is None):
            raise OpError("needs either 'value', a dense attribute, or 'param', the name of a parameter")
        if self.value is not None and self.value.type != self.output.type:
            raise OpError(f"value is {self.value.type}, but the result is declared {self.output.type}")
