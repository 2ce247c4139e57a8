"""Activations."""

from __future__ import annotations

from mirlo.extend.frontend import Tensor, maximum, minimum, where
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter


@converter("aten.relu.default")
def relu(op: AtenOperation, x: Tensor) -> Tensor:
    return x.relu() if x.dtype.is_float else maximum(x, 0)


@converter("aten.relu6.default")
def relu6(op: AtenOperation, x: Tensor) -> Tensor:
    return x.clip(least=0.0, most=6.0) if x.dtype.is_float else _clipped(op, x)


def _clipped(op: AtenOperation, x: Tensor) -> Tensor:
    return minimum(maximum(x, 0), 6)


@converter("aten.hardsigmoid.default")
def hardsigmoid(op: AtenOperation, x: Tensor) -> Tensor:
    return x.elementwise("hard_sigmoid", alpha=1 / 6, beta=0.5)


@converter("aten.gelu.default")
def gelu(op: AtenOperation, x: Tensor, *, approximate: str = "none") -> Tensor:
    return x.elementwise("gelu", approximate=approximate)


@converter("aten.leaky_relu.default")
def leaky_relu(op: AtenOperation, x: Tensor, slope: float = 0.01) -> Tensor:
    return x.elementwise("leaky_relu", alpha=float(slope))


@converter("aten.elu.default")
def elu(op: AtenOperation, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if scale == 1 and input_scale == 1:
        return x.elementwise("elu", alpha=float(alpha))
    y = op.wide(x)
    grown = (y * float(input_scale)).expm1()
    below = grown * (float(alpha) * float(scale))
    above = y * float(scale)
    return where(y <= 0.0, below, above, y.dtype).cast(op.dtype)


@converter("aten.celu.default")
def celu(op: AtenOperation, x: Tensor, alpha: float = 1.0) -> Tensor:
    return elu(op, x, alpha, 1.0, 1.0 / alpha)


@converter("aten.softplus.default")
def softplus(op: AtenOperation, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Convert `softplus`, which is linear above a threshold."""
    y = op.wide(x)
    scaled = y if beta == 1 else y * float(beta)
    result = scaled.softplus()
    result = result if beta == 1 else result / float(beta)
    return where(scaled > float(threshold), y, result, y.dtype).cast(op.dtype)


@converter("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(op: AtenOperation, x: Tensor, slope: Tensor) -> Tensor:
    if slope.rank == 1 and "_kernel" not in op.name and x.rank > 1:
        slope = slope.reshape((*slope.shape, *[1] * (x.rank - 2)))
    elif not x.rank:
        slope = slope.reshape(())
    return where(x > 0, x, x * slope, op.dtype)


@converter("aten.glu.default")
def glu(op: AtenOperation, x: Tensor, axis: int = -1) -> Tensor:
    axis %= x.rank
    half = x.shape[axis] // 2
    left, right = x.slice(axis, 0, half), x.slice(axis, half, half)
    return left * right.sigmoid()


@converter("aten.tanhshrink.default")
def tanhshrink(op: AtenOperation, x: Tensor) -> Tensor:
    return x - x.tanh()


@converter("aten.softsign.default")
def softsign(op: AtenOperation, x: Tensor) -> Tensor:
    return x / (abs(x) + 1)


@converter("aten.logit.default", "aten.special_logit.default")
def logit(op: AtenOperation, x: Tensor, epsilon: float | None = None) -> Tensor:
    y = op.wide(x.cast(op.dtype))
    if epsilon is not None:
        y = minimum(maximum(y, float(epsilon)), 1.0 - float(epsilon))
    rest = 1 - y
    return (y / rest).log().cast(op.dtype)
