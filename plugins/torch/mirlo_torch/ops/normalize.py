"""Normalizations and the softmax family."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend import library
from mirlo.extend.frontend import Dim, Tensor, UnsupportedOperation, where
from mirlo.extend.frontend import dims as D
from mirlo_torch.operation import AtenOperation, axis_of
from mirlo_torch.registry import converter

TRAINING = "normalizes by statistics of the batch, as in training=True: only inference is compiled; call eval()"


@converter("aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default", "aten.special_softmax.int")
def softmax(op: AtenOperation, x: Tensor, axis: int, *_: object, **ignored: object) -> Tensor:
    y = x.cast(op.dtype)
    if not x.rank:
        return op.constant(1, op.dtype)
    result = y.softmax(axis_of(axis, x.rank))
    if "safe" not in op.name:
        return result
    least = y.max(axis_of(axis, x.rank), keepdims=True)
    return where(least.equals(float("-inf")), 0, result, op.dtype)


@converter("aten.log_softmax.int", "aten._log_softmax.default", "aten.special_log_softmax.int")
def log_softmax(op: AtenOperation, x: Tensor, axis: int, *_: object, **ignored: object) -> Tensor:
    y = x.cast(op.dtype)
    if not x.rank:
        return op.constant(0, op.dtype)
    return y.log_softmax(axis_of(axis, x.rank))


@converter("aten.layer_norm.default")
def layer_norm(
    op: AtenOperation, x: Tensor, normalized: Sequence[Dim], weight: Tensor | None = None, bias: Tensor | None = None,
    epsilon: float = 1e-5, *_: object,
) -> Tensor:  # fmt: skip
    return library.layer_norm(x, weight, bias, x.rank - len(normalized), epsilon)


@converter("aten.native_layer_norm.default")
def native_layer_norm(
    op: AtenOperation, x: Tensor, normalized: Sequence[Dim], weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> list[Tensor]:
    axis = x.rank - len(normalized)
    result = library.layer_norm(x, weight, bias, axis, epsilon)
    return [result, *_statistics(op, x, list(range(axis, x.rank)), epsilon, op.result(1).dtype.name)]


def _statistics(op: AtenOperation, x: Tensor, axes: list[int], epsilon: float, kind: str) -> list[Tensor]:
    """Return the mean and the reciprocal of the standard deviation."""
    statistics = library.moments(op.wide(x), axes)
    return [each.cast(kind) for each in (statistics.mean, statistics.reciprocal_deviation(epsilon))]


@converter("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(
    op: AtenOperation, x: Tensor, normalized: Sequence[Dim], weight: Tensor | None = None, epsilon: float | None = None
) -> Tensor | list[Tensor]:
    if epsilon is None:
        epsilon = {"f64": 2.220446049250313e-16}.get(op.wide(x).dtype.name, 1.1920928955078125e-07)
    axis = x.rank - len(normalized)
    result = library.rms_norm(x, weight, axis, epsilon)
    if "_fused" not in op.name:
        return result.cast(op.dtype)
    y = op.wide(x)
    mean = (y * y).mean(list(range(axis, x.rank)), keepdims=True)
    kept = (mean + epsilon).rsqrt()
    return [result.cast(op.result(0).dtype), kept.cast(op.result(1).dtype)]


@converter("aten.batch_norm.default")
def batch_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None,
    variance: Tensor | None, training: bool, momentum: float, epsilon: float, *_: object,
) -> Tensor:  # fmt: skip
    if mean is None and variance is None:
        return _by_own_statistics(op, x, weight, bias, epsilon)[0]
    if training or mean is None or variance is None:
        raise UnsupportedOperation(TRAINING)
    return _batch_norm(x, weight, bias, mean, variance, epsilon)


def _by_own_statistics(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> list[Tensor]:
    """Return x normalized per channel, with the mean, the variance and the reciprocal deviation."""
    statistics = library.moments(op.wide(x), library.channel_axes(x))
    result = statistics.normalized(epsilon)
    if weight is not None:
        result = result * library.of_channels(weight, x).cast(result.dtype)
    if bias is not None:
        result = result + library.of_channels(bias, x).cast(result.dtype)
    kept = (statistics.mean, statistics.variance, statistics.reciprocal_deviation(epsilon))
    return [result.cast(x.dtype), *(each.reshape((x.shape[1],)) for each in kept)]


@converter("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float,
    epsilon: float,
) -> list[Tensor]:  # fmt: skip
    normalized, center, _, scale = _by_own_statistics(op, x, weight, bias, epsilon)
    return [normalized, center.cast(op.result(1).dtype), scale.cast(op.result(2).dtype)]


@converter("aten._native_batch_norm_legit_functional.default")
def functional_batch_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    training: bool, momentum: float, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    """Convert the batch norm that also returns the updated running statistics."""
    if not training:
        normalized = _batch_norm(x, weight, bias, mean, variance, epsilon)
        rest = [op.constant(0, op.result(i).dtype).expand(op.result(i).shape) for i in (1, 2)]
        return [normalized, *rest, *(each.cast(op.result(i).dtype) for i, each in ((3, mean), (4, variance)))]
    normalized, center, spread, scale = _by_own_statistics(op, x, weight, bias, epsilon)
    count = D.product([dim for axis, dim in enumerate(x.shape) if axis != 1])
    size = op.operand(count, spread.dtype)
    unbiased = spread * size / (size - 1)
    moved = [
        library.moved(op.wide(old), new, momentum).cast(op.result(index).dtype)
        for index, old, new in ((3, mean, center), (4, variance, unbiased))
    ]
    return [normalized, center.cast(op.result(1).dtype), scale.cast(op.result(2).dtype), *moved]


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, epsilon: float
) -> Tensor:
    if x.rank < 2:
        raise UnsupportedOperation("normalizes a tensor without a dim of channels")
    return library.batch_norm(x, weight, bias, mean, variance, epsilon)


@converter("aten._native_batch_norm_legit_no_training.default")
def native_batch_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    momentum: float, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    result = _batch_norm(x, weight, bias, mean, variance, epsilon)
    rest = [op.constant(0, op.result(i).dtype).expand(op.result(i).shape) for i in (1, 2)]
    return [result, *rest]


@converter("aten.group_norm.default")
def group_norm(
    op: AtenOperation, x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    epsilon: float = 1e-5, *_: object,
) -> Tensor:  # fmt: skip
    return library.group_norm(x, weight, bias, groups, epsilon)


@converter("aten.native_group_norm.default")
def native_group_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: Dim, channels: Dim, size: Dim,
    groups: int, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    result = library.group_norm(x, weight, bias, groups, epsilon)
    flat = x.reshape((x.shape[0], groups, D.product(x.shape[1:]) // groups))
    kept = _statistics(op, flat, [2], epsilon, op.result(1).dtype.name)
    return [result, *(each.reshape((x.shape[0], groups)) for each in kept)]
