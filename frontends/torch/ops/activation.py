"""Activations."""

from __future__ import annotations

from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.operation import AtenOperation, Operand
from mirlo.frontends.torch.registry import converter


@converter("aten.relu.default")
def relu(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("relu", x) if x.dtype.is_float else op.apply("maximum", x, 0)


@converter("aten.relu6.default")
def relu6(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("clip", x, min=0.0, max=6.0) if x.dtype.is_float else _clipped(op, x)


def _clipped(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("minimum", op.apply("maximum", x, 0), 6)


@converter("aten.silu.default", "aten.mish.default", "aten.hardswish.default")
def simple(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply({"hardswish": "hard_swish"}.get(name := op.name.split(".")[1], name), x)


@converter("aten.hardsigmoid.default")
def hardsigmoid(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@converter("aten.gelu.default")
def gelu(op: AtenOperation, x: Tensor, *, approximate: str = "none") -> Tensor:
    return op.apply("gelu", x, approximate=approximate)


@converter("aten.leaky_relu.default")
def leaky_relu(op: AtenOperation, x: Tensor, slope: float = 0.01) -> Tensor:
    return op.apply("leaky_relu", x, alpha=float(slope))


@converter("aten.elu.default")
def elu(op: AtenOperation, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if scale == 1 and input_scale == 1:
        return op.apply("elu", x, alpha=float(alpha))
    y = op.wide(x)
    grown = op.apply("expm1", op.apply("multiply", y, float(input_scale)))
    below = op.apply("multiply", grown, float(alpha) * float(scale))
    above = op.apply("multiply", y, float(scale))
    return op.cast(op.choose(op.apply("less_equal", y, 0.0), below, above, y.dtype), op.dtype)


@converter("aten.selu.default")
def selu(op: AtenOperation, x: Tensor) -> Tensor:
    return elu(op, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@converter("aten.celu.default")
def celu(op: AtenOperation, x: Tensor, alpha: float = 1.0) -> Tensor:
    return elu(op, x, alpha, 1.0, 1.0 / alpha)


@converter("aten.softplus.default")
def softplus(op: AtenOperation, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Convert `softplus`, which is linear above a threshold."""
    y = op.wide(x)
    scaled = y if beta == 1 else op.apply("multiply", y, float(beta))
    result = op.apply("softplus", scaled)
    result = result if beta == 1 else op.apply("divide", result, float(beta))
    return op.cast(op.choose(op.apply("greater", scaled, float(threshold)), y, result, y.dtype), op.dtype)


@converter("aten.log_sigmoid.default")
def log_sigmoid(op: AtenOperation, x: Tensor) -> Tensor:
    y = op.wide(x)
    least = op.apply("minimum", y, 0.0)
    tail = op.apply("log1p", op.apply("exp", op.apply("negative", op.apply("abs", y))))
    return op.cast(op.apply("subtract", least, tail), op.dtype)


@converter("aten.threshold.default")
def threshold(op: AtenOperation, x: Tensor, limit: Operand, value: Operand) -> Tensor:
    return op.choose(op.apply("less_equal", *op.promoted(x, limit)), value, x, op.dtype)


@converter("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(op: AtenOperation, x: Tensor, slope: Tensor) -> Tensor:
    if slope.rank == 1 and "_kernel" not in op.name and x.rank > 1:
        slope = op.reshaped(slope, (*slope.shape, *[1] * (x.rank - 2)))
    elif not x.rank:
        slope = op.reshaped(slope, ())
    return op.choose(op.apply("greater", x, 0), x, op.apply("multiply", x, slope), op.dtype)


@converter("aten.glu.default")
def glu(op: AtenOperation, x: Tensor, axis: int = -1) -> Tensor:
    axis %= x.rank
    half = x.shape[axis] // 2
    left, right = op.sliced(x, axis, 0, half), op.sliced(x, axis, half, half)
    return op.apply("multiply", left, op.apply("sigmoid", right))


@converter("aten.hardshrink.default", "aten.softshrink.default")
def shrink(op: AtenOperation, x: Tensor, limit: float = 0.5) -> Tensor:
    """Convert the shrinks, which keep NaN."""
    bound = float(limit)
    inside = op.apply("logical_and", op.apply("less_equal", x, bound), op.apply("greater_equal", x, -bound))
    if "hard" in op.name:
        return op.choose(inside, 0, x, op.dtype)
    moved = op.choose(op.apply("greater", x, 0), op.apply("subtract", x, bound), op.apply("add", x, bound), op.dtype)
    return op.choose(inside, 0, moved, op.dtype)


@converter("aten.tanhshrink.default")
def tanhshrink(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("subtract", x, op.apply("tanh", x))


@converter("aten.softsign.default")
def softsign(op: AtenOperation, x: Tensor) -> Tensor:
    return op.apply("divide", x, op.apply("add", op.apply("abs", x), 1))


@converter("aten.logit.default", "aten.special_logit.default")
def logit(op: AtenOperation, x: Tensor, epsilon: float | None = None) -> Tensor:
    y = op.wide(op.cast(x, op.dtype))
    if epsilon is not None:
        y = op.apply("minimum", op.apply("maximum", y, float(epsilon)), 1.0 - float(epsilon))
    rest = op.apply("subtract", op.constant(1, y.dtype), y)
    return op.cast(op.apply("log", op.apply("divide", y, rest)), op.dtype)
