"""Activations and the softmax family."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.core.attributes import Float, Int, Str
from mirlo.dialects.core.op import operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import FLOAT, NUMBER, normalize_axis, require_broadcast_to, require_kind, same_dtype


class Activation(RelaxOp):
    """Elementwise activation: the result has the type of the operand."""

    KINDS: tuple[str, ...] = FLOAT
    x = operand()

    @classmethod
    def infer(cls, x: TensorType, **parameters: Any) -> TensorType:
        require_kind(x, cls.KINDS, "operand")
        return x


class Relu(Activation, name="relu"):
    """max(x, 0)"""

    KINDS = NUMBER


class LeakyRelu(Activation, name="leaky_relu"):
    """x where x >= 0, else alpha * x"""

    alpha = Float(0.01)


class Elu(Activation, name="elu"):
    """x where x >= 0, else alpha * (exp(x) - 1)"""

    alpha = Float(1.0)


class Selu(Activation, name="selu"):
    """gamma * (x where x > 0, else alpha * (exp(x) - 1))"""

    alpha = Float(1.67326319217681884765625)
    gamma = Float(1.05070102214813232421875)


class Celu(Activation, name="celu"):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))"""

    alpha = Float(1.0)


class Sigmoid(Activation, name="sigmoid"):
    """1 / (1 + exp(-x))"""


class HardSigmoid(Activation, name="hard_sigmoid"):
    """min(max(alpha * x + beta, 0), 1)"""

    alpha = Float(0.2)
    beta = Float(0.5)


class HardSwish(Activation, name="hard_swish"):
    """x * min(max(x / 6 + 1/2, 0), 1)"""


class Silu(Activation, name="silu"):
    """x * sigmoid(x)"""


class Mish(Activation, name="mish"):
    """x * tanh(softplus(x))"""


class Softplus(Activation, name="softplus"):
    """log(1 + exp(x))"""


class Softsign(Activation, name="softsign"):
    """x / (1 + |x|)"""


class ThresholdedRelu(Activation, name="thresholded_relu"):
    """x where x > alpha, else 0"""

    alpha = Float(1.0)


class Shrink(Activation, name="shrink"):
    """x + bias where x < -lambd, x - bias where x > lambd, else 0"""

    KINDS = NUMBER
    lambd = Float(0.5)
    bias = Float(0.0)


class Gelu(Activation, name="gelu"):
    """x * cdf(x) of the normal distribution, by erf or by its tanh approximation"""

    approximate = Str("none", choices=("none", "tanh"))


class Clip(Activation, name="clip"):
    """min(max(x, min), max); an absent bound does not limit"""

    KINDS = NUMBER
    min = Float(None)
    max = Float(None)


class Prelu(RelaxOp, name="prelu"):
    """x where x >= 0, else slope * x; the slope broadcasts to x"""

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

    x = operand()
    axis = Int(-1)

    @staticmethod
    def infer(x: TensorType, *, axis: int) -> TensorType:
        require_kind(x, FLOAT, "operand")
        normalize_axis(axis, x.rank)
        return x


class Softmax(OverAxis, name="softmax"):
    """exp(x) / sum(exp(x)) along the axis"""


class LogSoftmax(OverAxis, name="log_softmax"):
    """log(softmax(x)) along the axis"""


class Hardmax(OverAxis, name="hardmax"):
    """1 at the first maximum along the axis, else 0"""
