"""Activations and the softmax family."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core.attributes import Float, Int, Str
from mirlo.dialects.core.op import operand
from mirlo.dialects.core.traits import AxisAttributes, OnnxName, Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings, scalars, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import FLOAT, NUMBER, normalize_axis, require_broadcast_to, require_kind, same_dtype
from mirlo.dialects.tir.compute import maximum


class Activation(RelaxOp):
    """Elementwise activation: the result has the type of the operand."""

    TRAITS = (Trait.ELEMENTWISE, Trait.ACTIVATION)
    PRECISION = Precision.REGISTERS
    KINDS: tuple[str, ...] = FLOAT
    x = operand()

    @classmethod
    def infer(cls, x: TensorType, **parameters: float | str | None) -> TensorType:
        require_kind(x, cls.KINDS, "operand")
        return x


class Relu(Activation, name="relu"):
    """max(x, 0)"""

    IN_F32 = False
    ONNX = OnnxName("Relu")
    meaning = staticmethod(lambda x: np.maximum(x, np.zeros((), x.dtype)))
    scalar = staticmethod(lambda x: maximum(x, 0))
    KINDS = NUMBER


class LeakyRelu(Activation, name="leaky_relu"):
    """x where x >= 0, else alpha * x"""

    ONNX = OnnxName("LeakyRelu")
    meaning = staticmethod(lambda x, *, alpha: np.where(x >= 0, x, x * alpha))
    alpha = Float(0.01)


class Elu(Activation, name="elu"):
    """x where x >= 0, else alpha * (exp(x) - 1)"""

    ONNX = OnnxName("Elu")
    meaning = staticmethod(meanings.elu)
    scalar = staticmethod(scalars.elu)
    alpha = Float(1.0)


class Selu(Activation, name="selu"):
    """gamma * (x where x > 0, else alpha * (exp(x) - 1))"""

    ONNX = OnnxName("Selu")
    meaning = staticmethod(lambda x, *, alpha, gamma: gamma * meanings.elu(x, alpha))
    scalar = staticmethod(scalars.selu)
    alpha = Float(1.67326319217681884765625)
    gamma = Float(1.05070102214813232421875)


class Celu(Activation, name="celu"):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))"""

    ONNX = OnnxName("Celu")
    meaning = staticmethod(
        lambda x, *, alpha: np.maximum(x, 0) + np.minimum(alpha * np.expm1(np.minimum(x, 0) / alpha), 0)
    )
    scalar = staticmethod(scalars.celu)
    alpha = Float(1.0)


class Sigmoid(Activation, name="sigmoid"):
    """1 / (1 + exp(-x))"""

    ONNX = OnnxName("Sigmoid")
    DOMAIN = ((-9.0, 9.0),)
    meaning = staticmethod(meanings.sigmoid)
    scalar = staticmethod(scalars.logistic)
    FLOPS_PER_ELEMENT = 4


class HardSigmoid(Activation, name="hard_sigmoid"):
    """min(max(alpha * x + beta, 0), 1)"""

    ONNX = OnnxName("HardSigmoid")
    DOMAIN = ((-9.0, 9.0),)
    meaning = staticmethod(lambda x, *, alpha, beta: np.minimum(np.maximum(alpha * x + beta, 0.0), 1.0))
    alpha = Float(0.2)
    beta = Float(0.5)


class HardSwish(Activation, name="hard_swish"):
    """x * min(max(x / 6 + 1/2, 0), 1)"""

    ONNX = OnnxName("HardSwish", exported=False)
    DOMAIN = ((-9.0, 9.0),)
    meaning = staticmethod(lambda x: x * np.minimum(np.maximum(x * (1 / 6) + 0.5, 0.0), 1.0))


class Silu(Activation, name="silu"):
    """x * sigmoid(x)"""

    DOMAIN = ((-9.0, 9.0),)
    meaning = staticmethod(lambda x: x * meanings.sigmoid(x))
    scalar = staticmethod(scalars.silu)
    FLOPS_PER_ELEMENT = 4


class Mish(Activation, name="mish"):
    """x * tanh(softplus(x))"""

    ONNX = OnnxName("Mish")
    DOMAIN = ((-9.0, 9.0),)
    meaning = staticmethod(lambda x: x * np.tanh(meanings.softplus(x)))
    scalar = staticmethod(scalars.mish)
    FLOPS_PER_ELEMENT = 8


class Softplus(Activation, name="softplus"):
    """log(1 + exp(x))"""

    ONNX = OnnxName("Softplus")
    DOMAIN = ((-9.0, 9.0),)
    meaning = staticmethod(meanings.softplus)
    scalar = staticmethod(scalars.softplus)


class Softsign(Activation, name="softsign"):
    """x / (1 + |x|)"""

    ONNX = OnnxName("Softsign")
    DOMAIN = ((-9.0, 9.0),)
    meaning = staticmethod(lambda x: x / (1 + np.abs(x)))


class ThresholdedRelu(Activation, name="thresholded_relu"):
    """x where x > alpha, else 0"""

    ONNX = OnnxName("ThresholdedRelu")
    meaning = staticmethod(lambda x, *, alpha: np.where(x > alpha, x, 0))
    alpha = Float(1.0)


class Shrink(Activation, name="shrink"):
    """x + bias where x < -lambd, x - bias where x > lambd, else 0"""

    ONNX = OnnxName("Shrink", exported=False)
    meaning = staticmethod(meanings.shrink)
    scalar = staticmethod(scalars.shrink)
    KINDS = NUMBER
    lambd = Float(0.5)
    bias = Float(0.0)


class Gelu(Activation, name="gelu"):
    """x * cdf(x) of the normal distribution, by erf or by its tanh approximation"""

    meaning = staticmethod(meanings.gelu)
    scalar = staticmethod(scalars.gelu)
    FLOPS_PER_ELEMENT = 8
    approximate = Str("none", choices=("none", "tanh"))


class Clip(Activation, name="clip"):
    """min(max(x, min), max); an absent bound does not limit"""

    IN_F32 = False
    meaning = staticmethod(meanings.clip)
    scalar = staticmethod(scalars.clip)
    KINDS = NUMBER
    min = Float(None)
    max = Float(None)


class Prelu(RelaxOp, name="prelu"):
    """x where x >= 0, else slope * x; the slope broadcasts to x"""

    IN_F32 = False
    ONNX = OnnxName("PRelu")
    meaning = staticmethod(lambda x, slope: np.where(x < 0, x * slope, x))
    scalar = staticmethod(scalars.prelu)
    TRAITS = (Trait.ELEMENTWISE,)
    PRECISION = Precision.REGISTERS
    x = operand()
    slope = operand()

    @staticmethod
    def infer(x: TensorType, slope: TensorType) -> TensorType:
        same_dtype("operand and slope", x, slope)
        require_kind(x, NUMBER, "operand")
        require_broadcast_to(slope.shape, x.shape, "slope")
        return x


class OverAxis(RelaxOp):
    """Operator that normalizes the elements along one axis."""

    AXES = AxisAttributes(axis="axis")
    x = operand()
    axis = Int(-1)

    @staticmethod
    def infer(x: TensorType, *, axis: int) -> TensorType:
        require_kind(x, FLOAT, "operand")
        normalize_axis(axis, x.rank)
        return x


class Softmax(OverAxis, name="softmax"):
    """exp(x) / sum(exp(x)) along the axis"""

    ONNX = OnnxName("Softmax", since=13)
    meaning = staticmethod(meanings.softmax)
    sharding = staticmethod(shardings.last_axis)
    TRAITS = (Trait.LAST_AXIS,)
    FLOPS_PER_ELEMENT = 5


class LogSoftmax(OverAxis, name="log_softmax"):
    """log(softmax(x)) along the axis"""

    ONNX = OnnxName("LogSoftmax", since=13)
    meaning = staticmethod(meanings.log_softmax)
    sharding = staticmethod(shardings.last_axis)
    TRAITS = (Trait.LAST_AXIS,)
    FLOPS_PER_ELEMENT = 5


class Hardmax(OverAxis, name="hardmax"):
    """1 at the first maximum along the axis, else 0"""

    ONNX = OnnxName("Hardmax", since=13)
    meaning = staticmethod(meanings.hardmax)
