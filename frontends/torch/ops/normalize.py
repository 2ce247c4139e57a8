"""Normalizations and the softmax family."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.operation import AtenOperation, axis_of
from mirlo.frontends.torch.registry import converter

TRAINING = "normalizes by statistics of the batch, as in training=True: only inference is compiled; call eval()"


@converter("aten.softmax.int", "aten._softmax.default", "aten._safe_softmax.default", "aten.special_softmax.int")
def softmax(op: AtenOperation, x: Tensor, axis: int, *_: object, **ignored: object) -> Tensor:
    y = op.cast(x, op.dtype)
    if not x.rank:
        return op.constant(1, op.dtype)
    result = op.emit("softmax", y, axis=axis_of(axis, x.rank))
    if "safe" not in op.name:
        return result
    least = op.emit("reduce_max", y, axes=[axis_of(axis, x.rank)], keepdims=True)
    return op.choose(op.apply("equal", least, float("-inf")), 0, result, op.dtype)


@converter("aten.log_softmax.int", "aten._log_softmax.default", "aten.special_log_softmax.int")
def log_softmax(op: AtenOperation, x: Tensor, axis: int, *_: object, **ignored: object) -> Tensor:
    y = op.cast(x, op.dtype)
    if not x.rank:
        return op.constant(0, op.dtype)
    return op.emit("log_softmax", y, axis=axis_of(axis, x.rank))


@converter("aten.layer_norm.default")
def layer_norm(
    op: AtenOperation, x: Tensor, normalized: Sequence[Dim], weight: Tensor | None = None, bias: Tensor | None = None,
    epsilon: float = 1e-5, *_: object,
) -> Tensor:  # fmt: skip
    return _layer_norm(op, x, len(normalized), weight, bias, epsilon)


def _layer_norm(
    op: AtenOperation, x: Tensor, count: int, weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> Tensor:
    axis = x.rank - count
    if weight is not None and weight.dtype is not x.dtype:
        weight = op.cast(weight, x.dtype)
    if bias is not None:
        bias = op.cast(bias, x.dtype)
    if weight is None and bias is not None:
        return op.apply("add", op.emit("layer_norm", x, axis=axis, epsilon=epsilon), bias)
    return op.emit("layer_norm", x, weight, bias, axis=axis, epsilon=epsilon)


@converter("aten.native_layer_norm.default")
def native_layer_norm(
    op: AtenOperation, x: Tensor, normalized: Sequence[Dim], weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> list[Tensor]:
    result = _layer_norm(op, x, len(normalized), weight, bias, epsilon)
    axes = list(range(x.rank - len(normalized), x.rank))
    return [result, *_statistics(op, x, axes, epsilon, op.result(1).dtype.name)]


def _statistics(op: AtenOperation, x: Tensor, axes: list[int], epsilon: float, kind: str) -> list[Tensor]:
    """Return the mean and the reciprocal of the deviation."""
    y = op.wide(x)
    center = op.emit("reduce_mean", y, axes=axes, keepdims=True)
    apart = op.apply("subtract", y, center)
    spread = op.emit("reduce_mean", op.apply("multiply", apart, apart), axes=axes, keepdims=True)
    return [op.cast(each, kind) for each in (center, op.apply("rsqrt", op.apply("add", spread, epsilon)))]


@converter("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(
    op: AtenOperation, x: Tensor, normalized: Sequence[Dim], weight: Tensor | None = None, epsilon: float | None = None
) -> Tensor | list[Tensor]:
    if epsilon is None:
        epsilon = {"f64": 2.220446049250313e-16}.get(op.wide(x).dtype.name, 1.1920928955078125e-07)
    axis = x.rank - len(normalized)
    scale = None if weight is None else op.cast(weight, x.dtype)
    result = op.emit("rms_norm", x, scale, axis=axis, epsilon=epsilon)
    if "_fused" not in op.name:
        return op.cast(result, op.dtype)
    y = op.wide(x)
    mean = op.emit("reduce_mean", op.apply("multiply", y, y), axes=list(range(axis, x.rank)), keepdims=True)
    kept = op.apply("rsqrt", op.apply("add", mean, epsilon))
    return [op.cast(result, op.result(0).dtype), op.cast(kept, op.result(1).dtype)]


@converter("aten.batch_norm.default")
def batch_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None,
    variance: Tensor | None, training: bool, momentum: float, epsilon: float, *_: object,
) -> Tensor:  # fmt: skip
    if mean is None and variance is None:
        return _by_own_statistics(op, x, weight, bias, epsilon)[0]
    if training or mean is None or variance is None:
        raise UnsupportedOperation(TRAINING)
    return _batch_norm(op, x, weight, bias, mean, variance, epsilon)


def _by_own_statistics(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> list[Tensor]:
    """Return x normalized by the mean and the variance of each channel, these, and the reciprocal deviation."""
    y = op.wide(x)
    axes = [axis for axis in range(x.rank) if axis != 1]
    center = op.emit("reduce_mean", y, axes=axes, keepdims=True)
    apart = op.apply("subtract", y, center)
    spread = op.emit("reduce_mean", op.apply("multiply", apart, apart), axes=axes, keepdims=True)
    scale = op.apply("rsqrt", op.apply("add", spread, epsilon))
    result = op.apply("multiply", apart, scale)
    for name, given in (("multiply", weight), ("add", bias)):
        if given is not None:
            column = op.reshaped(op.cast(given, y.dtype), (given.shape[0], *[1] * (x.rank - 2)))
            result = op.apply(name, result, column)
    vectors = [op.reshaped(each, (x.shape[1],)) for each in (center, spread, scale)]
    return [op.cast(result, x.dtype), *vectors]


@converter("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float,
    epsilon: float,
) -> list[Tensor]:  # fmt: skip
    normalized, center, _, scale = _by_own_statistics(op, x, weight, bias, epsilon)
    return [normalized, op.cast(center, op.result(1).dtype), op.cast(scale, op.result(2).dtype)]


@converter("aten._native_batch_norm_legit_functional.default")
def functional_batch_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    training: bool, momentum: float, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    """Convert the norm that also returns the running statistics, of which the batch is a part in training."""
    if not training:
        normalized = _batch_norm(op, x, weight, bias, mean, variance, epsilon)
        rest = [op.expanded(op.constant(0, op.result(i).dtype), op.result(i).shape) for i in (1, 2)]
        return [normalized, *rest, *(op.cast(each, op.result(i).dtype) for i, each in ((3, mean), (4, variance)))]
    normalized, center, spread, scale = _by_own_statistics(op, x, weight, bias, epsilon)
    count = D.product([dim for axis, dim in enumerate(x.shape) if axis != 1])
    size = op.operand(count, spread.dtype)
    unbiased = op.apply("divide", op.apply("multiply", spread, size), op.apply("subtract", size, 1))
    moved = [
        op.cast(
            op.apply("add", op.apply("multiply", op.wide(old), 1 - momentum), op.apply("multiply", new, momentum)),
            op.result(index).dtype,
        )
        for index, old, new in ((3, mean, center), (4, variance, unbiased))
    ]
    return [normalized, op.cast(center, op.result(1).dtype), op.cast(scale, op.result(2).dtype), *moved]


def _batch_norm(
    op: AtenOperation,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
) -> Tensor:
    kind = x.dtype
    if x.rank < 2:
        raise UnsupportedOperation("normalizes a tensor without a dim of channels")
    channels = x.shape[1]
    one, zero = (op.expanded(op.constant(number, kind), (channels,)) for number in (1, 0))
    given = [one if weight is None else weight, zero if bias is None else bias, mean, variance]
    if any(each.dtype is not kind for each in given):
        y = op.wide(x)
        given = [op.cast(each, y.dtype) for each in given]
        return op.cast(op.emit("batch_norm", y, *given, axis=1, epsilon=epsilon), kind)
    return op.emit("batch_norm", x, *given, axis=1, epsilon=epsilon)


@converter("aten._native_batch_norm_legit_no_training.default")
def native_batch_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor,
    momentum: float, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    result = _batch_norm(op, x, weight, bias, mean, variance, epsilon)
    rest = [op.expanded(op.constant(0, op.result(i).dtype), op.result(i).shape) for i in (1, 2)]
    return [result, *rest]


@converter("aten.group_norm.default")
def group_norm(
    op: AtenOperation, x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    epsilon: float = 1e-5, *_: object,
) -> Tensor:  # fmt: skip
    return _group_norm(op, x, groups, weight, bias, epsilon)


def _group_norm(
    op: AtenOperation, x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> Tensor:
    kind, channels = x.dtype, x.shape[1]
    scale = op.expanded(op.constant(1, kind), (channels,)) if weight is None else op.cast(weight, kind)
    shift = op.expanded(op.constant(0, kind), (channels,)) if bias is None else op.cast(bias, kind)
    spread = op.reshaped(x, (*x.shape, 1)) if x.rank == 2 else x
    result = op.emit("group_norm", spread, scale, shift, groups=groups, epsilon=epsilon)
    return op.reshaped(result, x.shape)


@converter("aten.native_group_norm.default")
def native_group_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: Dim, channels: Dim, size: Dim,
    groups: int, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    result = _group_norm(op, x, groups, weight, bias, epsilon)
    flat = op.reshaped(x, (x.shape[0], groups, D.product(x.shape[1:]) // groups))
    kept = _statistics(op, flat, [2], epsilon, op.result(1).dtype.name)
    return [result, *(op.reshaped(each, (x.shape[0], groups)) for each in kept)]


@converter("aten.instance_norm.default")
def instance_norm(
    op: AtenOperation, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None,
    variance: Tensor | None, use_input_stats: bool, momentum: float, epsilon: float, *_: object,
) -> Tensor:  # fmt: skip
    if not use_input_stats:
        assert mean is not None and variance is not None
        return _batch_norm(op, x, weight, bias, mean, variance, epsilon)
    if mean is not None or variance is not None:
        raise UnsupportedOperation(TRAINING)
    return _group_norm(op, x, op.fixed(x.shape[1], "a number of channels"), weight, bias, epsilon)
